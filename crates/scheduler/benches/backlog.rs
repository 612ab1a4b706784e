//! What a backlog costs the decision thread: 500 full nodes with eight GPUs each, 10,000 waiting
//! pods of 20 kinds and 50 waiting gangs of 16 pods.
//!
//! `cargo bench -p octavo-scheduler --bench backlog` prints the time that each of these changes keeps
//! the thread busy, until nothing is ready: a pod without GPUs that ends, a pod whose GPU the head of
//! the queue takes, a new pod that fits, and a new pod that does not. Events arrive one at a time.
#![expect(clippy::print_stdout, reason = "the benchmark prints its results")]
#![expect(clippy::expect_used, clippy::panic, reason = "the inputs are constants of this file")]

use std::time::{Duration, Instant};

use octavo_scheduler::bind::{ClaimVersions, OpResult};
use octavo_scheduler::state::{Scheduler, SchedulerConfig};
use octavo_scheduler::status::StatusUpdate;
use serde_json::{Value, json};

use cluster::{GPUS, binding, event, gang, member, node, placed, pod};

mod cluster;

const NODES: usize = 500;
const WAITING_PODS: usize = 10_000;
const GANGS: usize = 50;
const GANG_SIZE: usize = 16;
/// Changes of each kind.
const CHANGES: usize = 200;
/// Virtual milliseconds between two changes: ten in a second.
const INTERVAL_MS: u64 = 100;

/// The scheduler, its clock, and what it has written.
struct Bench {
    scheduler: Scheduler,
    now: u64,
    reports: usize,
    bound: Vec<Value>,
    pods: std::collections::BTreeMap<String, Value>,
}

impl Bench {
    fn apply(&mut self, pod: &Value) {
        let uid = pod["metadata"]["uid"].as_str().expect("a UID").to_owned();
        self.pods.insert(uid, pod.clone());
        let change = event(pod.clone());
        self.scheduler.apply(&change);
    }

    /// Runs the event loop until nothing is ready. Returns the time that the thread was busy.
    fn settle(&mut self) -> Duration {
        let mut busy = Duration::ZERO;
        loop {
            let begin = Instant::now();
            self.scheduler.tick(self.now);
            let has_more = self.scheduler.decide();
            let search = self.scheduler.due_hint_search();
            busy += begin.elapsed();
            // Another thread runs the search.
            if let Some(search) = search {
                let found = search.run();
                let begin = Instant::now();
                self.scheduler.store_hint_result(&found);
                busy += begin.elapsed();
            }
            let begin = Instant::now();
            let reports = self.scheduler.take_reports();
            self.scheduler.take_metric_events();
            let ops = self.scheduler.take_ops();
            busy += begin.elapsed();
            let is_text =
                |report: &&StatusUpdate| matches!(report, StatusUpdate::PodUnschedulable { .. });
            self.reports += reports.iter().filter(is_text).count();
            let is_idle = ops.is_empty() && !has_more;
            for op in ops {
                let (uid, node) = binding(&op);
                let pod = placed(self.pods[uid].clone(), node, "Running");
                let change = event(pod.clone());
                self.bound.push(pod);
                let begin = Instant::now();
                self.scheduler
                    .complete_op(&OpResult { id: op.id, result: Ok(ClaimVersions::new()) });
                self.scheduler.apply(&change);
                busy += begin.elapsed();
            }
            if is_idle {
                return busy;
            }
        }
    }

    /// One change, 100 ms after the one before. Returns the time that it kept the thread busy.
    fn change(&mut self, pod: &Value) -> Duration {
        // What is due in between is not part of the change.
        self.now += INTERVAL_MS;
        let due = self.settle();
        let change = event(pod.clone());
        let uid = pod["metadata"]["uid"].as_str().expect("a UID").to_owned();
        self.pods.insert(uid, pod.clone());
        let begin = Instant::now();
        self.scheduler.apply(&change);
        begin.elapsed() + self.settle() + due
    }
}

fn ended(pod: &Value) -> Value {
    let mut pod = pod.clone();
    pod["status"]["phase"] = json!("Succeeded");
    pod
}

/// A full cluster with the backlog, all of it decided on.
fn world() -> (Bench, Vec<Value>, Vec<Value>) {
    let scheduler = Scheduler::new(SchedulerConfig::default());
    let mut bench = Bench {
        scheduler,
        now: 0,
        reports: 0,
        bound: Vec::new(),
        pods: std::collections::BTreeMap::new(),
    };
    (0..NODES).for_each(|number| bench.scheduler.apply(&node(number)));
    let (mut with_gpu, mut without) = (Vec::new(), Vec::new());
    for number in 0..NODES {
        let running = |pod| placed(pod, &format!("n{number:04}"), "Running");
        for gpu in 0..GPUS {
            with_gpu.push(running(pod(&format!("gpu-{number}-{gpu}"), 1, 1)));
        }
        without.push(running(pod(&format!("cpu-{number}"), 1, 0)));
    }
    with_gpu.iter().chain(&without).for_each(|pod| bench.apply(pod));
    for number in 0..WAITING_PODS {
        let kind = number % 20;
        bench.apply(&pod(&format!("wait-{number}"), 1 + kind / 4, [1, 2, 4, 8][kind % 4]));
    }
    for number in 0..GANGS {
        let name = format!("gang-{number}");
        bench.scheduler.apply(&gang(&name, GANG_SIZE));
        for rank in 0..GANG_SIZE {
            bench.apply(&member(pod(&format!("{name}-{rank}"), 1, GPUS), &name));
        }
    }
    (bench, with_gpu, without)
}

fn print(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    println!("{what}: p50 {:.2?}, p99 {:.2?}, most {:.2?}", at(50), at(99), at(100));
}

fn main() {
    let (mut bench, with_gpu, without) = world();
    let first = bench.settle();
    println!("first decisions on {} waiting pods: {first:.2?}", WAITING_PODS + GANGS * GANG_SIZE);
    assert!(bench.bound.is_empty(), "the cluster is full");
    bench.reports = 0;

    bench.now += 60_000;
    let quiet = bench.settle();
    println!("at rest, a tick: {quiet:.2?}");

    let ends: Vec<_> = without.iter().take(CHANGES).map(ended).collect();
    let mut times: Vec<_> = ends.iter().map(|pod| bench.change(pod)).collect();
    print("a pod without GPUs ends", &mut times);

    let fits: Vec<_> = (0..CHANGES).map(|number| pod(&format!("fits-{number}"), 1, 0)).collect();
    let mut times: Vec<_> = fits.iter().map(|pod| bench.change(pod)).collect();
    print("a pod that fits is created", &mut times);
    assert_eq!(bench.bound.len(), CHANGES, "each of them is bound");

    let late: Vec<_> = (0..CHANGES).map(|number| pod(&format!("late-{number}"), 3, 2)).collect();
    let mut times: Vec<_> = late.iter().map(|pod| bench.change(pod)).collect();
    print("a pod that does not fit is created", &mut times);
    assert_eq!(bench.bound.len(), CHANGES, "none of them is bound");

    let ends: Vec<_> = with_gpu.iter().take(CHANGES).map(ended).collect();
    let mut times: Vec<_> = ends.iter().map(|pod| bench.change(pod)).collect();
    print("a pod with a GPU ends, and the next takes it", &mut times);
    assert_eq!(bench.bound.len(), 2 * CHANGES, "each free GPU is taken");
    assert!(bench.reports < 2 * CHANGES, "few waiting pods get another reason: {}", bench.reports);
}
