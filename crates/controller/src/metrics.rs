//! The controller's metrics. The encoder adds `_total` to counters.

mod health;
#[cfg(test)]
mod tests;

use std::time::Duration;

use octavo_api::HealthPolicyStatus;
use octavo_kube_io::metrics_page;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

pub use health::HealthMetrics;

/// A label with its value.
type Label = (&'static str, &'static str);

/// All metrics of the controller. Clones share the counters.
#[derive(Clone, Debug)]
pub struct Metrics {
    domains: Family<[Label; 1], Gauge>,
    domain_info: Family<[Label; 1], Gauge>,
    writes: Family<[Label; 2], Counter>,
    plan_time: Histogram,
    leader: Gauge,
    translations: Family<[Label; 1], Counter>,
    translation_refusals: Family<[Label; 1], Counter>,
    translation_time: Histogram,
    health: HealthMetrics,
}

impl Metrics {
    /// Makes the metrics and registers them.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            domains: Family::default(),
            domain_info: Family::default(),
            writes: Family::default(),
            // From 10 us to 10 s.
            plan_time: Histogram::new(exponential_buckets(0.000_01, 2.0, 21)),
            leader: Gauge::default(),
            translations: Family::default(),
            translation_refusals: Family::default(),
            // From 100 us to 13 s.
            translation_time: Histogram::new(exponential_buckets(0.000_1, 2.0, 18)),
            health: HealthMetrics::new(registry.sub_registry_with_prefix("octavo_controller")),
        };
        // The name that NVIDIA's controller has, for dashboards.
        registry.register(
            "nvidia_dra_compute_domain_info",
            "ComputeDomains by status, as in NVIDIA's driver",
            metrics.domain_info.clone(),
        );
        let registry = registry.sub_registry_with_prefix("octavo_controller");
        registry.register("compute_domains", "ComputeDomains by status", metrics.domains.clone());
        registry.register(
            "writes",
            "Writes to the API server, by kind and result (done, conflict, failed, not-leader)",
            metrics.writes.clone(),
        );
        registry.register_with_unit(
            "plan",
            "Time of one plan, without any write",
            Unit::Seconds,
            metrics.plan_time.clone(),
        );
        registry.register(
            "leader",
            "1 while this controller leads, otherwise 0",
            metrics.leader.clone(),
        );
        registry.register(
            "translations",
            "Pods that the webhook was asked about, by result (translated, unchanged, refused, failed)",
            metrics.translations.clone(),
        );
        registry.register(
            "translation_refusals",
            "Refused fields of pods of HAMi and KAI Scheduler, by reason",
            metrics.translation_refusals.clone(),
        );
        registry.register_with_unit(
            "translation",
            "Time of the webhook's answer, with the claim template that it makes",
            Unit::Seconds,
            metrics.translation_time.clone(),
        );
        metrics
    }

    /// Domains that are ready, and that are not.
    pub fn domains(&self, ready: usize, not_ready: usize) {
        for (status, count) in [("Ready", ready), ("NotReady", not_ready)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.domains.get_or_create(&[("status", status)]).set(count);
            self.domain_info.get_or_create(&[("status", status)]).set(count);
        }
    }

    /// Counts a write.
    pub fn write(&self, kind: &'static str, result: &'static str) {
        self.writes.get_or_create(&[("kind", kind), ("result", result)]).inc();
    }

    /// Records the time of a plan.
    pub fn planned(&self, took: Duration) {
        self.plan_time.observe(took.as_secs_f64());
    }

    /// Counts an answer of the webhook, and its time.
    pub fn translated(&self, result: &'static str, took: Duration) {
        self.translations.get_or_create(&[("result", result)]).inc();
        self.translation_time.observe(took.as_secs_f64());
    }

    /// Counts a refused field.
    pub fn refused(&self, reason: &'static str) {
        self.translation_refusals.get_or_create(&[("reason", reason)]).inc();
    }

    /// Those of the health of GPUs.
    pub fn health(&self) -> &HealthMetrics {
        &self.health
    }

    /// Whether this controller leads.
    pub fn leader(&self, is_leader: bool) {
        self.leader.set(is_leader.into());
    }
}

/// The page `docs/reference/controller-metrics.md`: every metric with its kind, labels and help.
pub fn reference() -> String {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    metrics.domains(0, 0);
    metrics.write("status", "done");
    metrics.planned(Duration::ZERO);
    metrics.leader(false);
    metrics.translated("translated", Duration::ZERO);
    metrics.refused("NoEqual");
    metrics.health.planned(Duration::ZERO);
    let policy = ("h100".to_owned(), HealthPolicyStatus::default());
    metrics.health.show(std::iter::once((&policy.0, &policy.1)), 0, false);
    metrics_page("Metrics of the controller", &registry)
}
