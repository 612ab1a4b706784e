//! The agent's metrics. Metrics that NVIDIA's DRA driver also has keep its names and labels. The encoder adds `_total`
//! to counters.

mod healing;
mod plugin;
mod reference;

use std::sync::Arc;
use std::time::Duration;

use octavo_api::checkpoint::CheckpointOutcome;
use octavo_api::names::{NODE_MODE_METRIC, NODE_PROBLEMS_METRIC};
use octavo_api::node_health::{DeviceHealth, STATES};
use octavo_enforcement::metrics::EnforcementMetrics;
use octavo_gpu::Inventory;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::compute_domain::DomainCounts;
use crate::config::Mode;
use crate::node::DraDriver;

use healing::HealingMetrics;
pub(crate) use plugin::PluginMetrics;
pub use reference::metrics_reference;

/// How many devices claims have for themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldCounts {
    /// Whole GPUs.
    pub gpus: usize,
    /// Shares of GPUs.
    pub shares: usize,
    /// MIG instances.
    pub mig: usize,
}

/// A call of the kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    /// Make a claim's devices ready.
    Prepare,
    /// Take them back.
    Unprepare,
}

/// Driver operation on a MIG instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MigOperation {
    /// Make it, the mode included.
    Create,
    /// Destroy it.
    Destroy,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MigLabels {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeMigLabels {
    node: String,
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    driver: &'static str,
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    driver: &'static str,
    error_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PreparedLabels {
    node: String,
    driver: &'static str,
    device_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DriverLabels {
    node: String,
    driver: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabels {
    node: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GateLabels {
    node: String,
    feature_gate: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GpuLabels {
    node: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModeLabels {
    node: String,
    mode: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProblemLabels {
    node: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct XidLabels {
    node: String,
    xid: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CheckpointLabels {
    hook: &'static str,
    outcome: &'static str,
}

/// All metrics of the process, shared by its nodes.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: Family<OperationLabels, Counter>,
    duration: Family<OperationLabels, Histogram, fn() -> Histogram>,
    inflight: Family<OperationLabels, Gauge>,
    prepared: Family<PreparedLabels, Gauge>,
    prepare_errors: Family<ErrorLabels, Counter>,
    unprepare_errors: Family<ErrorLabels, Counter>,
    gpus: Family<GpuLabels, Gauge>,
    health: Family<GpuLabels, Gauge>,
    xids: Family<XidLabels, Counter>,
    driver_failures: Family<NodeLabels, Counter>,
    registered: Family<DriverLabels, Gauge>,
    mode: Family<ModeLabels, Gauge>,
    problems: Family<ProblemLabels, Gauge>,
    missing_features: Family<GateLabels, Gauge>,
    shares: Family<NodeLabels, Gauge>,
    mig_duration: Family<MigLabels, Histogram, fn() -> Histogram>,
    mig_failures: Family<NodeMigLabels, Counter>,
    checkpoints: Family<CheckpointLabels, Histogram, fn() -> Histogram>,
    /// Those of remedies and tests of GPUs.
    pub(crate) healing: HealingMetrics,
    /// Those of device plugins.
    pub(crate) plugin: Arc<PluginMetrics>,
    /// Those of shares.
    pub(crate) enforcement: Arc<EnforcementMetrics>,
}

/// Counts a request from start to end.
#[derive(Debug)]
pub(crate) struct InFlight<'a> {
    metrics: &'a Metrics,
    labels: OperationLabels,
    started: std::time::Instant,
}

impl Metrics {
    /// Makes the metrics and registers them.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            // The upstream driver's buckets end at its lock timeout; these begin lower.
            duration: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.000_781_25, 2.0, 15))
            }),
            inflight: Family::default(),
            prepared: Family::default(),
            prepare_errors: Family::default(),
            unprepare_errors: Family::default(),
            gpus: Family::default(),
            health: Family::default(),
            xids: Family::default(),
            driver_failures: Family::default(),
            registered: Family::default(),
            mode: Family::default(),
            problems: Family::default(),
            missing_features: Family::default(),
            shares: Family::default(),
            // Milliseconds without hardware, seconds with it, and most when a mode change resets the GPU.
            mig_duration: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.003_125, 2.0, 15))
            }),
            mig_failures: Family::default(),
            // To the longest time that a pod may have, an hour.
            checkpoints: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.125, 2.0, 16))
            }),
            healing: HealingMetrics::new(registry),
            plugin: Arc::new(PluginMetrics::new(registry)),
            enforcement: Arc::new(EnforcementMetrics::new(registry)),
        };
        registry.register(
            "nvidia_dra_requests",
            "Calls of the kubelet, one for each claim",
            metrics.requests.clone(),
        );
        registry.register(
            "nvidia_dra_request_duration_seconds",
            "Duration of these calls",
            metrics.duration.clone(),
        );
        registry.register(
            "nvidia_dra_requests_inflight",
            "Calls in progress",
            metrics.inflight.clone(),
        );
        registry.register(
            "nvidia_dra_prepared_devices",
            "Devices held by claims",
            metrics.prepared.clone(),
        );
        registry.register(
            "nvidia_dra_node_prepare_errors",
            "Claims that were not prepared",
            metrics.prepare_errors.clone(),
        );
        registry.register(
            "nvidia_dra_node_unprepare_errors",
            "Claims that were not unprepared",
            metrics.unprepare_errors.clone(),
        );
        registry.register("octavo_agent_gpus", "GPUs reported by the driver", metrics.gpus.clone());
        registry.register(
            "octavo_agent_gpu_health",
            "GPUs by their state of health, such as Healthy, Watch or Fenced",
            metrics.health.clone(),
        );
        registry.register(
            "octavo_agent_xid_events",
            "XIDs reported by the driver",
            metrics.xids.clone(),
        );
        registry.register(
            "octavo_agent_driver_failures",
            "Failed driver calls",
            metrics.driver_failures.clone(),
        );
        registry.register(
            "octavo_agent_kubelet_registered",
            "Whether the kubelet uses the driver, according to its last report",
            metrics.registered.clone(),
        );
        registry.register(
            NODE_MODE_METRIC,
            "Whether the node is in this mode; 0 for all of them while it changes",
            metrics.mode.clone(),
        );
        registry.register(
            NODE_PROBLEMS_METRIC,
            "What keeps the node from being as its settings ask, by the reason of the node's event",
            metrics.problems.clone(),
        );
        registry.register(
            "octavo_agent_missing_features",
            "Whether the API server drops device fields because a feature gate is off",
            metrics.missing_features.clone(),
        );
        registry.register(
            "octavo_agent_shares",
            "Shares of GPUs held by claims",
            metrics.shares.clone(),
        );
        registry.register(
            "octavo_agent_mig_duration_seconds",
            "Duration of creating or destroying a MIG instance",
            metrics.mig_duration.clone(),
        );
        registry.register(
            "octavo_agent_mig_failures",
            "MIG instances that could not be created or destroyed",
            metrics.mig_failures.clone(),
        );
        registry.register(
            "octavo_agent_checkpoint_seconds",
            "Time of pods that leave from the ask to save their work to the outcome",
            metrics.checkpoints.clone(),
        );
        metrics
    }

    /// Counts a call until the value goes.
    pub(crate) fn begin(&self, driver: DraDriver, operation: Operation) -> InFlight<'_> {
        let labels = OperationLabels { driver: driver.name(), operation: operation.name() };
        self.requests.get_or_create(&labels).inc();
        self.inflight.get_or_create(&labels).inc();
        InFlight { metrics: self, labels, started: std::time::Instant::now() }
    }

    /// Counts a refused claim by the refusal's reason.
    pub(crate) fn refused(&self, driver: DraDriver, operation: Operation, reason: &'static str) {
        let family = match operation {
            Operation::Prepare => &self.prepare_errors,
            Operation::Unprepare => &self.unprepare_errors,
        };
        family.get_or_create(&ErrorLabels { driver: driver.name(), error_type: reason }).inc();
    }

    /// Sets the number of the GPU driver's devices held by a node's claims. A share counts as its device's type.
    pub(crate) fn prepared(&self, node: &str, held: HeldCounts) {
        let HeldCounts { gpus, shares, mig } = held;
        for (device_type, devices) in [("gpu", gpus + shares), ("mig", mig)] {
            let driver = DraDriver::GPU.name();
            let labels = PreparedLabels { node: node.to_owned(), driver, device_type };
            self.prepared.get_or_create(&labels).set(count(devices));
        }
        let shared = self.shares.get_or_create_owned(&NodeLabels { node: node.to_owned() });
        shared.set(count(shares));
    }

    /// Sets how many devices of domains a node's claims hold.
    pub(crate) fn prepared_in_domains(&self, node: &str, held: DomainCounts) {
        for (device_type, devices) in [("channel", held.channels), ("daemon", held.daemons)] {
            let driver = DraDriver::COMPUTE_DOMAIN.name();
            let labels = PreparedLabels { node: node.to_owned(), driver, device_type };
            self.prepared.get_or_create(&labels).set(count(devices));
        }
    }

    /// Counts a driver operation on a MIG instance.
    pub(crate) fn mig(&self, node: &str, operation: MigOperation, took: Duration, is_ok: bool) {
        let operation = operation.name();
        let duration = self.mig_duration.get_or_create(&MigLabels { operation });
        duration.observe(took.as_secs_f64());
        if !is_ok {
            let labels = NodeMigLabels { node: node.to_owned(), operation };
            self.mig_failures.get_or_create(&labels).inc();
        }
    }

    /// Counts a pod that was asked to save its work.
    pub(crate) fn checkpoint(
        &self,
        hook: &'static str,
        outcome: CheckpointOutcome,
        took: Duration,
    ) {
        let outcome = match outcome {
            CheckpointOutcome::Running => "Running",
            CheckpointOutcome::Saved => "Saved",
            CheckpointOutcome::Failed => "Failed",
            CheckpointOutcome::TimedOut => "TimedOut",
        };
        let labels = CheckpointLabels { hook, outcome };
        self.checkpoints.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Sets how many GPUs a node has.
    pub(crate) fn gpus(&self, node: &str, inventory: &Inventory) {
        let labels = |state| GpuLabels { node: node.to_owned(), state };
        self.gpus.get_or_create(&labels("readable")).set(count(inventory.gpus.len()));
        self.gpus.get_or_create(&labels("unreadable")).set(count(inventory.unreadable.len()));
    }

    /// Sets how many GPUs of a node are in each state of health.
    pub(crate) fn health(&self, node: &str, devices: &[DeviceHealth]) {
        for state in STATES {
            let found = devices.iter().filter(|device| device.state == state).count();
            let labels = GpuLabels { node: node.to_owned(), state };
            self.health.get_or_create(&labels).set(count(found));
        }
    }

    /// Counts an XID.
    pub(crate) fn xid(&self, node: &str, xid: u64) {
        self.xids.get_or_create(&XidLabels { node: node.to_owned(), xid }).inc();
    }

    /// Counts a failed driver call.
    pub(crate) fn driver_failure(&self, node: &str) {
        self.driver_failures.get_or_create(&NodeLabels { node: node.to_owned() }).inc();
    }

    /// Sets whether the API server drops device fields behind a feature gate.
    pub(crate) fn missing_feature(&self, node: &str, gate: &'static str, is_missing: bool) {
        let labels = GateLabels { node: node.to_owned(), feature_gate: gate };
        self.missing_features.get_or_create(&labels).set(i64::from(is_missing));
    }

    /// Sets the mode in which a node is; `None`: it changes, or that is not known.
    pub(crate) fn in_mode(&self, node: &str, mode: Option<Mode>) {
        for known in [Mode::Dra, Mode::DevicePlugin, Mode::None] {
            let labels = ModeLabels { node: node.to_owned(), mode: known.as_str() };
            self.mode.get_or_create(&labels).set(i64::from(mode == Some(known)));
        }
    }

    /// Counts what keeps a node from being as its settings ask, by reason. Each reason has one caller.
    pub(crate) fn problems(
        &self,
        node: &str,
        former: impl IntoIterator<Item = &'static str>,
        now: impl IntoIterator<Item = &'static str>,
    ) {
        let of = |reason| ProblemLabels { node: node.to_owned(), reason };
        for reason in former {
            self.problems.get_or_create(&of(reason)).set(0);
        }
        for reason in now {
            self.problems.get_or_create(&of(reason)).inc();
        }
    }

    /// Sets whether the kubelet of a node uses a driver.
    pub(crate) fn registered(&self, driver: DraDriver, node: &str, is_registered: bool) {
        let labels = DriverLabels { node: node.to_owned(), driver: driver.name() };
        let gauge = self.registered.get_or_create_owned(&labels);
        gauge.set(i64::from(is_registered));
    }
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Unprepare => "unprepare",
        }
    }
}

impl MigOperation {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Destroy => "destroy",
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.metrics.inflight.get_or_create(&self.labels).dec();
        let seconds = self.started.elapsed().as_secs_f64();
        self.metrics.duration.get_or_create(&self.labels).observe(seconds);
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_names_and_labels_match_the_upstream_driver() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        drop(metrics.begin(DraDriver::GPU, Operation::Prepare));
        metrics.refused(DraDriver::GPU, Operation::Prepare, "DeviceInUse");
        metrics.in_mode("node-1", Some(Mode::None));
        metrics.problems("node-1", [], ["ModeWaits", "MpsNotReady", "MpsNotReady"]);
        metrics.problems("node-1", ["ModeWaits"], []);
        metrics.prepared("node-1", HeldCounts { gpus: 1, shares: 2, mig: 4 });
        metrics.mig("node-1", MigOperation::Destroy, Duration::from_millis(10), false);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"nvidia_dra_requests_total{driver="gpu.nvidia.com",operation="prepare"} 1"#,
            r#"nvidia_dra_requests_inflight{driver="gpu.nvidia.com",operation="prepare"} 0"#,
            r#"nvidia_dra_request_duration_seconds_count{driver="gpu.nvidia.com",operation="prepare"} 1"#,
            r#"nvidia_dra_node_prepare_errors_total{driver="gpu.nvidia.com",error_type="DeviceInUse"} 1"#,
            r#"nvidia_dra_prepared_devices{node="node-1",driver="gpu.nvidia.com",device_type="gpu"} 3"#,
            r#"nvidia_dra_prepared_devices{node="node-1",driver="gpu.nvidia.com",device_type="mig"} 4"#,
            r#"octavo_agent_node_mode{node="node-1",mode="dra"} 0"#,
            r#"octavo_agent_node_mode{node="node-1",mode="none"} 1"#,
            r#"octavo_agent_node_problems{node="node-1",reason="ModeWaits"} 0"#,
            r#"octavo_agent_node_problems{node="node-1",reason="MpsNotReady"} 2"#,
            r#"octavo_agent_shares{node="node-1"} 2"#,
            r#"octavo_agent_mig_duration_seconds_count{operation="destroy"} 1"#,
            r#"octavo_agent_mig_failures_total{node="node-1",operation="destroy"} 1"#,
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
