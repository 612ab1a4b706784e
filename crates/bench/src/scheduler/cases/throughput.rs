//! Many pods one by one: from the first create to the last binding.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use octavo_figure::{Goal, percentile};

use super::{ALL_BOUND, RATE, float};
use crate::scheduler::api::Kind;
use crate::scheduler::case::Case;
use crate::scheduler::contender::Contender;
use crate::scheduler::cost::{self, Cost};
use crate::scheduler::device_objects::GPU_TEMPLATE;
use crate::scheduler::objects::{self, GPUS, PodRequest};
use crate::scheduler::raw::{self, PodWrites, RawOutcome, RawScheduler, SlottedPod};
use crate::scheduler::results::Measured;
use crate::scheduler::testbed::Testbed;
use crate::scheduler::validate::{self, Expected};
use crate::scheduler::workers;

/// Pods of the case.
const SET: &str = "pod";
/// Kinds of writes with fewer for each pod are not listed.
const LEAST_WRITES: f64 = 0.005;

/// Number of pods for some nodes.
pub(super) fn pods(case: Case, nodes: usize) -> usize {
    match case {
        Case::Pods => nodes * 5,
        _ => nodes * GPUS,
    }
}

/// Creates the pods and waits until all are bound, or until the timeout.
pub(super) async fn run(
    testbed: &Testbed,
    case: Case,
    timeout: Duration,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    let count = pods(case, testbed.world.nodes);
    testbed.start().await?;
    let before = cost::begin(testbed).await?;
    let created: Created = Arc::new(Mutex::new(vec![None; count]));
    let began = Instant::now();
    let (raw, raw_outcome) = start_raw(testbed, case, count)?.unzip();
    let creating = create(testbed, case, count, &created, raw.as_ref());
    let binding = async {
        match raw_outcome {
            Some(outcome) => outcome.await?,
            None => Ok(()),
        }
    };
    // The outer timeout below ends this wait.
    let bound = testbed.observer.all_bound(SET, count, timeout * 2);
    let all = async { tokio::try_join!(creating, binding, bound) };
    let outcome = tokio::time::timeout(timeout, Box::pin(all)).await;
    let last = match outcome {
        Ok(done) => Some(done?.2),
        // The current state counts; pending writes are dropped.
        Err(_) => None,
    };
    let bound = if last.is_some() { count } else { testbed.observer.seen().bound(SET) };
    if last.is_some() {
        // Events are written a little later than the change that they report.
        testbed.quiet().await?;
    }
    let cost = before.end(testbed).await?;
    // An unfinished scheduler continues during validation. It binds after it allocates devices, so
    // pods are read first.
    let expected =
        Expected { bound: [(SET.to_owned(), bound..=count)].into(), gangs: BTreeMap::new() };
    validate::check(&testbed.api, testbed.contender, testbed.world.gpus, &expected).await?;

    let created = created.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(last) = last {
        let took = (last - began).as_secs_f64();
        measured.add(RATE, "pods/s", float(count) / took);
        measured.add(ALL_BOUND, "s", took);
        add_waits(testbed, began, &created, measured)?;
    } else {
        measured.mark_unfinished();
        measured.add(RATE, "pods/s", float(bound) / timeout.as_secs_f64());
        let what = format!("bound within {} min", timeout.as_secs_f64() / 60.0);
        measured.add_with_required_goal(what, "pods", Goal::Exactly(float(count)), float(bound));
    }
    add_cost(&cost, (created.iter().flatten().count(), bound), measured);
    Ok(())
}

/// When each pod was created; none where it was not.
type Created = Arc<Mutex<Vec<Option<Instant>>>>;

/// Creates the pods, and tells raw of each.
async fn create(
    testbed: &Testbed,
    case: Case,
    count: usize,
    created: &Created,
    raw: Option<&RawScheduler>,
) -> anyhow::Result<()> {
    let request = match case {
        Case::Pods => PodRequest::Plain,
        Case::Claims => PodRequest::Template(GPU_TEMPLATE),
        _ => PodRequest::Gpus(1),
    };
    let (api, contender, times) = (testbed.api.clone(), testbed.contender, Arc::clone(created));
    let raw = raw.map(RawScheduler::sender);
    let pods_per_node = count / testbed.world.nodes;
    workers::in_parallel(count, move |number| {
        let (api, times, raw) = (api.clone(), Arc::clone(&times), raw.clone());
        async move {
            let name = format!("{SET}-{number}");
            let answer = api.create(Kind::Pods, &objects::pod(&name, request, contender)).await?;
            if let Some(time) = times.lock().unwrap_or_else(PoisonError::into_inner).get_mut(number)
            {
                *time = Some(Instant::now());
            }
            if let Some(raw) = raw {
                let (uid, node) = (raw::uid(&answer)?, number / pods_per_node);
                raw.created(SlottedPod { name, uid, node, gpu: number % pods_per_node });
            }
            Ok(())
        }
    })
    .await
}

/// Raw, if it is its turn, and its end.
fn start_raw(
    testbed: &Testbed,
    case: Case,
    count: usize,
) -> anyhow::Result<Option<(RawScheduler, RawOutcome)>> {
    if testbed.contender != Contender::Raw {
        return Ok(None);
    }
    let writes = match case {
        Case::Claims => PodWrites::TemplateClaim,
        Case::GpusByDevices => PodWrites::ExtendedClaim,
        _ => PodWrites::Binding,
    };
    RawScheduler::start(testbed, writes, count).map(Some)
}

/// How long creation took, and how long pods waited from their creation to their binding.
fn add_waits(
    testbed: &Testbed,
    began: Instant,
    created: &[Option<Instant>],
    measured: &mut Measured,
) -> anyhow::Result<()> {
    let last_create = created.iter().flatten().max().context("no pod was created")?;
    measured.add("first to last create", "s", (*last_create - began).as_secs_f64());
    let seen = testbed.observer.seen();
    let waited = |(number, created): (usize, &Option<Instant>)| {
        let bound = seen.pods.get(&format!("{SET}-{number}"))?.bound?;
        Some(bound.saturating_duration_since((*created)?).as_secs_f64())
    };
    let mut waits: Vec<f64> = created.iter().enumerate().filter_map(waited).collect();
    waits.sort_by(f64::total_cmp);
    for (what, percent) in [("a pod's wait, median", 50.0), ("a pod's wait, p99", 99.0)] {
        let value = percentile(&waits, percent).context("no pod is bound")?;
        measured.add(what, "s", value);
    }
    Ok(())
}

/// The cost of the case. Writes are counted by kind: contenders are equal only where these are.
pub(super) fn add_cost(cost: &Cost, (created, bound): (usize, usize), measured: &mut Measured) {
    let pods = float(bound.max(1));
    let writes = cost.writes_beyond(float(created)) / pods;
    measured.add("writes a pod beyond its creation", "writes", writes);
    for (what, count) in &cost.writes {
        if count / pods >= LEAST_WRITES && what != "POST pods" {
            measured.add(format!("writes a pod: {what}"), "writes", count / pods);
        }
    }
    measured.add("processor time of the API server", "s", cost.apiserver_cpu);
    measured.add("most memory of the API server", "MiB", cost.apiserver_memory);
    if let (Some(cpu), Some(memory)) = (cost.scheduler_cpu, cost.scheduler_memory) {
        measured.add("processor time of the scheduler", "s", cpu);
        measured.add("most memory of the scheduler", "MiB", memory);
    }
}
