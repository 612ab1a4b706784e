//! One large gang: from its last create to all of it bound.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use octavo_figure::Goal;

use crate::scheduler::api::Kind;
use crate::scheduler::contender::Contender;
use crate::scheduler::cost;
use crate::scheduler::objects::{self, GPUS, LEVELS, PodRequest, TopologyRequest};
use crate::scheduler::results::{Compared, Measured};
use crate::scheduler::testbed::Testbed;
use crate::scheduler::validate::{self, Expected};
use crate::scheduler::{baseline, workers};

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
        if testbed.contender == Contender::Octavo {
            testbed.api.create(Kind::Groups, &objects::group(gang, pods, topology)).await?;
        }
        let last_create = create(testbed, gang, pods).await?;
        if testbed.contender == Contender::Raw {
            // The second gang follows the first.
            bind(testbed, gang, pods, turn * (pods * GPUS_EACH).div_ceil(GPUS)).await?;
        }
        let bound = testbed.observer.all_bound(gang, pods, GANG_TIMEOUT).await?;
        let took = bound.saturating_duration_since(last_create).as_secs_f64();
        measured.add_with_goal(what, "s", Goal::Below(2.0), took);
        expected.bound.insert(gang.to_owned(), pods..=pods);
        expected.gangs.insert(gang.to_owned(), topology);
        testbed.quiet().await?;
        let cost = before.end(testbed).await?;
        // The user creates the gang's object, like its pods.
        let by_user = super::float(pods + usize::from(testbed.contender == Contender::Octavo));
        let writes = (cost.writes.values().sum::<f64>() - by_user) / super::float(pods);
        measured.add("writes a pod beyond its creation", "writes", writes);
        if let Some(cpu) = cost.scheduler_cpu {
            measured.add("processor time of the scheduler", "s", cpu);
        }
    }
    validate::check(&testbed.api, testbed.contender, testbed.world.gpus, &expected).await
}

/// Creates the pods; when the last of them was.
async fn create(testbed: &Testbed, gang: &'static str, pods: usize) -> anyhow::Result<Instant> {
    let (api, contender) = (testbed.api.clone(), testbed.contender);
    workers::in_parallel(pods, move |number| {
        let api = api.clone();
        async move {
            let pod =
                objects::pod(&format!("{gang}-{number}"), PodRequest::Gpus(GPUS_EACH), contender);
            api.create(Kind::Pods, &objects::member(pod, gang)).await.map(drop)
        }
    })
    .await?;
    Ok(Instant::now())
}

async fn bind(
    testbed: &Testbed,
    gang: &'static str,
    pods: usize,
    first: usize,
) -> anyhow::Result<()> {
    let api = testbed.api.clone();
    workers::in_parallel(pods, move |number| {
        let api = api.clone();
        async move {
            let node = first + number * GPUS_EACH / GPUS;
            baseline::bind(&api, &format!("{gang}-{number}"), node).await
        }
    })
    .await
}
