//! Victims that take their time: 20 preemptors wait for pods with a grace period of five minutes, and one
//! for a pod that never ends.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use octavo_figure::Goal;
use serde_json::json;

use super::create_to_bound::Arrivals;
use super::fill::run_on_nodes;
use super::float;
use crate::scheduler::api::Kind;
use crate::scheduler::fake_controllers::{Endings, FakeControllers};
use crate::scheduler::objects::{self, GPUS, PodRequest};
use crate::scheduler::observer::{ObservedState, set_of};
use crate::scheduler::results::Measured;
use crate::scheduler::testbed::Testbed;
use crate::scheduler::validate::{self, Expected};

/// Preemptors, and the GPUs of each.
pub(super) const PREEMPTORS: usize = 20;
const GPUS_EACH: usize = 4;
/// Nodes with pods that are evicted for them, and two of the victim that never ends.
pub(super) const MIN_NODES: usize = PREEMPTORS * GPUS_EACH / GPUS + STUCK_NODES;
const STUCK_NODES: usize = 2;
/// Grace period of most pods in seconds, and how long they take to end.
const GRACE: u32 = 300;
const ENDS_AFTER: Duration = Duration::from_secs(20);
/// Plain pods that come meanwhile, in a second.
const ARRIVALS_PER_SECOND: u32 = 10;
/// Grace period of the victim that never ends, and when Octavo no longer waits for it. Octavo lends
/// what is kept until 90 seconds before that.
const STUCK_GRACE: u32 = 100;
const DEADLINE: Duration = Duration::from_secs(100 + 30);
/// Pods that borrow GPUs which are freed meanwhile. As many as are left wait: their grace period is
/// too long.
const BORROWERS: usize = 3;
const WAITING: usize = GPUS - 1 - BORROWERS;
const STEP_TIMEOUT: Duration = Duration::from_mins(2);

const FILL: &str = "fill";
const STUCK: &str = "stuck";

/// Fills the cluster, then measures both.
pub(super) async fn run(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<()> {
    let fill = (testbed.world.nodes - STUCK_NODES) * GPUS;
    let contender = testbed.contender;
    for (set, count, first, grace, priority) in [
        (FILL, fill, 0, GRACE, "bench-low"),
        (STUCK, STUCK_NODES * GPUS, fill / GPUS, STUCK_GRACE, "bench-mid"),
    ] {
        let pod = move |name: &str, number: usize| {
            let mut pod = objects::pod(name, PodRequest::Gpus(1), contender);
            pod["spec"]["terminationGracePeriodSeconds"] = grace.into();
            pod["spec"]["priorityClassName"] = priority.into();
            (pod, first + number / GPUS)
        };
        run_on_nodes(testbed, set, count, pod).await?;
    }
    testbed.start().await?;
    let endings = Endings { after: ENDS_AFTER, stuck: Some(STUCK) };
    let controllers = FakeControllers::start(&testbed.api, &testbed.observer, endings, None);
    let arrivals = slow_victims(testbed, measured).await?;
    let mut bound = vec![("top", PREEMPTORS), ("fit", arrivals)];
    if contender.is_octavo() {
        never_ending_victim(testbed, measured).await?;
        // One node for the preemptor; the victim that never ends, and its neighbours' successors.
        bound.extend([(STUCK, 1), ("big", 1), ("lent", BORROWERS), ("wait", WAITING)]);
    }
    drop(controllers);
    let bound = bound.into_iter().map(|(set, count)| (set.to_owned(), count..=count));
    let mut expected = Expected { bound: bound.collect(), gangs: BTreeMap::new() };
    // Whether more pods were evicted than necessary is a figure.
    expected.bound.insert(FILL.to_owned(), 0..=fill - PREEMPTORS * GPUS_EACH);
    validate::check(&testbed.api, contender, testbed.world.gpus, &expected).await
}

/// Preemptors at once, and pods that fit while victims leave; the number of these.
async fn slow_victims(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<usize> {
    for number in 0..PREEMPTORS {
        let name = format!("top-{number}");
        let mut pod = objects::pod(&name, PodRequest::Gpus(GPUS_EACH), testbed.contender);
        pod["spec"]["priorityClassName"] = "bench-mid".into();
        testbed.api.create(Kind::Pods, &pod).await?;
    }
    let last_create = Instant::now();
    let mut arrivals = Arrivals::new("fit", PodRequest::Plain);
    let gap = Duration::from_secs(1) / ARRIVALS_PER_SECOND;
    while last_create.elapsed() < ENDS_AFTER {
        arrivals.create(testbed).await?;
        tokio::time::sleep(gap).await;
    }
    let last_bound = testbed.observer.all_bound("top", PREEMPTORS, STEP_TIMEOUT).await?;
    arrivals.all_bound(testbed, STEP_TIMEOUT).await?;
    let (asked, gone) = {
        let seen = testbed.observer.seen();
        let of_fill = |list: &[(String, Instant)]| -> Vec<Instant> {
            list.iter().filter(|(name, _)| set_of(name) == FILL).map(|(_, at)| *at).collect()
        };
        (of_fill(&seen.ending), of_fill(&seen.gone))
    };
    let last_asked = asked.iter().max().context("no pod was evicted")?;
    let what = "last create to the last victim's eviction";
    measured.add(what, "s", last_asked.saturating_duration_since(last_create).as_secs_f64());
    let last_gone = gone.iter().max().context("no victim ended")?;
    let what = "last victim's end to the last preemptor bound";
    let took = last_bound.saturating_duration_since(*last_gone).as_secs_f64();
    measured.add_with_goal(what, "s", Goal::Below(1.0), took);
    let needed = float(PREEMPTORS * GPUS_EACH);
    measured.add_with_goal("pods evicted", "pods", Goal::Exactly(needed), float(asked.len()));
    let goals = [Goal::None; 2];
    arrivals.add(testbed, "a pod that fits, while victims leave", goals, measured)?;
    testbed.quiet().await?;
    Ok(arrivals.count())
}

/// A pod that needs a whole node, whose victims all end but one. Others wait for single GPUs.
async fn never_ending_victim(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<()> {
    let nodes = (testbed.world.nodes - STUCK_NODES)..testbed.world.nodes;
    let mut big = objects::pod("big-0", PodRequest::Gpus(GPUS), testbed.contender);
    big["spec"]["priorityClassName"] = "bench-high".into();
    let name = json!({
        "key": "kubernetes.io/hostname", "operator": "In",
        "values": nodes.map(objects::node_name).collect::<Vec<_>>(),
    });
    big["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": [{"matchExpressions": [name]}]});
    testbed.api.create(Kind::Pods, &big).await?;
    let evicted = |seen: &ObservedState| {
        let mut of_set = seen.ending.iter().filter(|(name, _)| set_of(name) == STUCK);
        of_set.next().map(|(_, at)| *at)
    };
    let asked = testbed.observer.until("the victims are evicted", STEP_TIMEOUT, evicted).await?;
    let created = Instant::now();
    for (set, count, grace) in [("lent", BORROWERS, 30), ("wait", WAITING, GRACE)] {
        for number in 0..count {
            let name = format!("{set}-{number}");
            let mut pod = objects::pod(&name, PodRequest::Gpus(1), testbed.contender);
            pod["spec"]["terminationGracePeriodSeconds"] = grace.into();
            testbed.api.create(Kind::Pods, &pod).await?;
        }
    }
    let first_lent = |seen: &ObservedState| seen.of("lent").filter_map(|pod| pod.bound).min();
    let lent = testbed.observer.until("a freed GPU is lent", STEP_TIMEOUT, first_lent).await?;
    let freed = {
        let seen = testbed.observer.seen();
        let of_set = seen.gone.iter().filter(|(name, _)| set_of(name) == STUCK);
        of_set.map(|(_, at)| *at).min().context("no victim ended")?
    };
    let what = "a victim that never ends: the first GPU freed beside it to its use by another pod";
    let took = lent.saturating_duration_since(freed.max(created)).as_secs_f64();
    measured.add_with_goal(what, "s", Goal::Below(1.0), took);
    // They wait until the deadline: the first loan may come long before it.
    let last = testbed.observer.all_bound("wait", WAITING, DEADLINE + STEP_TIMEOUT).await?;
    testbed.observer.all_bound("big", 1, STEP_TIMEOUT).await?;
    let what = "a victim that never ends: its deadline to the others' GPUs used again";
    let deadline = asked + DEADLINE;
    let late = last.saturating_duration_since(deadline).as_secs_f64()
        - deadline.saturating_duration_since(last).as_secs_f64();
    measured.add_with_goal(what, "s", Goal::Below(1.0), late);
    Ok(())
}
