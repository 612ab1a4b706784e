//! Results derived from the state of a node's GPUs: the published pool, the devices for claims, and events.

use std::collections::{BTreeMap, BTreeSet};

use octavo_gpu::Gpu;
use octavo_health::remedy::Remedy;
use octavo_kube_io::events::{EventType, Events, node as node_reference};
use octavo_kube_io::slices::Pool;

use crate::claims::{DeviceKind, KnownDevice, MigManagement};
use crate::config::Owner;
use crate::devices::{self, Note, Offer, device_name, mig_name, needs_reset, offered};
use crate::health::GpuState;
use crate::monitor::Snapshot;

/// The pool that a node should publish. `missing_module`: a kernel module that is not loaded.
pub(super) fn pool(
    name: &str,
    node: &devices::Node<'_>,
    owner: &Owner,
    missing_module: Option<&str>,
) -> Pool {
    let offered = offered(node).owned_by(owner).without_module(missing_module);
    let devices::Offered { counters, devices, plain } = offered;
    Pool { name: name.to_owned(), counters, devices, plain }
}

/// The devices that can be prepared. Unhealthy GPUs are included, since claims may already hold them. So are placements
/// of existing instances on GPUs that left dynamic MIG.
pub(super) fn known_devices(node: &devices::Node<'_>) -> Vec<KnownDevice> {
    let gpus = node.inventory.gpus.iter();
    gpus.flat_map(|gpu| known_parts(node, gpu).into_values()).collect()
}

/// The allowed MIG operations. The GPUs under dynamic MIG are unknown until the node's labels were read.
pub(super) fn mig_management(node: &devices::Node<'_>, is_read: bool) -> MigManagement {
    let uuids = |is_meant: &dyn Fn(&Gpu) -> bool| {
        let gpus = node.inventory.gpus.iter().filter(|gpu| is_meant(gpu));
        gpus.map(|gpu| gpu.uuid.clone()).collect()
    };
    MigManagement {
        gpus: is_read.then(|| uuids(&|gpu| Offer::of(node, gpu).is_dynamic())),
        fixed: uuids(&needs_reset),
    }
}

fn known_parts(node: &devices::Node<'_>, gpu: &Gpu) -> BTreeMap<String, KnownDevice> {
    let known = |name: String, kind| KnownDevice {
        name,
        uuid: gpu.uuid.clone(),
        minor: gpu.minor,
        pci: gpu.pci.to_string(),
        kind,
    };
    let whole = DeviceKind::Gpu {
        memory_bytes: gpu.memory_bytes,
        reserved_bytes: gpu.reserved_bytes.unwrap_or_default(),
        shares: node.shares,
    };
    let whole = known(device_name(gpu), whole);
    let mut parts = BTreeMap::from([(whole.name.clone(), whole)]);
    let offer = Offer::of(node, gpu);
    if offer == Offer::Instances {
        for instance in &gpu.mig_instances {
            let profile = gpu.mig_profiles.iter().find(|profile| profile.id == instance.profile_id);
            let Some(profile) = profile else { continue };
            let kind =
                DeviceKind::MigInstance { profile: profile.clone(), instance: instance.clone() };
            let part = known(mig_name(gpu.number, profile, instance.placement), kind);
            parts.insert(part.name.clone(), part);
        }
    }
    for profile in &gpu.mig_profiles {
        for placement in &profile.placements {
            let made = (gpu.uuid.clone(), placement.start, placement.size);
            if offer.is_dynamic() || node.made.contains(&made) {
                let (profile, placement) = (profile.clone(), *placement);
                let name = mig_name(gpu.number, &profile, placement);
                let part = known(name, DeviceKind::MigPlacement { profile, placement });
                parts.insert(part.name.clone(), part);
            }
        }
    }
    parts
}

/// Reports changed GPU health in the log, and as events of the node. Steps of a remedy and test are no events.
pub(super) async fn record_health(node: &str, events: &Events, old: &Snapshot, new: &Snapshot) {
    let Some(inventory) = &new.inventory else { return };
    for gpu in &inventory.gpus {
        let (was, is) = (old.health.get(&gpu.uuid), new.health.get(&gpu.uuid));
        if was.map(GpuState::without_times) == is.map(GpuState::without_times) {
            continue;
        }
        let name = device_name(gpu);
        let uuid = &gpu.uuid;
        let took_pods = was.is_none_or(GpuState::takes_pods);
        let text = is.map(GpuState::message).unwrap_or_default();
        let (tone, reason, note) = match is {
            Some(state) if !state.takes_pods() => {
                tracing::error!(node, device = name, %uuid, state = text, "a GPU is not well");
                let note = format!("{name} ({uuid}) is tainted and takes no new pods: {text}");
                (EventType::Warning, "GpuUnhealthy", note)
            }
            Some(_) if took_pods => {
                tracing::warn!(node, device = name, %uuid, state = text, "a GPU takes pods and may fail");
                (
                    EventType::Warning,
                    "GpuAtRisk",
                    format!("{name} ({uuid}) takes pods, but: {text}"),
                )
            }
            _ if took_pods => {
                tracing::info!(node, device = name, %uuid, "a GPU is no longer at risk");
                let note = format!("{name} ({uuid}) is well, without a warning of late");
                (EventType::Normal, "GpuHealthy", note)
            }
            _ => {
                tracing::info!(node, device = name, %uuid, "a GPU is well again");
                let note = format!("{name} ({uuid}) is well again and takes new pods");
                (EventType::Normal, "GpuHealthy", note)
            }
        };
        let needs = |state: Option<&GpuState>| state.and_then(|it| it.fence?.state.needs());
        let is_remedy = needs(is).is_some_and(|needs| needs != Remedy::Test);
        let is_new_need = is_remedy && needs(is) != needs(was);
        if is_new_need || was.map(GpuState::cause) != is.map(GpuState::cause) {
            events.record(&node_reference(node), tone, reason, "Watch", &note).await;
        }
    }
    let was_unreadable = |index| {
        let old = old.inventory.as_ref();
        old.is_some_and(|old| old.unreadable.iter().any(|gpu| gpu.index == index))
    };
    for gpu in inventory.unreadable.iter().filter(|gpu| !was_unreadable(gpu.index)) {
        let note = format!("GPU {} cannot be read and is not offered: {}", gpu.index, gpu.error);
        events
            .record(&node_reference(node), EventType::Warning, "GpuUnreadable", "Read", &note)
            .await;
    }
}

/// Reports new notes in the log and as events of the node.
pub(super) async fn record_notes(
    node: &str,
    events: &Events,
    old: &BTreeSet<Note>,
    new: &BTreeSet<Note>,
) {
    for Note { reason, text } in new.difference(old) {
        tracing::warn!(node, reason, "{text}");
        events.record(&node_reference(node), EventType::Warning, reason, "Offer", text).await;
    }
}

#[cfg(test)]
mod tests;
