//! A full cluster with thousands of waiting pods, while other pods end one after another.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use octavo_figure::Goal;

use super::create_to_bound::Arrivals;
use super::fill::run_on_nodes;
use super::restart::first_binding;
use super::scaled;
use crate::scheduler::api::Kind;
use crate::scheduler::cost;
use crate::scheduler::objects::{self, GPUS, PodRequest, TopologyRequest};
use crate::scheduler::observer::set_of;
use crate::scheduler::results::Measured;
use crate::scheduler::testbed::Testbed;
use crate::scheduler::validate::{self, Expected};
use crate::scheduler::workers;

/// Waiting pods of one, two, four and eight GPUs.
const WAITING: usize = 10_000;
/// Waiting gangs, for Octavo alone.
const GANGS: usize = 50;
/// Pods of a gang; each requests a whole node.
const GANG_SIZE: usize = 16;
/// How long pods end, and how many in a second.
const BUSY: Duration = Duration::from_mins(1);
const ENDS_PER_SECOND: usize = 10;
/// Every so many ends a pod is created that fits, and one that does not.
const ENDS_PER_FITTING_POD: usize = 5;
const ENDS_PER_LATE_POD: usize = 50;
const ENDS: usize = 60 * ENDS_PER_SECOND;
/// Timeout of each step. A writer of conditions takes minutes for all.
const STEP_TIMEOUT: Duration = Duration::from_mins(15);

/// Waiting pods at this scale.
pub(super) fn waiting(scale: f64) -> usize {
    scaled(WAITING, scale)
}

pub(super) async fn run(
    testbed: &Testbed,
    scale: f64,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    let fill = testbed.world.nodes * GPUS;
    let (contender, nodes) = (testbed.contender, testbed.world.nodes);
    for (set, count, request) in
        [("fill", fill, PodRequest::Gpus(1)), ("side", ENDS, PodRequest::Plain)]
    {
        let pod =
            move |name: &str, number| (objects::pod(name, request, contender), number % nodes);
        run_on_nodes(testbed, set, count, pod).await?;
    }
    testbed.start().await?;
    let waiting = waiting(scale);
    create_backlog(testbed, waiting, scaled(GANGS, scale)).await?;
    let what = "first Unschedulable of a new pod, while those of the backlog are written";
    let took = first_reason(testbed, "early-0").await?;
    measured.add_with_goal(what, "s", Goal::Below(1.0), took);
    let all_have_reasons = |count: usize| {
        move |seen: &crate::scheduler::observer::ObservedState| {
            let with = seen.of("wait").filter(|pod| pod.waiting.is_some()).count();
            (with >= count).then_some(())
        }
    };
    let what = "every waiting pod has a reason";
    testbed.observer.until(what, STEP_TIMEOUT, all_have_reasons(waiting)).await?;
    testbed.quiet().await?;
    busy(testbed, measured).await?;
    let restarted = first_binding(testbed, "after", 0, PodRequest::Plain, STEP_TIMEOUT).await?;
    let what = "killed and started under the backlog: start to the first binding";
    measured.add_with_goal(what, "s", Goal::Below(5.0), restarted);
    let fitting = ENDS / ENDS_PER_FITTING_POD;
    let bound = [("fill", fill), ("fit", fitting), ("after", 1)];
    let bound = bound.map(|(set, count)| (set.to_owned(), count..=count));
    let expected = Expected { bound: bound.into(), gangs: BTreeMap::new() };
    validate::check(&testbed.api, testbed.contender, testbed.world.gpus, &expected).await
}

/// Creates the pods and gangs that wait.
async fn create_backlog(testbed: &Testbed, pods: usize, gangs: usize) -> anyhow::Result<()> {
    let gangs = if testbed.contender.is_octavo() { gangs } else { 0 };
    for gang in 0..gangs {
        let group = objects::group(&format!("gang{gang}"), GANG_SIZE, TopologyRequest::Anywhere);
        testbed.api.create(Kind::Groups, &group).await?;
    }
    let (api, contender) = (testbed.api.clone(), testbed.contender);
    workers::in_parallel(gangs * GANG_SIZE + pods, move |number| {
        let api = api.clone();
        async move {
            let pod = match number.checked_sub(gangs * GANG_SIZE) {
                None => {
                    let (gang, member) = (number / GANG_SIZE, number % GANG_SIZE);
                    let name = format!("gang{gang}-{member}");
                    let pod = objects::pod(&name, PodRequest::Gpus(GPUS), contender);
                    objects::member(pod, &format!("gang{gang}"))
                }
                Some(number) => {
                    let request = PodRequest::Gpus(1 << (number % 4));
                    objects::pod(&format!("wait-{number}"), request, contender)
                }
            };
            api.create(Kind::Pods, &pod).await.map(drop)
        }
    })
    .await
}

/// Seconds from the creation of a pod that does not fit to its first condition.
async fn first_reason(testbed: &Testbed, name: &str) -> anyhow::Result<f64> {
    let began = Instant::now();
    let pod = objects::pod(name, PodRequest::Gpus(3), testbed.contender);
    testbed.api.create(Kind::Pods, &pod).await?;
    let what = format!("why {name} waits");
    let at = testbed
        .observer
        .until(&what, STEP_TIMEOUT, |seen| Some(seen.pods.get(name)?.waiting.as_ref()?.at))
        .await?;
    Ok((at - began).as_secs_f64())
}

/// Pods end, others that fit are created, and some that do not.
async fn busy(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<()> {
    let before = cost::begin(testbed).await?;
    let began = Instant::now();
    let mut fitting = Arrivals::new("fit", PodRequest::Plain);
    for end in 0..ENDS {
        let due = BUSY * u32::try_from(end)? / u32::try_from(ENDS)?;
        tokio::time::sleep(due.saturating_sub(began.elapsed())).await;
        testbed.api.delete(Kind::Pods, &format!("side-{end}")).await?;
        if end % ENDS_PER_FITTING_POD == 0 {
            fitting.create(testbed).await?;
        }
        if end % ENDS_PER_LATE_POD == 0 {
            let took = first_reason(testbed, &format!("late-{}", end / ENDS_PER_LATE_POD)).await?;
            let what = "first Unschedulable of a new pod, while pods end";
            measured.add_with_goal(what, "s", Goal::Below(1.0), took);
        }
    }
    fitting.all_bound(testbed, STEP_TIMEOUT).await?;
    let took = began.elapsed().as_secs_f64();
    let used = before.end(testbed).await?;
    let rewritten = {
        let seen = testbed.observer.seen();
        let is_rewritten = |(name, at): (&String, Instant)| set_of(name) == "wait" && at > began;
        let reasons = seen.pods.iter();
        let reasons = reasons.filter_map(|(name, pod)| Some((name, pod.waiting.as_ref()?.at)));
        reasons.filter(|reason| is_rewritten(*reason)).count()
    };
    let goals = [Goal::Below(10.0), Goal::Below(50.0)];
    fitting.add(testbed, "a pod that fits, while pods end", goals, measured)?;
    if let Some(seconds) = used.scheduler_cpu {
        let what = "processor time of the whole scheduler, while pods end";
        measured.add(what, "% of a core", seconds * 100.0 / took);
    }
    let what = "waiting pods whose condition was written again, while pods end";
    measured.add(what, "pods", f64::from(u32::try_from(rewritten)?));
    Ok(())
}
