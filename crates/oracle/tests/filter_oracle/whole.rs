//! The nodes that the whole scheduler would consider, through its watch events.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_kube_io::objects::{Change, Delta, Kind};
use octavo_scheduler::state::{Scheduler, SchedulerConfig};
use serde_json::{Value, json};

use crate::case::Case;
use crate::oracle::Answer;

/// The scheduler's feasible nodes for the case's pod.
///
/// kube-scheduler counts memory in bytes, and the engine in MiB; both round requests up. So bytes of
/// the case are MiB here.
pub(crate) fn feasible_nodes(case: &Case) -> BTreeSet<String> {
    let mut question = case.question();
    bytes_to_mib(&mut question);
    for node in question["nodes"].as_array_mut().unwrap() {
        if node["status"]["allocatable"]["nvidia.com/gpu"].is_string() {
            // GPUs of a device plugin are used only where an administrator says so.
            node["metadata"]["labels"]["octavo.dev/scheduler"] = json!("octavo");
        }
    }
    let case = &Case::read(question);
    let mut scheduler = Scheduler::new(SchedulerConfig::default());
    let (first, later) = case.nodes.split_at(case.nodes.len() / 2);
    for change in [
        Change::Namespace(all(&case.namespaces)),
        Change::VolumeClaim(all(&case.claims)),
        Change::Volume(all(&case.volumes)),
        Change::StorageClass(all(&case.classes)),
        Change::CsiNode(all(&case.csi_nodes)),
        Change::CsiDriver(all(&case.drivers)),
        Change::CsiCapacity(all(&case.capacities)),
        Change::Node(all(first)),
        Change::Pod(all(&case.placed)),
    ] {
        scheduler.apply(&change);
    }
    scheduler.apply(&Change::Pod(Delta::Upsert(Arc::new(case.pod.clone()))));
    let name = &case.pod.meta.name;
    // The other nodes are added to a world that is in use.
    let _ = scheduler.feasible_nodes(name);
    for node in later {
        scheduler.apply(&Change::Node(Delta::Upsert(Arc::new(node.clone()))));
    }
    scheduler.feasible_nodes(name).iter().map(ToString::to_string).collect()
}

/// The nodes against which no filter of kube-scheduler has a reason.
pub(crate) fn their_feasible_nodes(theirs: &Answer) -> BTreeSet<String> {
    let feasible = theirs.nodes.iter().filter(|(_, reasons)| reasons.is_empty());
    feasible.map(|(node, _)| node.clone()).collect()
}

/// Multiplies all amounts of memory by 2^20.
fn bytes_to_mib(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_str().filter(|_| name == "memory") {
                    Some(amount) => *field = json!(times_mib(amount)),
                    None => bytes_to_mib(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(bytes_to_mib),
        _ => {}
    }
}

/// An amount of memory, multiplied by 2^20.
fn times_mib(amount: &str) -> String {
    let units: [(&str, u64, &str); 7] = [
        ("Gi", 1 << 30, ""),
        ("Mi", 1 << 20, ""),
        ("Ki", 1 << 10, ""),
        ("G", 1_000_000_000, ""),
        ("M", 1_000_000, ""),
        ("m", 1, "m"),
        ("", 1, ""),
    ];
    let parts = units.iter().find_map(|(suffix, factor, unit)| {
        let number: u64 = amount.strip_suffix(suffix)?.parse().ok()?;
        Some(((number * factor) << 20, unit))
    });
    let (number, unit) = parts.unwrap_or_else(|| panic!("memory of {amount}"));
    format!("{number}{unit}")
}

fn all<T: Clone>(list: &[T]) -> Delta<T> {
    Delta::Replace(Kind::default(), list.iter().cloned().map(Arc::new).collect())
}
