//! What the agent sees of a share's movable memory.

use core::sync::atomic::Ordering;

use octavo_guard_abi::lease_page::LeasePage;

use crate::shares::Share;

/// Shows the agent at once how much there is. A thread that asks for more memory soon needs it: what does not seem movable is not lent.
pub(super) fn show_now(share: &Share) {
    if let Some(page) = share.leases.page() {
        show(share, page);
    }
}

/// Shows the agent how much there is.
pub(super) fn show(share: &Share, page: &LeasePage) {
    let shown =
        [(&page.movable_bytes, &share.movable_bytes), (&page.moved_bytes, &share.moved_bytes)];
    for (word, bytes) in shown {
        let bytes = bytes.load(Ordering::Relaxed);
        if word.load(Ordering::Relaxed) != bytes {
            word.store(bytes, Ordering::Relaxed);
        }
    }
}
