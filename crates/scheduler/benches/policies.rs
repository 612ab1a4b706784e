//! What a decision costs under policies that look at more than the node: 500 nodes with eight GPUs
//! each and 4,000 running pods of 50 tenants, 10,000 waiting pods of 20 kinds.
//!
//! `cargo bench -p octavo-scheduler --bench policies` prints, for each policy, the time of the deciding
//! thread from the event about a new pod until nothing is ready. Some new pods find a free GPU, the
//! others are refused. No two of them are equal, so each is a decision of its own.
#![expect(clippy::print_stdout, reason = "the benchmark prints its results")]
#![expect(clippy::expect_used, clippy::panic, reason = "the inputs are constants of this file")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use octavo_kube_io::objects::{Change, Delta, WatchedObject};
use octavo_scheduler::bind::{ClaimVersions, OpResult};
use octavo_scheduler::state::{Scheduler, SchedulerConfig};
use serde_json::{Value, json};

use cluster::{GPUS, binding, event, gang, member, node, placed, pod};

mod cluster;

const NODES: usize = 500;
/// Nodes beside these, on which new pods find GPUs.
const FREE_NODES: usize = 100;
const WAITING_PODS: usize = 10_000;
const TENANTS: usize = 50;
/// New pods of each kind and policy.
const DECISIONS: usize = 50;
/// Pods of a new gang.
const GANG_SIZE: usize = 4;

/// Policies: the one with nothing to sum, the default, and two that look at the whole cluster.
const TERMS: [&str; 4] = ["podsDisturbed", "packingPrice", "fairnessDeficit", "gpuMilliStranded"];

fn policy(term: &str) -> Change {
    let policy = json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "PlacementPolicy",
        "metadata": {"name": term.to_lowercase(), "uid": term, "generation": 1},
        "spec": {"order": [{"unit": term}]},
    });
    let policy = Arc::new(WatchedObject::from_value(policy).expect("a policy"));
    Change::Object(Delta::Upsert(policy))
}

fn of_tenant(mut pod: Value, number: usize) -> Value {
    pod["metadata"]["namespace"] = json!(format!("team-{}", number % TENANTS));
    pod
}

fn world() -> Scheduler {
    let mut scheduler = Scheduler::new(SchedulerConfig::default());
    for term in TERMS {
        scheduler.apply(&policy(term));
    }
    (0..NODES + FREE_NODES).for_each(|number| scheduler.apply(&node(number)));
    for number in 0..NODES * GPUS {
        let pod = of_tenant(pod(&format!("gpu-{number}"), 1, 1), number);
        let node = format!("n{:04}", number / GPUS);
        scheduler.apply(&event(placed(pod, &node, "Running")));
    }
    // More than the free nodes have, so all of them wait.
    for number in 0..WAITING_PODS {
        let kind = number % 20;
        let pod =
            of_tenant(pod(&format!("wait-{number}"), 100 + kind, [1, 2, 4, 8][kind % 4]), kind);
        scheduler.apply(&event(pod));
    }
    scheduler
}

/// Runs until nothing is ready. Returns the time that the thread was busy, and the bound pods.
fn settle(scheduler: &mut Scheduler, now: u64, pods: &[Value]) -> (Duration, usize) {
    let (mut busy, mut bound) = (Duration::ZERO, 0);
    loop {
        let begin = Instant::now();
        scheduler.tick(now);
        let has_more = scheduler.decide();
        scheduler.take_reports();
        scheduler.take_metric_events();
        let ops = scheduler.take_ops();
        busy += begin.elapsed();
        if ops.is_empty() && !has_more {
            return (busy, bound);
        }
        for op in ops {
            let (uid, node) = binding(&op);
            let is_it = |pod: &&Value| pod["metadata"]["uid"] == *uid;
            let pod = pods.iter().find(is_it).expect("a new pod").clone();
            scheduler.complete_op(&OpResult { id: op.id, result: Ok(ClaimVersions::new()) });
            scheduler.apply(&event(placed(pod, node, "Running")));
            bound += 1;
        }
    }
}

/// Times of decisions on new entries of these pods.
fn decide(scheduler: &mut Scheduler, now: &mut u64, all: &[Vec<Value>]) -> (Vec<Duration>, usize) {
    let (mut times, mut bound) = (Vec::new(), 0);
    for pods in all {
        *now += 20;
        settle(scheduler, *now, pods);
        let changes: Vec<_> = pods.iter().cloned().map(event).collect();
        let begin = Instant::now();
        for change in &changes {
            scheduler.apply(change);
        }
        let applied = begin.elapsed();
        let (busy, new) = settle(scheduler, *now, pods);
        times.push(applied + busy);
        bound += new;
    }
    (times, bound)
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    println!("{what}: p50 {:.2?}, p99 {:.2?}", at(50), at(99));
}

fn main() {
    let mut scheduler = world();
    let mut now = 0;
    let (first, bound) = settle(&mut scheduler, now, &[]);
    println!("first decisions on {WAITING_PODS} waiting pods: {first:.2?}");
    assert_eq!(bound, 0, "none of them fits");
    for term in TERMS {
        let under = |mut pod: Value| {
            pod["metadata"]["annotations"]["octavo.dev/placement-policy"] =
                json!(term.to_lowercase());
            pod
        };
        let fits: Vec<_> = (0..DECISIONS)
            .map(|number| {
                let mut pod = of_tenant(pod(&format!("fits-{term}-{number}"), 1, 1), number);
                pod["spec"]["containers"][0]["resources"]["requests"]["memory"] =
                    json!(format!("{}Mi", 1 + number));
                vec![under(pod)]
            })
            .collect();
        let (times, bound) = decide(&mut scheduler, &mut now, &fits);
        assert_eq!(bound, DECISIONS, "each is bound");
        print(&format!("{term}: a pod that fits"), times);
        let refused: Vec<_> = (0..DECISIONS)
            .map(|number| {
                let pod = of_tenant(pod(&format!("late-{term}-{number}"), 65 + number, 1), number);
                vec![under(pod)]
            })
            .collect();
        let (times, bound) = decide(&mut scheduler, &mut now, &refused);
        assert_eq!(bound, 0, "none is bound");
        print(&format!("{term}: a pod that does not fit"), times);
        let gangs: Vec<Vec<_>> = (0..DECISIONS)
            .map(|number| {
                let name = format!("gang-{}-{number}", term.to_lowercase());
                let group = gang(&name, GANG_SIZE);
                scheduler.apply(&group);
                let pods = (0..GANG_SIZE).map(|rank| {
                    let pod = pod(&format!("{name}-{rank}"), 1, 1);
                    under(member(pod, &name))
                });
                pods.collect()
            })
            .collect();
        let (times, bound) = decide(&mut scheduler, &mut now, &gangs[..20]);
        assert_eq!(bound, 20 * GANG_SIZE, "each is bound");
        print(&format!("{term}: a gang of {GANG_SIZE} that fits"), times);
    }
}
