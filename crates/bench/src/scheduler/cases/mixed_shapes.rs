//! Pods of different sizes in random order: how fast they are bound, and how many GPUs are given out.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::throughput::add_cost;
use super::{ALL_BOUND, RATE, float};
use crate::scheduler::api::Kind;
use crate::scheduler::objects::{self, GPUS, PodRequest};
use crate::scheduler::results::Measured;
use crate::scheduler::testbed::Testbed;
use crate::scheduler::validate::{self, Expected};
use crate::scheduler::{cost, workers};
use crate::split_mix::SplitMix64;

const SET: &str = "pod";
/// Percent of the cluster's GPUs that the pods request.
const REQUESTED: usize = 90;
/// GPUs of a pod, each as likely as the others.
const SHAPES: [usize; 20] = [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 4, 4, 4, 8, 8];
/// Without a binding for so long, the rest does not fit.
const IDLE: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// GPUs of each pod, in the order of creation.
pub(super) fn shapes(nodes: usize) -> Vec<usize> {
    let (mut random, mut left) = (SplitMix64(17), nodes * GPUS * REQUESTED / 100);
    let mut shapes = Vec::new();
    while left > 0 {
        let number = usize::try_from(random.below(SHAPES.len() as u64)).unwrap_or_default();
        let gpus = SHAPES[number].min(left);
        left -= gpus;
        shapes.push(gpus);
    }
    shapes
}

/// Creates the pods and waits until no more are bound.
pub(super) async fn run(
    testbed: &Testbed,
    timeout: Duration,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    let shapes = shapes(testbed.world.nodes);
    testbed.start().await?;
    let before = cost::begin(testbed).await?;
    let (began, created) = (Instant::now(), shapes.clone());
    let (api, contender) = (testbed.api.clone(), testbed.contender);
    let creating = workers::in_parallel(shapes.len(), move |number| {
        let (api, gpus) = (api.clone(), created.get(number).copied().unwrap_or_default());
        async move {
            let request = if gpus == 0 { PodRequest::Plain } else { PodRequest::Gpus(gpus) };
            let mut pod = objects::pod(&format!("{SET}-{number}"), request, contender);
            let requests = &mut pod["spec"]["containers"][0]["resources"]["requests"];
            requests["cpu"] = (1 + 8 * gpus).to_string().into();
            requests["memory"] = format!("{}Gi", 2 + 64 * gpus).into();
            api.create(Kind::Pods, &pod).await.map(drop)
        }
    });
    creating.await?;
    until_idle(testbed, shapes.len(), Instant::now(), timeout).await;
    // Events are written a little later than the change that they report.
    testbed.quiet().await?;
    let cost = before.end(testbed).await?;
    let (bound, given, last) = {
        let seen = testbed.observer.seen();
        let is_bound = |number: &usize| {
            seen.pods.get(&format!("{SET}-{number}")).is_some_and(|pod| pod.bound.is_some())
        };
        let given: usize =
            (0..shapes.len()).filter(is_bound).filter_map(|number| shapes.get(number)).sum();
        (seen.bound(SET), given, seen.last_bound(SET).context("no pod is bound")?)
    };
    let expected =
        Expected { bound: [(SET.to_owned(), bound..=shapes.len())].into(), gangs: BTreeMap::new() };
    validate::check(&testbed.api, testbed.contender, testbed.world.gpus, &expected).await?;
    let took = (last - began).as_secs_f64();
    measured.add(RATE, "pods/s", float(bound) / took);
    if bound == shapes.len() {
        measured.add(ALL_BOUND, "s", took);
    } else {
        measured.mark_unfinished();
    }
    let requested: usize = shapes.iter().sum();
    let percent = 100.0 * float(given) / float(requested);
    measured.add("GPUs given out of those requested", "%", percent);
    measured.add("pods bound", "pods", float(bound));
    add_cost(&cost, (shapes.len(), bound), measured);
    Ok(())
}

/// Waits until all pods are bound, or none was bound for a while.
async fn until_idle(testbed: &Testbed, count: usize, created: Instant, timeout: Duration) {
    while created.elapsed() < timeout {
        let (bound, last) = {
            let seen = testbed.observer.seen();
            (seen.bound(SET), seen.last_bound(SET))
        };
        if bound == count || last.unwrap_or(created).max(created).elapsed() >= IDLE {
            return;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_tenths_of_the_gpus_are_requested_by_pods_of_all_sizes() {
        let shapes = shapes(500);
        assert_eq!(shapes.iter().sum::<usize>(), 3_600);
        for gpus in [0, 1, 2, 4, 8] {
            assert!(shapes.iter().filter(|shape| **shape == gpus).count() > 50, "{gpus} GPUs");
        }
        assert_eq!(shapes, super::shapes(500));
    }
}
