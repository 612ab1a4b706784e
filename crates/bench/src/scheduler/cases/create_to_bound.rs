//! The time from a pod's creation to its binding, for pods that are created one by one.

use std::time::{Duration, Instant};

use anyhow::Context;
use octavo_figure::{Goal, percentile};

use crate::scheduler::api::Kind;
use crate::scheduler::objects::{self, PodRequest};
use crate::scheduler::results::Measured;
use crate::scheduler::testbed::Testbed;

/// Pods of a set, and when each was created.
pub(super) struct Arrivals {
    set: &'static str,
    request: PodRequest,
    created: Vec<Instant>,
}

impl Arrivals {
    /// No pod yet.
    pub(super) fn new(set: &'static str, request: PodRequest) -> Self {
        Self { set, request, created: Vec::new() }
    }

    /// How many were created.
    pub(super) fn count(&self) -> usize {
        self.created.len()
    }

    /// Creates the next pod.
    pub(super) async fn create(&mut self, testbed: &Testbed) -> anyhow::Result<()> {
        let name = format!("{}-{}", self.set, self.created.len());
        let pod = objects::pod(&name, self.request, testbed.contender);
        self.created.push(Instant::now());
        testbed.api.create(Kind::Pods, &pod).await.map(drop)
    }

    /// Waits until all are bound.
    pub(super) async fn all_bound(
        &self,
        testbed: &Testbed,
        timeout: Duration,
    ) -> anyhow::Result<()> {
        testbed.observer.all_bound(self.set, self.count(), timeout).await.map(drop)
    }

    /// Milliseconds of each bound pod, sorted.
    pub(super) fn times(&self, testbed: &Testbed) -> Vec<f64> {
        let seen = testbed.observer.seen();
        let waited = |(number, created): (usize, &Instant)| {
            let bound = seen.pods.get(&format!("{}-{number}", self.set))?.bound?;
            Some(bound.saturating_duration_since(*created).as_secs_f64() * 1e3)
        };
        let mut times: Vec<f64> = self.created.iter().enumerate().filter_map(waited).collect();
        times.sort_by(f64::total_cmp);
        times
    }

    /// Adds median and p99 in milliseconds.
    pub(super) fn add(
        &self,
        testbed: &Testbed,
        what: &str,
        [median, p99]: [Goal; 2],
        measured: &mut Measured,
    ) -> anyhow::Result<()> {
        let times = self.times(testbed);
        for (name, percent, goal) in [("p50", 50.0, median), ("p99", 99.0, p99)] {
            let value = percentile(&times, percent).context("no pod is bound")?;
            measured.add_with_goal(format!("{what}: create to bound, {name}"), "ms", goal, value);
        }
        Ok(())
    }
}
