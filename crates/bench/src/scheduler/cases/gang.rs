//! One large gang: from its last create to all of it bound.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use octavo_figure::Goal;

use crate::scheduler::api::Kind;
use crate::scheduler::contender::Contender;
use crate::scheduler::cost;
use crate::scheduler::objects::{self, GPUS, LEVELS, PodRequest, TopologyRequest};
use crate::scheduler::raw::{self, PodWrites, RawScheduler, SlottedPod};
use crate::scheduler::results::{Compared, Measured};
use crate::scheduler::testbed::Testbed;
use crate::scheduler::validate::{self, Expected};
use crate::scheduler::workers;

/// Pods of the gang, and the GPUs of each.
pub(super) const PODS: usize = 512;
const GPUS_EACH: usize = 2;
/// How long a gang may take.
const GANG_TIMEOUT: Duration = Duration::from_mins(5);

const REQUIRED: &str = "last create to all bound, one block required";
const PREFERRED: &str = "last create to all bound, one rack preferred";

/// Raw's time is that of the bindings alone: all else was there before.
pub(super) const COMPARED: [Compared; 2] = [
    Compared::Time { what: REQUIRED, most_of_raw: 1.5 },
    Compared::Time { what: PREFERRED, most_of_raw: 1.5 },
];

/// A gang that requires one block, then a gang that prefers one rack, which is too small for it.
pub(super) async fn run(
    testbed: &Testbed,
    pods: usize,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    testbed.start().await?;
    let [(block, _), (rack, _)] = LEVELS;
    let gangs = [
        ("required", TopologyRequest::Required(block), REQUIRED),
        ("preferred", TopologyRequest::Preferred(rack), PREFERRED),
    ];
    let mut expected = Expected { bound: BTreeMap::new(), gangs: BTreeMap::new() };
    for (turn, (gang, topology, what)) in gangs.into_iter().enumerate() {
        let before = cost::begin(testbed).await?;
        if testbed.contender.is_octavo() {
            testbed.api.create(Kind::Groups, &objects::group(gang, pods, topology)).await?;
        }
        // The second gang follows the first.
        let first = turn * (pods * GPUS_EACH).div_ceil(GPUS);
        let (slots, last_create) = create(testbed, gang, pods, first).await?;
        if testbed.contender == Contender::Raw {
            bind(testbed, slots).await?;
        }
        let bound = testbed.observer.all_bound(gang, pods, GANG_TIMEOUT).await?;
        let took = bound.saturating_duration_since(last_create).as_secs_f64();
        measured.add_with_goal(what, "s", Goal::Below(2.0), took);
        expected.bound.insert(gang.to_owned(), pods..=pods);
        expected.gangs.insert(gang.to_owned(), topology);
        testbed.quiet().await?;
        let cost = before.end(testbed).await?;
        // The user creates the gang's object, like its pods.
        let by_user = super::float(pods + usize::from(testbed.contender.is_octavo()));
        let writes = (cost.writes.values().sum::<f64>() - by_user) / super::float(pods);
        measured.add("writes a pod beyond its creation", "writes", writes);
        if let Some(cpu) = cost.scheduler_cpu {
            measured.add("processor time of the scheduler", "s", cpu);
        }
    }
    validate::check(&testbed.api, testbed.contender, testbed.world.gpus, &expected).await
}

/// Creates the pods. Returns them with raw's slots, of which the first is on node `first`, and the time of
/// the last create.
async fn create(
    testbed: &Testbed,
    gang: &'static str,
    pods: usize,
    first: usize,
) -> anyhow::Result<(Vec<SlottedPod>, Instant)> {
    let (api, contender) = (testbed.api.clone(), testbed.contender);
    let created = Arc::new(Mutex::new(Vec::new()));
    let slots = Arc::clone(&created);
    workers::in_parallel(pods, move |number| {
        let (api, slots) = (api.clone(), Arc::clone(&slots));
        async move {
            let name = format!("{gang}-{number}");
            let pod = objects::pod(&name, PodRequest::Gpus(GPUS_EACH), contender);
            let answer = api.create(Kind::Pods, &objects::member(pod, gang)).await?;
            let (uid, node) = (raw::uid(&answer)?, first + number * GPUS_EACH / GPUS);
            let slot = SlottedPod { name, uid, node, gpu: 0 };
            slots.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
            Ok(())
        }
    })
    .await?;
    let last_create = Instant::now();
    let slots = std::mem::take(&mut *created.lock().unwrap_or_else(PoisonError::into_inner));
    Ok((slots, last_create))
}

/// Binds the pods, all of which exist.
async fn bind(testbed: &Testbed, pods: Vec<SlottedPod>) -> anyhow::Result<()> {
    let (scheduler, outcome) = RawScheduler::start(testbed, PodWrites::Binding, pods.len())?;
    let sender = scheduler.sender();
    for pod in pods {
        sender.created(pod);
    }
    let bound = outcome.await?;
    // Its events are written until the API server is quiet.
    testbed.quiet().await?;
    drop(scheduler);
    bound
}
