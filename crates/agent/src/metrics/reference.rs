//! The reference page of the metrics, generated from what is registered.

use std::time::Duration;

use octavo_api::checkpoint::CheckpointOutcome;
use octavo_gpu::{DriverVersions, Inventory};
use octavo_health::remedy::Remedy;
use octavo_kube_io::metrics_page;
use prometheus_client::registry::Registry;

use octavo_enforcement::metrics::{ShareFigures, ShareLabels, ShareTime};

use super::{HeldCounts, Metrics, MigOperation, Operation};
use crate::health::{Ended, RemedyOutcome, TestOutcome};
use crate::node::DraDriver;

/// The page `docs/reference/agent-metrics.md`: every metric with its kind, labels and help.
pub fn metrics_reference() -> String {
    let mut registry = Registry::default();
    touch_all(&Metrics::new(&mut registry));
    metrics_page("Metrics of the agent", &registry)
}

/// Sets each metric once, so that its labels appear.
fn touch_all(metrics: &Metrics) {
    drop(metrics.begin(DraDriver::GPU, Operation::Prepare));
    metrics.refused(DraDriver::GPU, Operation::Prepare, "");
    metrics.refused(DraDriver::GPU, Operation::Unprepare, "");
    metrics.prepared("", HeldCounts::default());
    metrics.mig("", MigOperation::Create, Duration::ZERO, false);
    metrics.checkpoint("", CheckpointOutcome::Saved, Duration::ZERO);
    let versions = DriverVersions { driver: String::new(), cuda: (0, 0), nvml: String::new() };
    metrics.gpus("", &Inventory { versions, gpus: Vec::new(), unreadable: Vec::new() });
    metrics.health("", &[]);
    metrics.xid("", 0);
    metrics.driver_failure("");
    metrics.missing_feature("", "", false);
    metrics.in_mode("", None);
    metrics.problems("", [""], []);
    metrics.registered(DraDriver::GPU, "", false);
    let took = Some(Duration::ZERO);
    let (remedy, outcome) = (Remedy::Reboot, RemedyOutcome::Remedied);
    metrics.healing.ended("", Ended::Remedy { remedy, outcome, took });
    metrics.healing.ended("", Ended::Test { outcome: TestOutcome::Passed, took });
    metrics.plugin.listed("", "", 0, 0);
    metrics.plugin.allocated("", "", true);
    let share = ShareLabels {
        node: String::new(),
        namespace: String::new(),
        claim: String::new(),
        share: String::new(),
        device: String::new(),
        gpu: String::new(),
    };
    metrics.enforcement.set(&share, ShareFigures::default());
    metrics.enforcement.set_time(&share, ShareTime::default());
    metrics.enforcement.set_swapped(&share, 0);
    metrics.enforcement.count_move(&share, true, true, Duration::ZERO);
    metrics.enforcement.count(&share, 0, 0);
    metrics.enforcement.overflow(&share, "");
    metrics.enforcement.foreign("", "", Some(0));
    metrics.enforcement.blind("", "", Some(""));
    metrics.enforcement.hanging("", false);
}

#[cfg(test)]
mod tests;
