//! How long one added node keeps the decision thread busy: 200 nodes come one by one to 5,000 nodes
//! with 30,000 pods.
//!
//! `cargo bench -p octavo-scheduler --bench added_nodes` prints the time of one node, from its event
//! until nothing is ready, in five turns.
#![expect(clippy::print_stdout, reason = "the benchmark prints its results")]
#![expect(clippy::expect_used, clippy::panic, reason = "the inputs are constants of this file")]

use std::time::{Duration, Instant};

use octavo_scheduler::state::{Scheduler, SchedulerConfig};

use cluster::{GPUS, binding, event, node, placed, pod};

#[expect(dead_code, reason = "the benchmarks share it, and this one needs no gangs")]
mod cluster;

const NODES: usize = 5000;
const PODS_PER_NODE: usize = 6;
const ADDED: usize = 200;
const TURNS: usize = 5;

fn settle(scheduler: &mut Scheduler, now: &mut u64) {
    *now += 1;
    scheduler.tick(*now);
    while scheduler.decide() {}
    scheduler.take_reports();
    scheduler.take_metric_events();
}

/// The times of all added nodes, in ascending order.
fn turn() -> Vec<Duration> {
    let (mut scheduler, mut now) = (Scheduler::new(SchedulerConfig::default()), 0);
    (0..NODES).for_each(|number| scheduler.apply(&node(number)));
    for number in 0..NODES * PODS_PER_NODE {
        let on = format!("n{:04}", number / PODS_PER_NODE);
        scheduler.apply(&event(placed(pod(&format!("p{number}"), 1, 1), &on, "Running")));
    }
    settle(&mut scheduler, &mut now);
    let mut times = Vec::new();
    for number in NODES..NODES + ADDED {
        let added = node(number);
        let begin = Instant::now();
        scheduler.apply(&added);
        settle(&mut scheduler, &mut now);
        times.push(begin.elapsed());
    }
    // Pods that need a whole node get one of the added ones.
    (0..ADDED).for_each(|number| scheduler.apply(&event(pod(&format!("w{number}"), 1, GPUS))));
    settle(&mut scheduler, &mut now);
    let ops = scheduler.take_ops();
    let added = |node: &str| node[1..].parse::<usize>().is_ok_and(|number| number >= NODES);
    assert_eq!(ops.iter().filter(|op| added(binding(op).1)).count(), ADDED, "all are used");
    times.sort_unstable();
    times
}

fn main() {
    let mut turns: Vec<Vec<Duration>> = (0..TURNS).map(|_| turn()).collect();
    turns.sort_by_key(|times| times[ADDED / 2]);
    let medians: Vec<_> = turns.iter().map(|times| times[ADDED / 2]).collect();
    let longest = turns.iter().filter_map(|times| times.last()).max().expect("a turn");
    println!(
        "{ADDED} nodes added to {NODES} nodes and {} pods: median {:.2?}, {:.2?} to {:.2?}; the \
         longest of all {longest:.2?}",
        NODES * PODS_PER_NODE,
        medians[TURNS / 2],
        medians[0],
        medians[TURNS - 1]
    );
}
