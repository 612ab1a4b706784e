//! What a pod requests of a node.

use std::collections::BTreeMap;

use octavo_dra::{ContainerKind, Quantity, is_extended_resource};
use octavo_kube_io::objects::{
    Container, HostPort, ObjectName, Pod, PodSpec, VolumeSource, WHOLE_POD,
};

use super::Amounts;
use super::volumes::claim_name;

/// What a pod requests of its node, apart from devices.
///
/// Amounts are the greater of what its containers need together and what initialisation needs at
/// any time (KEP-753), plus its overhead. Pod-level requests replace these sums (KEP-2837). While
/// an in-place resize is not done, allocated and actuated amounts count too (KEP-1287). Pods of one
/// template without volumes have equal requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodRequests {
    /// Amounts.
    pub amounts: Amounts,
    /// Host ports of containers that keep running.
    pub ports: Vec<HostPort>,
    /// Cloud disks with restricted sharing.
    pub disks: Vec<Disk>,
    /// Volume claims, whose CSI volumes count towards the node's limits.
    pub claims: Vec<ObjectName>,
}

/// A cloud disk that pods of one node may share only in some ways.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Disk {
    /// Kind, as the API names the volume source.
    pub kind: String,
    /// Its ID.
    pub id: String,
    /// Whether it is mounted read-only. Read-only pods may share it.
    pub is_read_only: bool,
}

impl PodRequests {
    /// What a pod takes.
    pub fn of(pod: &Pod) -> Self {
        let amounts = if pod.held.is_empty() {
            effective_amounts(&pod.spec)
        } else {
            effective_amounts(&with_allocated(pod))
        };
        let mut requests = Self { amounts, ..Self::default() };
        for container in pod.spec.containers.iter().filter(|c| c.kind != ContainerKind::Init) {
            requests.ports.extend(container.ports.iter().filter(|port| port.port > 0).cloned());
        }
        for volume in &pod.spec.volumes {
            if let VolumeSource::Exclusive(kind, id, is_read_only) = &volume.source {
                let (kind, id) = (kind.clone(), id.clone());
                requests.disks.push(Disk { kind, id, is_read_only: *is_read_only });
            }
            requests.claims.extend(claim_name(pod, volume));
        }
        requests
    }

    /// Extended resources with their amounts. A node serves them as plain amounts (a device plugin)
    /// or through a device class.
    pub fn extended(&self) -> impl Iterator<Item = (&str, i128)> {
        let others = self.amounts.others.iter();
        others.filter(|(name, _)| is_extended_resource(name)).map(|(name, n)| (&**name, *n))
    }
}

/// Sums by resource, in billionths.
#[derive(Default)]
struct NanoSums<'a>(BTreeMap<&'a str, i128>);

impl<'a> NanoSums<'a> {
    fn add(&mut self, list: &'a BTreeMap<String, Quantity>) {
        for (name, amount) in list {
            let sum = self.0.entry(name).or_default();
            *sum = sum.saturating_add(amount.nanos());
        }
    }

    fn raise_to(&mut self, name: &'a str, nanos: i128) {
        let most = self.0.entry(name).or_default();
        *most = nanos.max(*most);
    }
}

/// A pod's spec with what is allocated while an in-place resize is not done.
fn with_allocated(pod: &Pod) -> PodSpec {
    let mut spec = PodSpec::clone(&pod.spec);
    for container in
        spec.containers.iter_mut().filter(|container| container.kind != ContainerKind::Init)
    {
        if let Some(held) = pod.held.get(&container.name) {
            container.requests.extend(held.clone());
        }
    }
    for (name, amount) in pod.held.get(WHOLE_POD).into_iter().flatten() {
        // For resources without a pod-level request the containers' sum counts.
        if let Some(asked) = spec.pod_requests.get_mut(name) {
            *asked = *amount;
        }
    }
    spec
}

/// The amounts that a pod's spec requests.
fn effective_amounts(spec: &PodSpec) -> Amounts {
    let mut running = NanoSums::default();
    if let [Container { kind: ContainerKind::Main, requests, .. }] = &spec.containers[..] {
        running.add(requests);
    } else {
        add_by_stage(&spec.containers, &mut running);
    }
    for (name, amount) in &spec.pod_requests {
        if matches!(&**name, "cpu" | "memory") || name.starts_with("hugepages-") {
            running.0.insert(name, amount.nanos());
        }
    }
    running.add(&spec.overhead);
    let mut amounts = Amounts::default();
    for (name, nanos) in running.0 {
        amounts.set(name, Quantity::from_nanos(nanos, Quantity::ZERO.notation()));
    }
    amounts
}

/// Containers that start one after another: an init container runs beside the sidecars before it.
fn add_by_stage<'a>(containers: &'a [Container], running: &mut NanoSums<'a>) {
    let (mut sidecars, mut peak) = (NanoSums::default(), NanoSums::default());
    for container in containers {
        match container.kind {
            ContainerKind::Main => running.add(&container.requests),
            ContainerKind::Sidecar => {
                running.add(&container.requests);
                sidecars.add(&container.requests);
            }
            ContainerKind::Init => {
                for (name, amount) in &container.requests {
                    let beside = sidecars.0.get(&**name).copied().unwrap_or_default();
                    peak.raise_to(name, beside.saturating_add(amount.nanos()));
                }
            }
        }
    }
    // Sidecars alone never need more than beside the main containers.
    for (name, nanos) in peak.0 {
        running.raise_to(name, nanos);
    }
}
