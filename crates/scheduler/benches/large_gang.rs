//! How long a gang of 5,000 pods keeps the decision thread busy, from its first pod to its last
//! binding, on 1,000 nodes with eight GPUs each.
//!
//! `cargo bench -p octavo-scheduler --bench large_gang` prints the time of each phase, in five turns.
//! Events and results arrive in batches, as in the event loop.
#![expect(clippy::print_stdout, reason = "the benchmark prints its results")]
#![expect(clippy::expect_used, clippy::panic, reason = "the inputs are constants of this file")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use octavo_kube_io::objects::{Change, Delta, Node, Pod, WatchedObject};
use octavo_scheduler::bind::{OpKind, OpResult, WriteOp};
use octavo_scheduler::state::{Scheduler, SchedulerConfig};
use serde_json::{Value, json};

const NODES: usize = 1000;
const MEMBERS: usize = 5000;
const TURNS: usize = 5;
/// Events of one batch.
const BATCH: usize = 500;

fn apply_node(scheduler: &mut Scheduler, number: usize) {
    let name = format!("n{number:04}");
    let amounts = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"});
    let node = json!({
        "metadata": {"name": name, "uid": name, "labels": {
            "kubernetes.io/hostname": name, "octavo.dev/scheduler": "octavo",
            "topology.octavo.dev/rack": format!("r{}", number / 8)}},
        "status": {"allocatable": amounts, "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}]},
    });
    let node = Arc::new(Node::from_value(node).expect("a node"));
    scheduler.apply(&Change::Node(Delta::Upsert(node)));
}

fn pod(number: usize) -> Value {
    json!({
        "metadata": {"name": format!("m{number}"), "namespace": "team", "uid": format!("uid-{number}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"octavo.dev/pod-group": "g"}},
        "spec": {"schedulerName": "octavo", "containers": [{"name": "main",
            "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "1"}}}]},
        "status": {"phase": "Pending"},
    })
}

/// A pod as the watch delivers it. Reading it is no part of the deciding thread.
fn event(pod: Value) -> Change {
    Change::Pod(Delta::Upsert(Arc::new(Pod::from_value(pod).expect("a pod"))))
}

/// One cycle of the event loop. Returns the operations.
fn cycle(scheduler: &mut Scheduler, now: &mut u64) -> Vec<WriteOp> {
    *now += 1;
    scheduler.tick(*now);
    scheduler.decide();
    scheduler.take_reports();
    scheduler.take_metric_events();
    scheduler.take_ops()
}

fn turn() -> [Duration; 3] {
    let config = SchedulerConfig { in_flight: MEMBERS, ..SchedulerConfig::default() };
    let (mut scheduler, mut now) = (Scheduler::new(config), 0);
    (0..NODES).for_each(|number| apply_node(&mut scheduler, number));
    let group = json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "team", "uid": "uid-g", "generation": 1},
        "spec": {"minMember": MEMBERS},
    });
    let group = Arc::new(WatchedObject::from_value(group).expect("a group"));
    scheduler.apply(&Change::Object(Delta::Upsert(group)));
    cycle(&mut scheduler, &mut now);

    let pods: Vec<Value> = (0..MEMBERS).map(pod).collect();
    let events: Vec<Change> = pods.iter().cloned().map(event).collect();
    let mut ops = Vec::new();
    let begin = Instant::now();
    for batch in events.chunks(BATCH) {
        for event in batch {
            scheduler.apply(event);
        }
        ops.extend(cycle(&mut scheduler, &mut now));
    }
    let created = begin.elapsed();
    while ops.is_empty() {
        ops.extend(cycle(&mut scheduler, &mut now));
    }
    assert_eq!(ops.len(), MEMBERS, "the whole gang is bound");
    let placed = |op: &WriteOp, phase: &str| {
        let OpKind::Bind(bind) = &op.kind else { panic!("a binding") };
        let number: usize = bind.pod.name.name[1..].parse().expect("a number");
        let mut pod = pods[number].clone();
        pod["spec"]["nodeName"] = json!(&*bind.node);
        pod["status"]["phase"] = json!(phase);
        event(pod)
    };
    let of_phase = |phase| -> Vec<_> { ops.iter().map(|op| (op.id, placed(op, phase))).collect() };
    let (bindings, ends) = (of_phase("Pending"), of_phase("Succeeded"));
    let begin = Instant::now();
    for batch in bindings.chunks(BATCH) {
        for (id, event) in batch {
            scheduler.apply(event);
            scheduler.complete_op(&OpResult { id: *id, result: Ok(()) });
        }
        cycle(&mut scheduler, &mut now);
    }
    let bound = begin.elapsed();
    let begin = Instant::now();
    for batch in ends.chunks(BATCH) {
        for (_, event) in batch {
            scheduler.apply(event);
        }
        cycle(&mut scheduler, &mut now);
    }
    [created, bound, begin.elapsed()]
}

fn main() {
    let mut turns: Vec<[Duration; 3]> = (0..TURNS).map(|_| turn()).collect();
    for (phase, name) in ["created and decided", "bound", "ended"].into_iter().enumerate() {
        turns.sort_by_key(|turn| turn[phase]);
        let all: Vec<_> = turns.iter().map(|turn| turn[phase]).collect();
        println!(
            "{MEMBERS} members, {name}: median {:.2?}, {:.2?} to {:.2?}",
            all[TURNS / 2],
            all[0],
            all[TURNS - 1]
        );
    }
}
