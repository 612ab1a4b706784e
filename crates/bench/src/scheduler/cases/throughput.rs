//! Many pods one by one: from the first create to the last binding.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::{ALL_BOUND, RATE, float};
use crate::figure::{Goal, percentile};
use crate::scheduler::Case;
use crate::scheduler::api::Kind;
use crate::scheduler::bed::Bed;
use crate::scheduler::contender::Contender;
use crate::scheduler::cost::{self, Cost};
use crate::scheduler::objects::{self, Ask, GPUS};
use crate::scheduler::results::Measured;
use crate::scheduler::validate::{self, Expected};
use crate::scheduler::{raw, tell, work};

/// Pods of the case.
const SET: &str = "pod";

/// How many pods there are on so many nodes.
pub(super) fn pods(case: Case, nodes: usize) -> usize {
    match case {
        Case::Pods => nodes * 5,
        _ => nodes * GPUS,
    }
}

/// Creates the pods and waits until all are bound, or for as long as anybody waits.
pub(super) async fn run(
    bed: &Bed,
    case: Case,
    patience: Duration,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    let count = pods(case, bed.world.nodes);
    bed.start().await?;
    let before = cost::begin(bed).await?;
    let created: Created = Arc::new(Mutex::new(vec![None; count]));
    let began = Instant::now();
    let creating = create(bed, case, count, &created);
    let binding = bind_templates(bed, case, count);
    // What waits below ends it.
    let bound = bed.observer.all_bound(SET, count, patience * 2);
    let all = async { tokio::try_join!(creating, binding, bound) };
    let outcome = tokio::time::timeout(patience, Box::pin(all)).await;
    let last = match outcome {
        Ok(done) => Some(done?.2),
        // As it stands at this moment; what writes is let go.
        Err(_) => None,
    };
    let bound = if last.is_some() { count } else { bed.observer.seen().bound(SET) };
    if last.is_some() {
        // Events are written a little later than what they tell of.
        bed.quiet().await?;
    }
    let cost = before.end(bed).await?;
    // A scheduler that is not done goes on while this looks: it binds after it has given devices, and pods
    // are read first.
    let expected =
        Expected { bound: [(SET.to_owned(), bound..=count)].into(), gangs: BTreeMap::new() };
    validate::check(&bed.api, bed.contender, bed.world.gpus, &expected).await?;

    let created = created.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(last) = last {
        let took = (last - began).as_secs_f64();
        measured.add(RATE, "pods/s", float(count) / took);
        measured.add(ALL_BOUND, "s", took);
        add_waits(bed, began, &created, measured)?;
    } else {
        measured.is_unfinished();
        measured.add(RATE, "pods/s", float(bound) / patience.as_secs_f64());
        let what = format!("bound within {} min", patience.as_secs_f64() / 60.0);
        measured.add_with_duty(what, "pods", Goal::Exactly(float(count)), float(bound));
    }
    add_cost(bed, &cost, (created.iter().flatten().count(), bound), measured);
    Ok(())
}

/// When each pod was created; none where it was not.
type Created = Arc<Mutex<Vec<Option<Instant>>>>;

/// Creates the pods; where nobody else binds them, binds them.
async fn create(bed: &Bed, case: Case, count: usize, created: &Created) -> anyhow::Result<()> {
    let ask = match case {
        Case::Pods => Ask::Plain,
        Case::Claims => Ask::Template,
        _ => Ask::Gpus(1),
    };
    let (api, contender, times) = (bed.api.clone(), bed.contender, Arc::clone(created));
    work::in_parallel(count, move |number| {
        let (api, times) = (api.clone(), Arc::clone(&times));
        async move {
            let name = format!("{SET}-{number}");
            let answer = api.create(Kind::Pods, &objects::pod(&name, ask, contender)).await?;
            if let Some(time) = times.lock().unwrap_or_else(PoisonError::into_inner).get_mut(number)
            {
                *time = Some(Instant::now());
            }
            match (contender, case) {
                (Contender::Raw, Case::Pods) => raw::bind(&api, &name, number / 5).await,
                (Contender::Raw, Case::Gpus) => raw::bind(&api, &name, number / GPUS).await,
                (Contender::Raw, Case::GpusByDevices) => {
                    let uid = raw::uid(&answer)?;
                    raw::bind_with_extended(&api, &name, &uid, number).await
                }
                // Bound by a scheduler, or when its claim is there.
                _ => Ok(()),
            }
        }
    })
    .await
}

/// Binds pods whose claims others make, as the claims come.
async fn bind_templates(bed: &Bed, case: Case, count: usize) -> anyhow::Result<()> {
    if bed.contender != Contender::Raw || case != Case::Claims {
        return Ok(());
    }
    let (api, observer) = (bed.api.clone(), Arc::clone(&bed.observer));
    work::in_parallel(count, move |number| {
        let (api, observer) = (api.clone(), Arc::clone(&observer));
        async move {
            let name = format!("{SET}-{number}");
            raw::bind_with_template(&api, &observer, &name, number).await
        }
    })
    .await
}

/// How long creation took, and how long pods waited from their creation to their binding.
fn add_waits(
    bed: &Bed,
    began: Instant,
    created: &[Option<Instant>],
    measured: &mut Measured,
) -> anyhow::Result<()> {
    let last_create = created.iter().flatten().max().context("no pod was created")?;
    measured.add("first to last create", "s", (*last_create - began).as_secs_f64());
    let seen = bed.observer.seen();
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

fn add_cost(bed: &Bed, cost: &Cost, (created, bound): (usize, usize), measured: &mut Measured) {
    let pods = float(bound.max(1));
    let writes = cost.writes_beyond(float(created)) / pods;
    measured.add("writes a pod beyond its creation", "writes", writes);
    measured.add("processor time of the API server", "s", cost.apiserver_cpu);
    measured.add("most memory of the API server", "MiB", cost.apiserver_memory);
    if let (Some(cpu), Some(memory)) = (cost.scheduler_cpu, cost.scheduler_memory) {
        measured.add("processor time of the scheduler", "s", cpu);
        measured.add("most memory of the scheduler", "MiB", memory);
    }
    let writes: Vec<String> = cost
        .writes
        .iter()
        .filter(|(_, count)| **count / pods >= 0.005)
        .map(|(what, count)| format!("{:.2} {what}", count / pods))
        .collect();
    tell(&format!("  {}: writes a pod: {}", bed.contender.name(), writes.join(", ")));
}
