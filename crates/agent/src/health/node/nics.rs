//! The network cards of a node: a GPU whose card is at fault takes no new pods, and passes no test until the card is well. The test of a
//! GPU mends no card, so it waits.

use std::collections::{BTreeMap, BTreeSet};

use octavo_health::policy::NetworkCards;
use octavo_health::signal::{Report, Signal};
use octavo_health::unit::{DeviceId, Place, Topology, Unit};

use super::NodeHealth;
use crate::health::nics::{Card, CardLook};

impl NodeHealth {
    /// Whether network cards are to be read.
    pub(crate) fn reads_nics(&self) -> bool {
        self.orders.policy.network_cards == NetworkCards::Count
    }

    /// Network cards are not read for a while.
    pub(crate) fn pause_nics(&mut self) {
        self.record.nics.values_mut().for_each(Card::pause);
    }

    /// Takes what all network cards of the node show. Before the policy is known nothing is reported: it may say that they do not count.
    pub(crate) fn nics(&mut self, looks: &[CardLook], now: u64) {
        let cards = &mut self.record.nics;
        let mut observed = BTreeMap::new();
        let mut is_moved = false;
        // Of a card whose GPUs are away, what is known stays.
        for look in looks.iter().filter(|look| !look.gpus.is_empty()) {
            let pci = look.pci.to_string();
            let card = cards.entry(pci.clone()).or_default();
            is_moved |= !card.is_placed_as(look);
            observed.insert(pci, card.look(look, now));
        }
        let there: BTreeSet<String> = looks.iter().map(|look| look.pci.to_string()).collect();
        for (pci, card) in cards.iter_mut().filter(|(pci, _)| !there.contains(*pci)) {
            observed.insert(pci.clone(), card.gone(now));
        }
        let before = cards.len();
        let served: BTreeSet<&String> = looks.iter().flat_map(|look| &look.gpus).collect();
        let is_replaced = |pci: &String, card: &Card| {
            let mut looks = looks.iter().filter(|look| look.pci.to_string() == *pci);
            looks.any(|look| card.is_replaced(look, &served))
        };
        cards.retain(|pci, card| !card.is_forgotten() && !is_replaced(pci, card));
        if is_moved || cards.len() != before {
            self.place_nics();
        }
        if !self.has_orders || !self.reads_nics() {
            return;
        }
        for (number, pci) in (0..).zip(self.record.nics.keys()) {
            let reports = observed.remove(pci).unwrap_or_default().into_iter();
            let unit = Unit::Nic(number);
            let signal =
                |observation| Signal { at: now, unit, report: Report::Observation(observation) };
            self.signals.extend(reports.map(signal));
        }
    }

    /// Notes which network cards serve which GPUs. Cards are numbered in the order of their addresses.
    pub(super) fn place_nics(&mut self) {
        let uuids: BTreeMap<DeviceId, &String> =
            self.record.gpus.iter().map(|(uuid, known)| (known.id, uuid)).collect();
        let nics = |device: DeviceId| {
            let serves = |uuid: &String| {
                let cards = (0..).zip(self.record.nics.values());
                let serving = cards.filter(|(_, card)| card.serves(uuid));
                serving.map(|(number, _)| number).collect::<Vec<u32>>()
            };
            uuids.get(&device).copied().map(serves).unwrap_or_default()
        };
        let places = self.topology.places();
        let places =
            places.map(|(device, place)| (device, Place { nics: nics(device), ..place.clone() }));
        self.topology = Topology::new(places.collect(), []);
    }

    /// Finds what is at fault with the network cards of each GPU now.
    pub(super) fn find_nic_faults(&mut self, now: u64) {
        let mut faults = BTreeMap::new();
        for card in self.record.nics.values().filter(|_| self.reads_nics()) {
            let Some(fault) = card.fault(now) else { continue };
            for uuid in self.record.gpus.keys().filter(|uuid| card.serves(uuid)) {
                faults.entry(uuid.clone()).or_insert_with(|| fault.clone());
            }
        }
        for (gpu, fault) in faults.iter().filter(|(gpu, _)| !self.nic_faults.contains_key(*gpu)) {
            tracing::warn!(gpu, fault, "a network card of a GPU is at fault");
        }
        for gpu in self.nic_faults.keys().filter(|gpu| !faults.contains_key(*gpu)) {
            tracing::info!(gpu, "the network cards of a GPU are well again");
        }
        self.nic_faults = faults;
    }
}
