//! Metrics of the health of GPUs, from the statuses of policies.

use std::time::Duration;

use octavo_api::health_policy::{DeviceCounts, HealthPolicyStatus};
use octavo_api::names::CONDITION_BREAKER_OPEN;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// Labels with their values.
type Labels = Vec<(&'static str, String)>;

/// The metrics of policies and of work on nodes.
#[derive(Clone, Debug)]
pub struct HealthMetrics {
    devices: Family<Labels, Gauge>,
    remedies: Family<Labels, Gauge>,
    evictions: Family<Labels, Gauge>,
    breakers: Family<Labels, Gauge>,
    nodes_in_maintenance: Gauge,
    maintenance_unreadable: Gauge,
    round_time: Histogram,
}

impl HealthMetrics {
    /// Makes the metrics and registers them.
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            devices: Family::default(),
            remedies: Family::default(),
            evictions: Family::default(),
            breakers: Family::default(),
            nodes_in_maintenance: Gauge::default(),
            maintenance_unreadable: Gauge::default(),
            // From 100 us to 13 s.
            round_time: Histogram::new(exponential_buckets(0.000_1, 2.0, 18)),
        };
        registry.register(
            "health_devices",
            "GPUs of the nodes of a HealthPolicy, by state",
            metrics.devices.clone(),
        );
        registry.register(
            "health_remedies",
            "Remedies that run or may begin, by HealthPolicy",
            metrics.remedies.clone(),
        );
        registry.register(
            "health_evictions",
            "GPUs whose pods are being evicted, by HealthPolicy",
            metrics.evictions.clone(),
        );
        registry.register(
            "health_breaker_open",
            "1 while many failures at once stop the remedies of a HealthPolicy, otherwise 0",
            metrics.breakers.clone(),
        );
        registry.register(
            "health_nodes_in_maintenance",
            "Nodes with the taint of a Maintenance",
            metrics.nodes_in_maintenance.clone(),
        );
        registry.register(
            "health_maintenance_unreadable",
            "1 while Maintenances cannot be read, since their definition or the right to read them is missing, otherwise 0",
            metrics.maintenance_unreadable.clone(),
        );
        registry.register_with_unit(
            "health_round",
            "Time of one plan of all HealthPolicies and Maintenances, without any write",
            Unit::Seconds,
            metrics.round_time.clone(),
        );
        metrics
    }

    /// Records the time of a plan.
    pub fn planned(&self, took: Duration) {
        self.round_time.observe(took.as_secs_f64());
    }

    /// Shows the statuses of all policies. Those of a policy that is gone are removed.
    pub fn show<'a>(
        &self,
        policies: impl Iterator<Item = (&'a String, &'a HealthPolicyStatus)>,
        nodes_in_maintenance: usize,
        is_maintenance_unreadable: bool,
    ) {
        self.clear();
        for (name, status) in policies {
            let policy = || vec![("policy", name.clone())];
            for (state, count) in by_state(status.devices) {
                let mut labels = policy();
                labels.push(("state", state.to_owned()));
                self.devices.get_or_create(&labels).set(count);
            }
            self.remedies.get_or_create(&policy()).set(status.remedies);
            self.evictions.get_or_create(&policy()).set(status.evictions);
            let mut conditions = status.conditions.iter();
            let is_open =
                conditions.any(|it| it.type_ == CONDITION_BREAKER_OPEN && it.status == "True");
            self.breakers.get_or_create(&policy()).set(is_open.into());
        }
        let nodes = i64::try_from(nodes_in_maintenance).unwrap_or(i64::MAX);
        self.nodes_in_maintenance.set(nodes);
        self.maintenance_unreadable.set(is_maintenance_unreadable.into());
    }

    /// Removes all figures but times: another controller leads, and has them.
    pub fn clear(&self) {
        for family in [&self.devices, &self.remedies, &self.evictions, &self.breakers] {
            family.clear();
        }
        self.nodes_in_maintenance.set(0);
        self.maintenance_unreadable.set(0);
    }
}

fn by_state(counts: DeviceCounts) -> [(&'static str, i64); 8] {
    let DeviceCounts { healthy, watch, suspect, fenced, resetting, verifying, probation, retired } =
        counts;
    [
        ("Healthy", healthy),
        ("Watch", watch),
        ("Suspect", suspect),
        ("Fenced", fenced),
        ("Resetting", resetting),
        ("Verifying", verifying),
        ("Probation", probation),
        ("Retired", retired),
    ]
}
