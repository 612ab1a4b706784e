//! Metrics of the healing of GPUs: remedies and tests that ended.
//!
//! Prometheus' `increase()` takes the first value of a series that it sees for its begin. So the counts of a node are there, at zero,
//! before its first end. It misses what a new process counts before its first scrape, as the end of a reboot often is.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::health::{Ended, RemedyOutcome, TestOutcome};

/// Upper bounds of times of remedies, in seconds. A reset takes seconds and a reboot minutes. By default the longest may take half an hour.
const REMEDY_BUCKETS: [f64; 16] = [
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 1_800.0,
    3_600.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RemedyLabels {
    node: String,
    remedy: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RemedyTimeLabels {
    remedy: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TestLabels {
    node: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TestTimeLabels {
    outcome: &'static str,
}

/// Metrics of the healing of the GPUs of all nodes of the process.
#[derive(Debug)]
pub(crate) struct HealingMetrics {
    remedies: Family<RemedyLabels, Counter>,
    remedy_seconds: Family<RemedyTimeLabels, Histogram, fn() -> Histogram>,
    tests: Family<TestLabels, Counter>,
    test_seconds: Family<TestTimeLabels, Histogram, fn() -> Histogram>,
}

impl HealingMetrics {
    /// Makes the metrics and registers them.
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            remedies: Family::default(),
            remedy_seconds: Family::new_with_constructor(|| Histogram::new(REMEDY_BUCKETS)),
            tests: Family::default(),
            // The driver's word takes no time. The test of a GPU that was replaced takes hours.
            test_seconds: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(1.0, 2.0, 15))
            }),
        };
        registry.register(
            "octavo_agent_health_remedies",
            "Remedies of GPUs that the agent began, once they ended, by outcome (remedied, \
             refused, timed-out, interrupted). Those that others began are not counted: a \
             person's, or a template's for a node that is not ready. A new process counts the \
             end of a reboot, often before its first scrape, where increase() misses it",
            metrics.remedies.clone(),
        );
        registry.register(
            "octavo_agent_health_remedy_seconds",
            "Time of remedies of GPUs to their end, without interrupted ones: from the begin of \
             the last try, but from the decision for time-outs, and for reboots and power \
             cycles that were applied",
            metrics.remedy_seconds.clone(),
        );
        registry.register(
            "octavo_agent_health_tests",
            "Tests of GPUs that ended, by outcome (passed, failed, not-possible, put-off, stopped)",
            metrics.tests.clone(),
        );
        registry.register(
            "octavo_agent_health_test_seconds",
            "Time of tests of GPUs from the begin of their last run to their end",
            metrics.test_seconds.clone(),
        );
        metrics
    }

    /// Shows all counts of a node that is served. Those that were counted before stay. Times have no node, and come with their first end:
    /// a histogram is many series.
    pub(crate) fn serves(&self, node: &str) {
        for (remedy, outcome) in RemedyOutcome::possible() {
            let (remedy, outcome) = (remedy.name(), outcome.name());
            let labels = RemedyLabels { node: node.to_owned(), remedy, outcome };
            self.remedies.get_or_create(&labels).inc_by(0);
        }
        for outcome in TestOutcome::ALL {
            let labels = TestLabels { node: node.to_owned(), outcome: outcome.name() };
            self.tests.get_or_create(&labels).inc_by(0);
        }
    }

    /// Counts a remedy or test of a node that ended.
    pub(crate) fn ended(&self, node: &str, ended: Ended) {
        match ended {
            Ended::Remedy { remedy, outcome, took } => {
                let (remedy, outcome) = (remedy.name(), outcome.name());
                let labels = RemedyLabels { node: node.to_owned(), remedy, outcome };
                self.remedies.get_or_create(&labels).inc();
                if let Some(took) = took {
                    let seconds = self.remedy_seconds.get_or_create(&RemedyTimeLabels { remedy });
                    seconds.observe(took.as_secs_f64());
                }
            }
            Ended::Test { outcome, took } => {
                let outcome = outcome.name();
                let labels = TestLabels { node: node.to_owned(), outcome };
                self.tests.get_or_create(&labels).inc();
                if let Some(took) = took {
                    let seconds = self.test_seconds.get_or_create(&TestTimeLabels { outcome });
                    seconds.observe(took.as_secs_f64());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
