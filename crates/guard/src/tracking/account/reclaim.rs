//! Giving back what the driver keeps without need: before an allocation is refused, pools and the memory of
//! graphs are trimmed, by as much as it takes, and their counts brought up to date. What streams are about to free
//! is waited for, as the driver does, but not for ever.

use crate::cuda::Device;
use crate::process;
use crate::tracking::{async_free, graph_memory, pools};

/// Makes room for bytes on a GPU, as far as it goes. Whether any came back.
#[cold]
pub(crate) fn run(device: Device, bytes: u64) -> bool {
    let Ok(process) = process::get() else { return false };
    let Ok(mut share_indices) = process.shares_of(device) else { return false };
    // What no share can hold needs no room.
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
