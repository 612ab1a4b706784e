//! How long a gang of 5,000 pods keeps the decision thread busy, from its first pod to its last
//! binding, on 1,000 nodes with eight GPUs each.
//!
//! `cargo bench -p octavo-scheduler --bench large_gang` prints the time of each phase, in five turns.
//! Events and results arrive in batches, as in the event loop.
#![expect(clippy::print_stdout, reason = "the benchmark prints its results")]
#![expect(clippy::expect_used, clippy::panic, reason = "the inputs are constants of this file")]

use std::time::{Duration, Instant};

use octavo_kube_io::objects::Change;
use octavo_scheduler::bind::{ClaimVersions, OpResult, WriteOp};
use octavo_scheduler::state::{Scheduler, SchedulerConfig};
use serde_json::Value;

use cluster::{binding, event, gang, member, node, placed, pod};

mod cluster;

const NODES: usize = 1000;
const MEMBERS: usize = 5000;
const TURNS: usize = 5;
/// Events of one batch.
const BATCH: usize = 500;

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
    (0..NODES).for_each(|number| scheduler.apply(&node(number)));
    scheduler.apply(&gang("g", MEMBERS));
    cycle(&mut scheduler, &mut now);

    let pods: Vec<Value> =
        (0..MEMBERS).map(|number| member(pod(&format!("m{number}"), 1, 1), "g")).collect();
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
    let in_phase = |op: &WriteOp, phase: &str| {
        let (uid, node) = binding(op);
        let number: usize = uid[1..].parse().expect("a number");
        event(placed(pods[number].clone(), node, phase))
    };
    let of_phase =
        |phase| -> Vec<_> { ops.iter().map(|op| (op.id, in_phase(op, phase))).collect() };
    let (bindings, ends) = (of_phase("Pending"), of_phase("Succeeded"));
    let begin = Instant::now();
    for batch in bindings.chunks(BATCH) {
        for (id, event) in batch {
            scheduler.apply(event);
            scheduler.complete_op(&OpResult { id: *id, result: Ok(ClaimVersions::new()) });
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
