//! What a change of a volume costs: 2,000 waiting pods with a claim each, whose class binds late, and
//! 10,000 volumes of that class that belong to other claims.
//!
//! `cargo bench -p octavo-scheduler --bench volumes` prints the time of the deciding thread from the event
//! about a new volume of another claim until nothing is ready.
#![expect(clippy::print_stdout, reason = "the benchmark prints its results")]
#![expect(clippy::expect_used, reason = "the inputs are constants of this file")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use octavo_kube_io::objects::{
    Change, Delta, Node, PersistentVolume, Pod, StorageClass, VolumeClaim,
};
use octavo_scheduler::state::{Scheduler, SchedulerConfig};
use serde_json::json;

const PODS: usize = 2000;
const VOLUMES: usize = 10_000;
const CHANGES: usize = 100;

fn volume(number: usize) -> Change {
    let volume = json!({
        "metadata": {"name": format!("pv-{number}"), "uid": format!("pv-{number}")},
        "spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "late", "claimRef":
                {"namespace": "others", "name": format!("data-{number}"), "uid": format!("c-{number}")}},
        "status": {"phase": "Bound"},
    });
    let volume = PersistentVolume::from_value(volume).expect("a volume");
    Change::Volume(Delta::Upsert(Arc::new(volume)))
}

/// A pod that no node takes, and its claim.
fn waiting(scheduler: &mut Scheduler, number: usize) {
    let claim = json!({
        "metadata": {"name": format!("wait-{number}"), "namespace": "team", "uid": format!("w-{number}")},
        "spec": {"storageClassName": "late", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "10Gi"}}},
        "status": {"phase": "Pending"},
    });
    let claim = Arc::new(VolumeClaim::from_value(claim).expect("a claim"));
    scheduler.apply(&Change::VolumeClaim(Delta::Upsert(claim)));
    let pod = json!({
        "metadata": {"name": format!("wait-{number}"), "namespace": "team", "uid": format!("p-{number}")},
        "spec": {"schedulerName": "octavo", "nodeSelector": {"disk": "none"},
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
            "volumes": [{"name": "data",
                "persistentVolumeClaim": {"claimName": format!("wait-{number}")}}]},
        "status": {"phase": "Pending"},
    });
    let pod = Arc::new(Pod::from_value(pod).expect("a pod"));
    scheduler.apply(&Change::Pod(Delta::Upsert(pod)));
}

fn settle(scheduler: &mut Scheduler, now: u64) {
    loop {
        scheduler.tick(now);
        let has_more = scheduler.decide();
        scheduler.take_reports();
        scheduler.take_metric_events();
        assert!(scheduler.take_ops().is_empty(), "no node takes them");
        if !has_more {
            return;
        }
    }
}

fn main() {
    let mut scheduler = Scheduler::new(SchedulerConfig::default());
    let amounts = json!({"cpu": "64", "memory": "512Gi", "pods": "110"});
    let node = json!({
        "metadata": {"name": "n", "uid": "n", "labels": {"octavo.dev/scheduler": "octavo"}},
        "status": {"allocatable": amounts, "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}]},
    });
    let node = Arc::new(Node::from_value(node).expect("a node"));
    scheduler.apply(&Change::Node(Delta::Upsert(node)));
    let class = json!({"metadata": {"name": "late", "uid": "late"}, "provisioner": "csi.example",
        "volumeBindingMode": "WaitForFirstConsumer"});
    let class = Arc::new(StorageClass::from_value(class).expect("a class"));
    scheduler.apply(&Change::StorageClass(Delta::Upsert(class)));
    (0..VOLUMES).for_each(|number| scheduler.apply(&volume(number)));
    (0..PODS).for_each(|number| waiting(&mut scheduler, number));
    settle(&mut scheduler, 0);
    let mut times: Vec<Duration> = Vec::new();
    for number in 0..CHANGES {
        let change = volume(VOLUMES + number);
        let begin = Instant::now();
        scheduler.apply(&change);
        settle(&mut scheduler, 20 * u64::try_from(number).expect("a small number"));
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    println!("a volume of another claim is created: p50 {:.2?}, p99 {:.2?}", at(50), at(99));
}
