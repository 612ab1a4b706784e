//! What a process has that has several shares of one GPU: the driver counts it once, for the process.
//!
//! Each share has what the process's slot in it says, as far as that goes. The rest, which no slot says, goes
//! where there is most room, so that the shares are held to what they may have together: whoever keeps to the
//! limits is not over any of them.

use std::collections::BTreeMap;

use octavo_guard_abi::state::SlotCopy;

use super::files;
use super::share::{Found, is_of};

/// The shares among which processes are split, by the names of their folders.
#[derive(Debug, Default)]
pub(super) struct Split(BTreeMap<String, Ledger>);

#[derive(Debug)]
struct Ledger {
    slots: Vec<SlotCopy>,
    /// Bytes that nobody has.
    room: u64,
}

impl Split {
    /// Takes a share with its limit, if it is not there already.
    pub(super) fn add(
        &mut self,
        name: &str,
        limit_bytes: u64,
        slots: impl FnOnce() -> Vec<SlotCopy>,
    ) {
        if !self.0.contains_key(name) {
            let slots = slots();
            let room = limit_bytes.saturating_sub(files::bytes(&slots));
            self.0.insert(name.to_owned(), Ledger { slots, room });
        }
    }

    /// What a process has in each of its shares that it has a slot or bytes in; what is given of a share's
    /// room is not there for the next process.
    pub(super) fn parts(&mut self, found: &Found) -> Vec<(String, Found)> {
        let names = &found.owned.shares;
        let Some(bytes) = found.driver_bytes else {
            // Each takes it at the word of its own slot.
            return names.iter().map(|name| (name.clone(), found.clone())).collect();
        };
        let mut rest = bytes;
        let mut parts: BTreeMap<&str, (bool, u64)> = BTreeMap::new();
        for name in names {
            let Some(ledger) = self.0.get(name) else { continue };
            let (process, inside) = (found.owned.process, found.owned.inside);
            let own = ledger.slots.iter().filter(|slot| is_of(slot, process, inside));
            let slot_bytes = own.map(|slot| slot.used_bytes).reduce(u64::saturating_add);
            let part = slot_bytes.unwrap_or(0).min(rest);
            rest -= part;
            parts.insert(name, (slot_bytes.is_some(), part));
        }
        while rest > 0 {
            let in_parts = self.0.iter_mut().filter(|(name, _)| parts.contains_key(name.as_str()));
            let Some((name, ledger)) = in_parts.max_by_key(|(_, ledger)| ledger.room) else {
                break;
            };
            // Where there is no room anywhere any more, one has it all.
            let part = if ledger.room == 0 { rest } else { rest.min(ledger.room) };
            ledger.room = ledger.room.saturating_sub(part);
            rest -= part;
            if let Some((_, bytes)) = parts.get_mut(name.as_str()) {
                *bytes = bytes.saturating_add(part);
            }
        }
        let has_any = |(_, (has_slot, bytes)): &(&str, (bool, u64))| *has_slot || *bytes > 0;
        let parts = parts.into_iter().filter(has_any);
        let part = |(name, (_, bytes)): (&str, (bool, u64))| {
            (name.to_owned(), Found { driver_bytes: Some(bytes), ..found.clone() })
        };
        parts.map(part).collect()
    }
}

#[cfg(test)]
mod tests;
