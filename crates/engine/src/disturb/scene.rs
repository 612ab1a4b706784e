//! The cluster while victims are chosen: which pods may still be disturbed, and what each node
//! offers. What is found for a node holds for all nodes of its signature.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::offers::{self, Offers, View, Way};
use super::price::Price;
use super::view;
use super::who::{Crowd, PodIndex, Unit};
use crate::World;
use crate::node::NodeId;
use crate::shape::Shape;

/// The part that lasts over all domains: it changes only when a kind of pods is found not to be
/// movable after all.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// By kind: pods of it cannot be moved.
    pub(super) is_stuck: Vec<bool>,
    /// By node: its signature, once it was asked for.
    signatures: Vec<Option<u32>>,
    ids: FxHashMap<Vec<u64>, u32>,
    keys: BTreeMap<(u32, Way, Price, u32), u32>,
    /// By signature, group of the gang, and members that are wanted at most.
    offers: BTreeMap<(u32, u32, u32), Arc<Offers>>,
}

/// What is known, with the world and those who are gone in it already.
pub(super) struct Scene<'a> {
    pub(super) world: &'a World,
    pub(super) crowd: &'a Crowd,
    pub(super) known: &'a mut Known,
    /// By pod: it is gone.
    pub(super) gone: Vec<bool>,
    /// By crew: pods that are gone.
    pub(super) lost: Vec<u32>,
    /// States of nodes that were looked at.
    pub(super) spent: &'a mut u64,
    /// So many may be looked at.
    pub(super) limit: u64,
}

impl Known {
    pub(super) fn new(nodes: usize, kinds: usize) -> Self {
        Self { is_stuck: vec![false; kinds], signatures: vec![None; nodes], ..Self::default() }
    }

    /// From now on pods of a kind are not moved. What was known of nodes is forgotten.
    pub(super) fn set_stuck(&mut self, kind: u32) {
        if let Some(stuck) = self.is_stuck.get_mut(kind as usize) {
            *stuck = true;
        }
        self.signatures.fill(None);
    }

    /// A node has changed: who asks for it is told anew.
    pub(super) fn forget(&mut self, node: NodeId) {
        if let Some(signature) = self.signatures.get_mut(node.0 as usize) {
            *signature = None;
        }
    }

    /// Sets which kinds cannot be moved.
    pub(super) fn restore(&mut self, is_stuck: Vec<bool>) {
        self.is_stuck = is_stuck;
        self.signatures.fill(None);
    }
}

impl<'a> Scene<'a> {
    /// Whether no more may be looked at.
    pub(super) fn is_spent(&self) -> bool {
        *self.spent > self.limit
    }

    pub(super) fn way(&self, pod: PodIndex) -> Option<Way> {
        let crew = self.crowd.crew(pod);
        let number = self.crowd.pod(pod).crew;
        let is_stuck = self.known.is_stuck[self.crowd.pod(pod).kind as usize];
        if crew.may_move && !is_stuck {
            Some(Way::Move)
        } else if !crew.may_evict {
            None
        } else if self.slack(number) > 0 {
            Some(Way::Evict)
        } else {
            Some(Way::EvictAll)
        }
    }

    /// How many pods of a crew may still be evicted alone.
    pub(super) fn slack(&self, crew: u32) -> u32 {
        self.crowd.crews[crew as usize].slack.saturating_sub(self.lost[crew as usize])
    }

    /// A node and who may still be disturbed there. Those in `less` count as gone, which the
    /// cluster does not know yet.
    pub(super) fn view(
        &self,
        node: NodeId,
        is_less: impl Fn(PodIndex) -> bool,
    ) -> Option<View<'a>> {
        let mut state = view::of_node(&self.world.cluster, node)?;
        let mut view_pods: SmallVec<[PodIndex; 8]> = SmallVec::new();
        let (mut members, mut ways) = (SmallVec::new(), SmallVec::new());
        for pod in self.crowd.on(node) {
            if self.gone[*pod as usize] {
                continue;
            }
            let Some(member) = self.crowd.member(self.world, *pod) else { continue };
            if is_less(*pod) {
                view::take_off(&mut state, member);
            } else if let Some(way) = self.way(*pod) {
                view_pods.push(*pod);
                members.push(member);
                ways.push(way);
            }
        }
        Some(View { state, pods: view_pods, members, ways })
    }

    /// What a node offers that is as the cluster has it, and its signature.
    pub(super) fn offers(
        &mut self,
        node: NodeId,
        group: u32,
        shape: &Shape,
        most: u32,
    ) -> Option<(u32, Arc<Offers>)> {
        let index = node.0 as usize;
        let known = self.known.signatures.get(index).copied().flatten();
        let signature = if let Some(signature) = known {
            signature
        } else {
            let view = self.view(node, |_| false)?;
            let (signature, _) = self.sign(&view);
            *self.known.signatures.get_mut(index)? = Some(signature);
            signature
        };
        let key = (signature, group, most);
        if let Some(offers) = self.known.offers.get(&key) {
            return Some((signature, Arc::clone(offers)));
        }
        let view = self.ordered(node)?;
        let offers = Arc::new(self.find(&view, shape, most));
        self.known.offers.insert(key, Arc::clone(&offers));
        Some((signature, offers))
    }

    /// A node whose pods are in the order of its signature.
    pub(super) fn ordered(&mut self, node: NodeId) -> Option<View<'a>> {
        let mut view = self.view(node, |_| false)?;
        let (_, order) = self.sign(&view);
        let order = || order.iter().map(|place| usize::from(*place));
        view.pods = order().map(|place| view.pods[place]).collect();
        view.members = order().map(|place| view.members[place]).collect();
        view.ways = order().map(|place| view.ways[place]).collect();
        Some(view)
    }

    pub(super) fn find(&mut self, view: &View<'_>, shape: &Shape, most: u32) -> Offers {
        let (crowd, lost) = (self.crowd, &self.lost);
        let slack =
            |crew: u32| crowd.crews[crew as usize].slack.saturating_sub(lost[crew as usize]);
        offers::find(self.world, crowd, view, shape, most, slack, self.spent)
    }

    /// Whether an eviction of a unit has to do with other nodes.
    pub(super) fn is_coupled(&self, unit: Unit) -> bool {
        match unit {
            Unit::Move(_) => false,
            Unit::Evict(pod) => self.crowd.crew(pod).is_coupled,
            Unit::EvictAll(crew) => self.crowd.crews[crew as usize].is_coupled,
        }
    }

    fn sign(&mut self, view: &View<'_>) -> (u32, SmallVec<[u16; 8]>) {
        let crowd = self.crowd;
        let mut rows: SmallVec<[(u32, &crate::workload::Member); 8]> = SmallVec::new();
        for ((pod, member), way) in view.pods.iter().zip(&view.members).zip(&view.ways) {
            let number = crowd.pod(*pod).crew;
            let (unit, price) = match way {
                Way::Move => (Unit::Move(*pod), Price::ZERO),
                Way::Evict => (Unit::Evict(*pod), crowd.price(Unit::EvictAll(number))),
                Way::EvictAll => (Unit::EvictAll(number), Price::ZERO),
            };
            let price = price.plus(crowd.price(unit)).without_age();
            // Several pods of one crew on a node hang together unless each may go alone.
            let is_bound = *way != Way::Move
                && self.slack(number) < crowd.crews[number as usize].members
                && view.pods.iter().filter(|other| crowd.pod(**other).crew == number).count() > 1;
            let bound = if is_bound { number } else { u32::MAX };
            let next = u32::try_from(self.known.keys.len()).unwrap_or(u32::MAX);
            let key = (crowd.pod(*pod).kind, *way, price, bound);
            rows.push((*self.known.keys.entry(key).or_insert(next), member));
        }
        let (words, order) = view::signature(self.world, &view.state, &rows);
        let next = u32::try_from(self.known.ids.len()).unwrap_or(u32::MAX);
        (*self.known.ids.entry(words).or_insert(next), order)
    }
}
