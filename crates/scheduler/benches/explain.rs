//! How long `explain` and its searches keep the decision thread busy, on a full cluster of 1,000 nodes with
//! eight GPUs each.
//!
//! `cargo bench -p octavo-scheduler --bench explain` prints one line for each query.
#![expect(clippy::print_stdout, reason = "the benchmark prints its results")]
#![expect(clippy::expect_used, reason = "the inputs are constants of this file")]

use std::sync::Arc;
use std::time::Instant;

use octavo_kube_io::objects::{Change, Delta, Node, ObjectName, Pod, WatchedObject};
use octavo_scheduler::state::{Scheduler, SchedulerConfig};
use serde_json::{Value, json};

const NODES: usize = 1000;

fn node(number: usize) -> Value {
    let name = format!("n{number:04}");
    let amounts = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"});
    json!({
        "metadata": {
            "name": name, "uid": format!("uid-{name}"),
            "labels": {
                "kubernetes.io/hostname": name, "octavo.dev/scheduler": "octavo",
                "topology.octavo.dev/rack": format!("r{}", number / 16),
            },
        },
        "status": {
            "allocatable": amounts, "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn pod(name: &str, gpus: u32, priority: i32) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "team", "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "schedulerName": "octavo", "priority": priority,
            "containers": [{"name": "main", "resources": {
                "requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": gpus.to_string()},
            }}],
        },
        "status": {"phase": "Pending"},
    })
}

fn tell(scheduler: &mut Scheduler, value: Value) {
    let pod = Arc::new(Pod::from_value(value).expect("a pod"));
    scheduler.apply(&Change::Pod(Delta::Upsert(pod)));
}

/// A cluster without GPUs are all taken, Each pod uses one GPU each with has this priority.
fn full(priority: i32) -> Scheduler {
    let mut scheduler =
        Scheduler::new(SchedulerConfig { preemption: false, ..SchedulerConfig::default() });
    for number in 0..NODES {
        let node = Arc::new(Node::from_value(node(number)).expect("a node"));
        scheduler.apply(&Change::Node(Delta::Upsert(node)));
    }
    for number in 0..8 * NODES {
        let mut running = pod(&format!("p{number}"), 1, priority);
        running["spec"]["nodeName"] = json!(format!("n{:04}", number / 8));
        running["status"]["phase"] = json!("Running");
        let owner = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "uid-rs",
            "controller": true,
        }]);
        running["metadata"]["ownerReferences"] = owner;
        tell(&mut scheduler, running);
    }
    scheduler
}

fn gang(scheduler: &mut Scheduler, name: &str, members: usize, gpus: u32) {
    let object = json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}"), "generation": 1},
        "spec": {"minMember": members},
    });
    let object = Arc::new(WatchedObject::from_value(object).expect("a group"));
    scheduler.apply(&Change::Object(Delta::Upsert(object)));
    for number in 0..members {
        let mut member = pod(&format!("{name}-{number}"), gpus, 10);
        member["metadata"]["labels"] = json!({"octavo.dev/pod-group": name});
        tell(scheduler, member);
    }
}

/// Runs one query: prints how long the decision thread is busy, and how long the searches
/// take.
fn ask(scheduler: &mut Scheduler, name: &str, is_gang: bool) {
    let name = ObjectName::new("team", name);
    let begin = Instant::now();
    let search = if is_gang {
        scheduler.hint_search_for_group(&name)
    } else {
        scheduler.hint_search_for_pod(&name)
    };
    let mut held = vec![begin.elapsed()];
    let mut searched = Vec::new();
    if let Some(search) = search {
        let begin = Instant::now();
        let found = search.run();
        searched.push(begin.elapsed());
        let begin = Instant::now();
        scheduler.store_hint_result(&found);
        held.push(begin.elapsed());
    }
    let begin = Instant::now();
    let found = if is_gang { scheduler.explain_group(&name) } else { scheduler.explain_pod(&name) };
    held.push(begin.elapsed());
    let found = found.expect("a pending pod or gang");
    let (is_found, note) = (found.disturbance.is_some(), found.disturbance_note);
    println!("  {name}: blocked {held:.1?}, searches {searched:.1?}, found: {is_found} {note:?}");
}

fn main() {
    for (whose, priority) in [("of lower priority", 0), ("of the same priority", 10)] {
        let mut scheduler = full(priority);
        tell(&mut scheduler, pod("one", 1, 10));
        gang(&mut scheduler, "ten", 10, 8);
        gang(&mut scheduler, "many", 512, 8);
        scheduler.tick(1);
        let begin = Instant::now();
        while scheduler.decide() {}
        println!("{NODES} nodes full of pods {whose}: refused in {:.1?}", begin.elapsed());
        for round in ["first", "again"] {
            println!(" asked {round}");
            ask(&mut scheduler, "one", false);
            ask(&mut scheduler, "ten", true);
            ask(&mut scheduler, "many", true);
        }
    }
}
