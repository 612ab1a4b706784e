//! How long one claim keeps the decision thread busy, with a selector just below the cost limit on
//! each of 1,000 nodes with eight GPUs each.
//!
//! `cargo bench -p octavo-scheduler --bench selectors` prints the time of each attempt.
#![expect(clippy::print_stdout, reason = "the benchmark prints its results")]
#![expect(clippy::expect_used, reason = "the inputs are constants of this file")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use octavo_kube_io::objects::{Change, Claim, Delta, DeviceClass, Node, Pod, ResourceSlice};
use octavo_scheduler::state::{Scheduler, SchedulerConfig};
use serde_json::{Value, json};

const NODES: usize = 1000;
const DRIVER: &str = "gpu.example.com";

/// A selector of about ten thousand cost units for each device.
fn costly(number: usize) -> String {
    let loops = (0..4).fold("true".to_owned(), |inner, level| {
        format!("[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].all(n{level}, {inner})")
    });
    format!("{number} == {number} && {loops}")
}

fn cluster() -> Scheduler {
    let mut scheduler = Scheduler::new(SchedulerConfig::default());
    let class = json!({"metadata": {"name": "gpu", "uid": "gpu"}, "spec": {"selectors": [
        {"cel": {"expression": format!("device.driver == '{DRIVER}'")}}]}});
    let class = DeviceClass::from_value(class).expect("a class");
    scheduler.apply(&Change::Class(Delta::Upsert(Arc::new(class))));
    for number in 0..NODES {
        let name = format!("n{number:04}");
        let amounts = json!({"cpu": "64", "memory": "512Gi", "pods": "110"});
        let node = json!({
            "metadata": {"name": name, "uid": name, "labels": {
                "kubernetes.io/hostname": name, "octavo.dev/scheduler": "octavo"}},
            "status": {"allocatable": amounts, "capacity": amounts,
                "conditions": [{"type": "Ready", "status": "True"}]},
        });
        scheduler
            .apply(&Change::Node(Delta::Upsert(Arc::new(Node::from_value(node).expect("a node")))));
        let device = |gpu| {
            json!({"name": format!("gpu-{gpu}"), "attributes": {
            "model": {"string": "H100"}, "uuid": {"string": format!("{name}-{gpu}")}}})
        };
        let slice = json!({
            "metadata": {"name": name, "uid": format!("slice-{name}")},
            "spec": {
                "driver": DRIVER, "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": (0..8).map(device).collect::<Vec<_>>(),
            },
        });
        let slice = ResourceSlice::from_value(slice).expect("a slice");
        scheduler.apply(&Change::Slice(Delta::Upsert(Arc::new(slice))));
    }
    scheduler
}

fn tell(scheduler: &mut Scheduler, name: &str, selector: &str) {
    let claim = json!({
        "metadata": {"name": name, "namespace": "team", "uid": format!("claim-{name}")},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
            "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
            "selectors": [{"cel": {"expression": selector}}]}}]}},
    });
    let claim = Claim::from_value(claim).expect("a claim");
    scheduler.apply(&Change::Claim(Delta::Upsert(Arc::new(claim))));
    let pod: Value = json!({
        "metadata": {"name": name, "namespace": "team", "uid": name,
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "schedulerName": "octavo",
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {"phase": "Pending"},
    });
    scheduler.apply(&Change::Pod(Delta::Upsert(Arc::new(Pod::from_value(pod).expect("a pod")))));
}

fn main() {
    let mut scheduler = cluster();
    let mut now = 1;
    scheduler.tick(now);
    while scheduler.decide() {}
    for number in 0..2 {
        tell(&mut scheduler, &format!("dear-{number}"), &costly(number));
        let (mut all, mut longest, mut rounds) = (Duration::ZERO, Duration::ZERO, 0);
        // A pod whose evaluation is incomplete is tried again a moment later.
        for _ in 0..40 {
            let begin = Instant::now();
            scheduler.decide();
            let took = begin.elapsed();
            all += took;
            longest = longest.max(took);
            rounds += u32::from(took > Duration::from_millis(1));
            now += 1;
            scheduler.tick(now);
        }
        let answer = scheduler.take_metric_events().pop();
        println!(
            "claim {number}: {rounds} rounds, {all:.1?}, the longest {longest:.1?}, {answer:?}"
        );
    }
}
