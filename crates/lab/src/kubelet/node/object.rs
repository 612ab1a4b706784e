//! The Node object and the Lease of a simulated node (pure).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeStatus, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};
use octavo_machine::{AddressingMode, Machine};

use crate::kubelet::device_manager::resources::{Count, Counts};

/// Quantities by resource.
type Quantities = BTreeMap<String, Quantity>;

/// Reported kubelet version: the one whose behaviour the simulation follows.
const KUBELET_VERSION: &str = "v1.36.3";

/// Labels that a kubelet sets on its node, plus the label of simulated nodes.
pub(crate) fn labels(name: &str, machine: Option<&Machine>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        ("kubernetes.io/hostname".to_owned(), name.to_owned()),
        ("kubernetes.io/os".to_owned(), "linux".to_owned()),
        ("kubernetes.io/arch".to_owned(), architecture(machine).to_owned()),
        ("lab.octavo.dev/simulated".to_owned(), "true".to_owned()),
    ]);
    if let Some(machine) = machine {
        labels.insert("node.kubernetes.io/instance-type".to_owned(), machine.name.clone());
    }
    labels
}

/// The Node to create. It is ready from the start, so no taint is added.
pub(crate) fn node(
    name: &str,
    machine: Option<&Machine>,
    address: Ipv4Addr,
    now: Timestamp,
    counts: &Counts,
) -> Node {
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels(name, machine)),
            ..ObjectMeta::default()
        },
        status: Some(status(name, machine, address, (now, now), counts)),
        ..Node::default()
    }
}

/// Status of a node that has been ready since `since`, with the devices of its plugins.
pub(crate) fn status(
    name: &str,
    machine: Option<&Machine>,
    address: Ipv4Addr,
    (since, now): (Timestamp, Timestamp),
    counts: &Counts,
) -> NodeStatus {
    let resources = capacity(machine);
    let (mut all, mut healthy) = devices(counts);
    all.extend(resources.clone());
    healthy.extend(resources);
    let address_of =
        |type_: &str, address: String| NodeAddress { type_: type_.to_owned(), address };
    NodeStatus {
        capacity: Some(all),
        allocatable: Some(healthy),
        conditions: Some(conditions(since, now)),
        addresses: Some(vec![
            address_of("InternalIP", address.to_string()),
            address_of("Hostname", name.to_owned()),
        ]),
        node_info: Some(NodeSystemInfo {
            architecture: architecture(machine).to_owned(),
            boot_id: String::new(),
            container_runtime_version: "octavo-lab://simulated".to_owned(),
            kernel_version: "6.8.0-octavo-lab".to_owned(),
            kubelet_version: KUBELET_VERSION.to_owned(),
            machine_id: name.to_owned(),
            operating_system: "linux".to_owned(),
            os_image: machine
                .map_or("Octavo lab".to_owned(), |machine| format!("Octavo lab {}", machine.name)),
            system_uuid: name.to_owned(),
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}

/// The Lease that shows the control plane that the node is alive.
pub(crate) fn lease(name: &str, node_uid: Option<String>, seconds: i32, now: Timestamp) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("kube-node-lease".to_owned()),
            owner_references: node_uid.map(|uid| {
                vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Node".to_owned(),
                    name: name.to_owned(),
                    uid,
                    ..OwnerReference::default()
                }]
            }),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.to_owned()),
            lease_duration_seconds: Some(seconds),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    }
}

/// All devices of plugins by resource, and the healthy ones.
pub(crate) fn devices(counts: &Counts) -> (Quantities, Quantities) {
    let quantities = |number: fn(&Count) -> usize| {
        let quantity = |count| Quantity(number(count).to_string());
        counts.iter().map(|(name, count)| (name.clone(), quantity(count))).collect()
    };
    (quantities(|count| count.capacity), quantities(|count| count.allocatable))
}

/// Resources other than devices: 16 cores per GPU, and twice the memory of the GPUs.
fn capacity(machine: Option<&Machine>) -> Quantities {
    let (gpus, memory_mib) = machine.map_or((1, 0), |machine| {
        let gpus = u64::try_from(machine.gpus.len()).unwrap_or(1).max(1);
        (gpus, gpus * machine.model.memory_mib)
    });
    let memory_gib = (2 * memory_mib).div_ceil(1024).max(64);
    [
        ("cpu", format!("{}", 16 * gpus)),
        ("memory", format!("{memory_gib}Gi")),
        ("ephemeral-storage", "1Ti".to_owned()),
        ("pods", "110".to_owned()),
    ]
    .map(|(name, quantity)| (name.to_owned(), Quantity(quantity)))
    .into()
}

/// Grace machines are Arm. Only their GPUs address memory through ATS.
fn architecture(machine: Option<&Machine>) -> &'static str {
    match machine.and_then(|machine| machine.model.addressing_mode) {
        Some(AddressingMode::Ats) => "arm64",
        _ => "amd64",
    }
}

fn conditions(since: Timestamp, now: Timestamp) -> Vec<NodeCondition> {
    [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "memory is simulated"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "disk is simulated"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "processes are simulated"),
        ("Ready", "True", "KubeletReady", "the simulated kubelet is posting ready status"),
    ]
    .map(|(type_, status, reason, message)| NodeCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(since)),
    })
    .into()
}

#[cfg(test)]
mod tests;
