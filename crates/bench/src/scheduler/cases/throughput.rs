//! Many pods one by one: from the first create to the last binding.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::{ALL_BOUND, float};
use crate::figure::percentile;
use crate::scheduler::Case;
use crate::scheduler::api::Kind;
use crate::scheduler::bed::Bed;
use crate::scheduler::contender::Contender;
use crate::scheduler::cost::{self, Cost};
use crate::scheduler::objects::{self, Ask, GPUS};
use crate::scheduler::results::Measured;
use crate::scheduler::validate::{self, Expected};
use crate::scheduler::{raw, tell, work};

/// How long all pods may take.
const PATIENCE: Duration = Duration::from_mins(15);
/// Pods of the case.
const SET: &str = "pod";

/// How many pods there are on so many nodes.
pub(super) fn pods(case: Case, nodes: usize) -> usize {
    match case {
        Case::Pods => nodes * 5,
        _ => nodes * GPUS,
    }
}

/// Creates the pods and waits until all are bound.
pub(super) async fn run(bed: &Bed, case: Case, measured: &mut Measured) -> anyhow::Result<()> {
    let count = pods(case, bed.world.nodes);
    let ask = match case {
        Case::Pods => Ask::Plain,
        Case::Claims => Ask::Template,
        _ => Ask::Gpus(1),
    };
    bed.start().await?;
    let before = cost::begin(bed).await?;
    let began = Instant::now();
    let creating = create(bed, case, ask, count);
    let binding = bind_templates(bed, case, count);
    let bound = bed.observer.all_bound(SET, count, PATIENCE);
    let (created, (), last) = tokio::try_join!(creating, binding, bound)?;
    // Events are written a little later than what they tell of.
    bed.quiet().await?;
    let cost = before.end(bed).await?;
    let expected = Expected {
        bound: [(SET.to_owned(), count)].into(),
        gangs: std::collections::BTreeMap::new(),
    };
    validate::check(&bed.api, bed.contender, bed.world.gpus, &expected).await?;

    measured.add(ALL_BOUND, "s", (last - began).as_secs_f64());
    let last_create = created.iter().max().context("no pod was created")?;
    measured.add("first to last create", "s", (*last_create - began).as_secs_f64());
    let mut latencies = latencies(bed, &created);
    latencies.sort_by(f64::total_cmp);
    for (what, percent) in [("a pod's wait, median", 50.0), ("a pod's wait, p99", 99.0)] {
        let value = percentile(&latencies, percent).context("no pod is bound")?;
        measured.add(what, "s", value);
    }
    add_cost(bed, &cost, count, measured);
    Ok(())
}

/// Creates the pods; where nobody else binds them, binds them. When each was created.
async fn create(bed: &Bed, case: Case, ask: Ask, count: usize) -> anyhow::Result<Vec<Instant>> {
    let created = Arc::new(Mutex::new(vec![Instant::now(); count]));
    let (api, contender, times) = (bed.api.clone(), bed.contender, Arc::clone(&created));
    work::in_parallel(count, move |number| {
        let (api, times) = (api.clone(), Arc::clone(&times));
        async move {
            let name = format!("{SET}-{number}");
            let answer = api.create(Kind::Pods, &objects::pod(&name, ask, contender)).await?;
            if let Some(time) = times.lock().unwrap_or_else(PoisonError::into_inner).get_mut(number)
            {
                *time = Instant::now();
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
    .await?;
    Ok(created.lock().unwrap_or_else(PoisonError::into_inner).clone())
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

/// How long each pod waited from its creation to its binding, in seconds.
fn latencies(bed: &Bed, created: &[Instant]) -> Vec<f64> {
    let seen = bed.observer.seen();
    let waited = |(number, created): (usize, &Instant)| {
        let bound = seen.pods.get(&format!("{SET}-{number}"))?.bound?;
        Some(bound.saturating_duration_since(*created).as_secs_f64())
    };
    created.iter().enumerate().filter_map(waited).collect()
}

fn add_cost(bed: &Bed, cost: &Cost, count: usize, measured: &mut Measured) {
    let pods = float(count);
    measured.add("writes a pod beyond its creation", "writes", cost.writes_per_pod(pods));
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
