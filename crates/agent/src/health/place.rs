//! Where the GPUs of a node are, as far as the node shows it.

use std::collections::BTreeMap;

use octavo_gpu::Gpu;
use octavo_health::unit::{DeviceId, Place};

/// The node in its own domain.
const NODE: u32 = 0;

/// The NVLink island of each GPU by index: GPUs with the same switches, or that bridges connect. Its number is the lowest index.
pub(super) fn islands(gpus: &[Gpu]) -> BTreeMap<u32, u32> {
    let first = switched(gpus).next().map(|gpu| gpu.index);
    let mut islands: BTreeMap<u32, u32> = gpus.iter().map(|gpu| (gpu.index, gpu.index)).collect();
    let pairs: Vec<(u32, u32)> = gpus
        .iter()
        .flat_map(|gpu| {
            let peers = gpu.nvlink.iter().flat_map(|link| &link.peers);
            peers.map(|(peer, _)| (gpu.index, *peer))
        })
        .chain(
            first.into_iter().flat_map(|first| switched(gpus).map(move |gpu| (first, gpu.index))),
        )
        .collect();
    // Each round carries the lowest index one link further.
    for _ in gpus {
        for (one, other) in &pairs {
            let lowest = islands.get(one).min(islands.get(other)).copied();
            for index in [one, other] {
                if let (Some(island), Some(lowest)) = (islands.get_mut(index), lowest) {
                    *island = lowest;
                }
            }
        }
    }
    islands
}

/// The GPUs with switches at the other end of their links.
pub(super) fn switched(gpus: &[Gpu]) -> impl Iterator<Item = &Gpu> {
    gpus.iter().filter(|gpu| gpu.nvlink.as_ref().is_some_and(|link| link.switched))
}

/// Where a GPU is, as far as the driver shows: it names no network cards.
pub(super) fn place(gpu: &Gpu, island: u32) -> Place {
    // From Hopper on a GPU with NVLink is reset alone.
    let resets_alone = gpu.compute_capability.0 >= 9 || gpu.nvlink.is_none();
    Place { island, nics: Vec::new(), node: NODE, rack: 0, nvlink_domain: None, resets_alone }
}

/// Where a GPU is that the driver does not show: on the node, and in an island of its own.
pub(super) fn place_of_missing(id: DeviceId) -> Place {
    let island = u32::MAX - id.0;
    Place { island, nics: Vec::new(), node: NODE, rack: 0, nvlink_domain: None, resets_alone: true }
}
