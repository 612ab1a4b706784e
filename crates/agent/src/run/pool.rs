//! What follows from what is known of a node's GPUs: the pool to publish, the devices that claims can
//! be given, and what people should hear.

use octavo_gpu::Inventory;
use octavo_kube_io::events::{Events, Tone, node as node_reference};
use octavo_kube_io::slices::Pool;

use crate::claims::{DeviceKind, KnownDevice};
use crate::devices::{device_name, devices, is_offered};
use crate::monitor::Snapshot;

/// The pool that a node should publish; `None` until its GPUs were read.
pub(super) fn pool(node: &str, snapshot: &Snapshot) -> Option<Pool> {
    let inventory = snapshot.inventory.as_ref()?;
    let devices = devices(inventory, &snapshot.health);
    Some(Pool { name: node.to_owned(), counters: Vec::new(), devices })
}

/// The devices that claims can be given. A GPU that is not well is among them: its claims were there
/// before.
pub(super) fn known_devices(inventory: &Inventory) -> Vec<KnownDevice> {
    let device = |gpu: &octavo_gpu::Gpu| KnownDevice {
        name: device_name(gpu),
        uuid: gpu.uuid.clone(),
        minor: gpu.minor,
        pci: gpu.pci.to_string(),
        kind: DeviceKind::Gpu { memory_bytes: gpu.memory_bytes },
    };
    inventory.gpus.iter().map(device).collect()
}

/// Tells of GPUs whose health changed, in the log and as events of the node.
pub(super) async fn tell(node: &str, events: &Events, old: &Snapshot, new: &Snapshot) {
    let Some(inventory) = &new.inventory else { return };
    for gpu in &inventory.gpus {
        let (was, is) = (old.health.get(&gpu.uuid), new.health.get(&gpu.uuid));
        if was == is {
            continue;
        }
        let name = device_name(gpu);
        let uuid = &gpu.uuid;
        let (tone, reason, note) = if let Some(state) = is {
            let state = state.message();
            tracing::error!(node, device = name, %uuid, %state, "a GPU is not well");
            let note = format!("{name} ({uuid}) is tainted and takes no new pods: {state}");
            (Tone::Warning, "GpuUnhealthy", note)
        } else {
            tracing::info!(node, device = name, %uuid, "a GPU is well again");
            (Tone::Normal, "GpuHealthy", format!("{name} ({uuid}) is well again"))
        };
        events.record(&node_reference(node), tone, reason, "Watch", &note).await;
    }
    let was_unreadable = |index| {
        let old = old.inventory.as_ref();
        old.is_some_and(|old| old.unreadable.iter().any(|gpu| gpu.index == index))
    };
    for gpu in inventory.unreadable.iter().filter(|gpu| !was_unreadable(gpu.index)) {
        let note = format!("GPU {} cannot be read and is not offered: {}", gpu.index, gpu.error);
        events.record(&node_reference(node), Tone::Warning, "GpuUnreadable", "Read", &note).await;
    }
    let was_in_mig_mode = |uuid: &str| {
        let old = old.inventory.as_ref();
        old.is_some_and(|old| old.gpus.iter().any(|gpu| gpu.uuid == uuid && !is_offered(gpu)))
    };
    for gpu in inventory.gpus.iter().filter(|gpu| !is_offered(gpu) && !was_in_mig_mode(&gpu.uuid)) {
        let name = device_name(gpu);
        tracing::warn!(node, device = name, uuid = %gpu.uuid, "a GPU in MIG mode is not offered");
        let note = format!(
            "{name} ({}) is in MIG mode and not offered: it serves no container whole; turn the mode \
             off to offer it",
            gpu.uuid
        );
        events.record(&node_reference(node), Tone::Warning, "GpuInMigMode", "Read", &note).await;
    }
}
