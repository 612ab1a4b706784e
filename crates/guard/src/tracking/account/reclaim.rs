//! Reclaims memory that the driver keeps idle, before an allocation is refused. Pools and graph
//! memory are trimmed by as much as needed, and their charges updated. Pending stream-ordered frees
//! are awaited for a limited time, as the driver does.

use crate::cuda::Device;
use crate::process;
use crate::tracking::{async_free, graph_memory, pools};

/// Frees up to `bytes` on a GPU. Returns whether anything was freed.
#[cold]
pub(crate) fn run(device: Device, bytes: u64) -> bool {
    let Ok(process) = process::get() else { return false };
    let Ok(mut share_indices) = process.shares_of(device) else { return false };
    // An allocation above every limit is not worth reclaiming for.
    let is_possible =
        |share_index| process.shares.get(share_index).is_some_and(|share| bytes <= share.limit());
    if !share_indices.any(is_possible) {
        return false;
    }
    let mut reclaimed = pools::trim(device, bytes);
    if reclaimed < bytes {
        reclaimed += graph_memory::trim(device);
    }
    if reclaimed < bytes {
        reclaimed += async_free::wait(bytes - reclaimed);
    }
    reclaimed > 0
}
