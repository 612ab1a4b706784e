//! Pods with a MIG device that any of the cluster's GPUs can be cut into.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use octavo_figure::{Goal, percentile};

use super::create_to_bound::Arrivals;
use super::float;
use crate::scheduler::cost;
use crate::scheduler::device_objects::MIG_TEMPLATE;
use crate::scheduler::objects::PodRequest;
use crate::scheduler::results::Measured;
use crate::scheduler::testbed::Testbed;
use crate::scheduler::validate::{self, Expected};

/// Pods at full size, and the time between two.
pub(super) const PODS: usize = 50;
const INTERVAL: Duration = Duration::from_millis(250);

const SET: &str = "pod";

/// Creates the pods four a second, and waits until all are bound, or until the timeout.
pub(super) async fn run(
    testbed: &Testbed,
    pods: usize,
    timeout: Duration,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    testbed.start().await?;
    let before = cost::begin(testbed).await?;
    let mut arrivals = Arrivals::new(SET, PodRequest::Template(MIG_TEMPLATE));
    let began = Instant::now();
    for number in 0..pods {
        tokio::time::sleep_until((began + INTERVAL * u32::try_from(number)?).into()).await;
        arrivals.create(testbed).await?;
    }
    let left = timeout.saturating_sub(began.elapsed());
    let all = arrivals.all_bound(testbed, left).await;
    let cost = before.end(testbed).await?;
    let bound = testbed.observer.seen().bound(SET);
    let what = format!("bound within {} min", timeout.as_secs_f64() / 60.0);
    measured.add_with_required_goal(what, "pods", Goal::Exactly(float(pods)), float(bound));
    if all.is_err() {
        measured.mark_unfinished();
    } else {
        let times = arrivals.times(testbed);
        for (name, percent, goal) in [("p50", 50.0, Goal::Below(1.0)), ("p99", 99.0, Goal::None)] {
            let value = percentile(&times, percent).context("no pod is bound")? / 1e3;
            measured.add_with_goal(format!("create to bound, {name}"), "s", goal, value);
        }
    }
    if let (Some(seconds), Some(memory)) = (cost.scheduler_cpu, cost.scheduler_memory) {
        measured.add("processor time of the scheduler", "s", seconds);
        measured.add("most memory of the scheduler", "MiB", memory);
    }
    let expected =
        Expected { bound: [(SET.to_owned(), bound..=pods)].into(), gangs: BTreeMap::new() };
    validate::check(&testbed.api, testbed.contender, testbed.world.gpus, &expected).await
}
