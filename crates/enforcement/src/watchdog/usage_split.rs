//! Splits the memory of a process with several shares of one GPU. The driver counts it once per process.
//!
//! Each share is charged with the process's slot in it, as far as the total allows. The rest, which no slot contains,
//! goes to the share with the most free bytes. The shares are thus limited to their sum, and a process within the
//! limits exceeds none of them.

use std::collections::BTreeMap;

use octavo_guard_abi::state::SlotCopy;

use super::guards::state_file;
use super::monitored_share::{DriverUsage, is_slot_of};

/// The shares of the split, by folder name.
#[derive(Debug, Default)]
pub(super) struct UsageSplit(BTreeMap<String, ShareBalance>);

#[derive(Debug)]
struct ShareBalance {
    slots: Vec<SlotCopy>,
    /// Bytes that no process uses.
    free_bytes: u64,
}

impl UsageSplit {
    /// Adds a share with its limit, unless present.
    pub(super) fn add(
        &mut self,
        name: &str,
        limit_bytes: u64,
        slots: impl FnOnce() -> Vec<SlotCopy>,
    ) {
        if !self.0.contains_key(name) {
            let slots = slots();
            let free_bytes = limit_bytes.saturating_sub(state_file::bytes(&slots));
            self.0.insert(name.to_owned(), ShareBalance { slots, free_bytes });
        }
    }

    /// Memory of a process in each of its shares with a slot or bytes. Charged bytes are no longer free for the next
    /// process.
    pub(super) fn split(&mut self, found: &DriverUsage) -> Vec<(String, DriverUsage)> {
        let names = &found.owned.shares;
        let Some(bytes) = found.driver_bytes else {
            // Each share uses its own slot's count.
            return names.iter().map(|name| (name.clone(), found.clone())).collect();
        };
        let mut rest = bytes;
        let mut parts: BTreeMap<&str, (bool, u64)> = BTreeMap::new();
        for name in names {
            let Some(ledger) = self.0.get(name) else { continue };
            let (process, inside) = (found.owned.process, found.owned.inside);
            let own = ledger.slots.iter().filter(|slot| is_slot_of(slot, process, inside));
            let slot_bytes = own.map(|slot| slot.used_bytes).reduce(u64::saturating_add);
            let part = slot_bytes.unwrap_or(0).min(rest);
            rest -= part;
            parts.insert(name, (slot_bytes.is_some(), part));
        }
        while rest > 0 {
            let in_parts = self.0.iter_mut().filter(|(name, _)| parts.contains_key(name.as_str()));
            let Some((name, ledger)) = in_parts.max_by_key(|(_, ledger)| ledger.free_bytes) else {
                break;
            };
            // Without free bytes anywhere, one share is charged with all.
            let part = if ledger.free_bytes == 0 { rest } else { rest.min(ledger.free_bytes) };
            ledger.free_bytes = ledger.free_bytes.saturating_sub(part);
            rest -= part;
            if let Some((_, bytes)) = parts.get_mut(name.as_str()) {
                *bytes = bytes.saturating_add(part);
            }
        }
        let has_any = |(_, (has_slot, bytes)): &(&str, (bool, u64))| *has_slot || *bytes > 0;
        let parts = parts.into_iter().filter(has_any);
        let part = |(name, (_, bytes)): (&str, (bool, u64))| {
            (name.to_owned(), DriverUsage { driver_bytes: Some(bytes), ..found.clone() })
        };
        parts.map(part).collect()
    }
}

#[cfg(test)]
mod tests;
