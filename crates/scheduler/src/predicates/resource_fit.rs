//! Whether a pod's requests fit on a node beside its running pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_kube_io::objects::HostPort;

use super::{Capacity, Disk, PodRequests, Unfit, Usage, Volumes};

/// The address that stands for all addresses of a host.
const ANY_ADDRESS: &str = "0.0.0.0";

/// Whether a pod's requests fit on a node: number of pods, amounts, ports, disks, and attachments
/// of CSI volumes. Returns all reasons against it.
///
/// `is_class_resource` says whether a device class serves an extended resource. If it does and the
/// node has none of it as a plain amount, the resource is left to the allocator.
pub fn check_resource_fit(
    requests: &PodRequests,
    capacity: &Capacity,
    usage: &Usage,
    volumes: &Volumes,
    is_class_resource: impl Fn(&str) -> bool,
) -> Result<(), Vec<Unfit>> {
    let mut reasons = Vec::new();
    for port in &requests.ports {
        if usage.ports.keys().any(|taken| ports_conflict(port, taken)) {
            reasons.push(Unfit::Port);
        }
    }
    if i128::from(usage.pods) + 1 > capacity.pods {
        reasons.push(Unfit::Pods { capacity: capacity.pods });
    }
    let (requested_amounts, has, taken) = (&requests.amounts, &capacity.amounts, &usage.amounts);
    let mut check_amount = |resource: &str, requested: i128, used: i128, capacity: i128| {
        if requested > 0 && requested > capacity - used {
            let resource = Arc::from(resource);
            reasons.push(Unfit::Insufficient { resource, requested, used, capacity });
        }
    };
    check_amount("cpu", requested_amounts.cpu, taken.cpu, has.cpu);
    check_amount("memory", requested_amounts.memory, taken.memory, has.memory);
    check_amount("ephemeral-storage", requested_amounts.storage, taken.storage, has.storage);
    for (name, requested) in &requested_amounts.others {
        let capacity = has.other(name);
        if capacity > 0 || !is_class_resource(name) {
            check_amount(name, *requested, taken.other(name), capacity);
        }
    }
    for disk in &requests.disks {
        if usage.disks.keys().any(|taken| disks_conflict(disk, taken)) {
            reasons.push(Unfit::Disk);
        }
    }
    if !requests.claims.is_empty() {
        reasons.extend(exceeded_volume_limits(requests, capacity, usage, volumes));
    }
    if reasons.is_empty() { Ok(()) } else { Err(reasons) }
}

/// Whether two ports conflict.
fn ports_conflict(one: &HostPort, other: &HostPort) -> bool {
    let address = |port: &HostPort| port.ip.is_empty() || port.ip == ANY_ADDRESS;
    let protocol = |port: &HostPort| port.protocol.is_empty() || port.protocol == "TCP";
    one.port == other.port
        && (one.protocol == other.protocol || (protocol(one) && protocol(other)))
        && (one.ip == other.ip || address(one) || address(other))
}

/// Whether two disks conflict.
fn disks_conflict(one: &Disk, other: &Disk) -> bool {
    one.kind == other.kind && one.id == other.id && !(one.is_read_only && other.is_read_only)
}

/// The drivers whose volume limit the node would exceed.
fn exceeded_volume_limits(
    requests: &PodRequests,
    capacity: &Capacity,
    usage: &Usage,
    volumes: &Volumes,
) -> Vec<Unfit> {
    let limits = volumes.limits(&capacity.node);
    let mut new: BTreeSet<_> =
        requests.claims.iter().filter_map(|claim| volumes.csi_volume(claim)).collect();
    new.retain(|(driver, _)| limits.is_some_and(|limits| limits.contains_key(*driver)));
    if new.is_empty() {
        return Vec::new();
    }
    let old: BTreeSet<_> =
        usage.claims.keys().filter_map(|claim| volumes.csi_volume(claim)).collect();
    let mut more: BTreeMap<&str, usize> = BTreeMap::new();
    for volume in new.difference(&old) {
        *more.entry(volume.0).or_default() += 1;
    }
    let too_many = more.into_iter().filter_map(|(driver, more)| {
        let limit = (*limits?.get(driver)?)?;
        let attached = old.iter().filter(|(old_driver, _)| *old_driver == driver).count();
        let is_over = usize::try_from(limit).is_ok_and(|limit| attached + more > limit);
        is_over.then(|| Unfit::VolumeLimit { driver: driver.to_owned(), limit })
    });
    too_many.collect()
}
