//! Reads the network cards that serve a node's GPUs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::thread::{self, JoinHandle};

use octavo_gpu::{Gpu, NetworkCard, PciPath};

use super::requests::{HealthMessage, Message};
use super::{Monitor, now};
use crate::health::CardLook;

/// Stack size of the thread of a look.
const STACK_BYTES: usize = 256 * 1024;

/// Looks at network cards, each on a thread of its own: a card whose firmware hangs holds up no fence.
#[derive(Debug, Default)]
pub(super) struct CardLooks {
    /// The last look.
    thread: Option<JoinHandle<()>>,
    /// The number of pauses so far. What a look finds that began before the last one is of no account.
    pauses: u64,
    /// Whether the last look failed, or does not end.
    has_failed: bool,
}

impl Monitor {
    /// Begins a look at the ports of the network cards, unless the policy ignores these. What it finds comes as a message.
    pub(super) fn look_at_nics(&mut self) {
        let Some(sys_root) = self.sys_root.clone().filter(|_| self.health.reads_nics()) else {
            self.pause_nics();
            return;
        };
        if self.card_looks.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            self.nics_unread("the last look has not ended: a card may hang");
            return;
        }
        let inventory = self.snapshot.inventory.clone();
        let (sender, number) = (self.requests.sender.clone(), self.card_looks.pauses);
        let look = move || {
            let gpus = inventory.as_ref().map_or(&[][..], |found| &found.gpus);
            let found = HealthMessage::Nics(number, look(&sys_root, gpus));
            let _ = sender.send(Message::Health(found));
        };
        let thread = thread::Builder::new().name("card-look".to_owned());
        match thread.stack_size(STACK_BYTES).spawn(look) {
            Ok(thread) => self.card_looks.thread = Some(thread),
            Err(error) => self.nics_unread(&error.to_string()),
        }
    }

    /// Network cards are not looked at for a while: what happens to them meanwhile is no fault of theirs.
    pub(super) fn pause_nics(&mut self) {
        self.card_looks.pauses += 1;
        self.health.pause_nics();
    }

    /// Takes what a look at the network cards found.
    pub(super) fn take_nics(&mut self, number: u64, found: io::Result<Vec<CardLook>>) {
        match found {
            _ if number != self.card_looks.pauses => {}
            Ok(looks) => {
                self.card_looks.has_failed = false;
                self.health.nics(&looks, now());
            }
            Err(error) => self.nics_unread(&error.to_string()),
        }
    }

    fn nics_unread(&mut self, error: &str) {
        self.pause_nics();
        if !std::mem::replace(&mut self.card_looks.has_failed, true) {
            tracing::error!(node = %self.node, error, sys_root = ?self.sys_root, "network cards cannot be read: faults of them are not seen; trying again");
        }
    }
}

/// All network cards, and the ports of those that serve GPUs.
fn look(sys_root: &Path, gpus: &[Gpu]) -> io::Result<Vec<CardLook>> {
    let cards = NetworkCard::all(sys_root)?;
    if cards.is_empty() {
        return Ok(Vec::new());
    }
    let mut served: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for gpu in gpus {
        let Some(path) = PciPath::of(sys_root, gpu.pci) else { continue };
        for card in NetworkCard::serving(&cards, &path) {
            served.entry(&card.name).or_default().insert(gpu.uuid.clone());
        }
    }
    let look = |card: &NetworkCard| {
        let gpus = served.get(&*card.name).cloned().unwrap_or_default();
        let ports = card.ports.iter().filter(|_| !gpus.is_empty());
        let ports = ports.map(|port| (*port, card.port(sys_root, *port).ok())).collect();
        CardLook { pci: card.pci, name: card.name.clone(), gpus, ports }
    };
    Ok(cards.iter().map(look).collect())
}

#[cfg(test)]
mod tests;
