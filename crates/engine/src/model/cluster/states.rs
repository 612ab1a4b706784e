//! States of nodes. Nodes of one class with equal free amounts are interchangeable, so a figure
//! computed for one holds for all.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::gpu::GpuFree;
use crate::node::{ClassId, NodeId};
use crate::resources::Resources;

/// The free capacity of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeState {
    /// Its class.
    pub class: ClassId,
    /// Whether pods may be placed on it.
    pub is_open: bool,
    /// Free plain resources.
    pub free: Resources,
    /// Free capacity of its GPUs: sorted if all GPUs are equally near, because their order does not
    /// matter then; otherwise by index.
    pub gpus: SmallVec<[GpuFree; 8]>,
}

/// A current or former state. Slots are reused under a new generation, so values cached for an old
/// generation are never taken for the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateId {
    /// Index of the slot: dense, for tables by slot.
    pub slot: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

/// All states that nodes are in.
#[derive(Clone, Debug, Default)]
pub struct States {
    slots: Vec<Slot>,
    unused: Vec<u32>,
    by_state: FxHashMap<NodeState, u32>,
}

#[derive(Clone, Debug)]
struct Slot {
    generation: u32,
    state: NodeState,
    nodes: BTreeSet<NodeId>,
}

/// Orders GPUs that are equally near.
pub(crate) fn sort(gpus: &mut SmallVec<[GpuFree; 8]>) {
    gpus.sort_unstable();
}

impl States {
    /// Current states in slot order. This order depends on history, so no decision may depend on
    /// it.
    pub fn iter(&self) -> impl Iterator<Item = (StateId, &NodeState, &BTreeSet<NodeId>)> {
        (0_u32..).zip(&self.slots).filter(|(_, slot)| !slot.nodes.is_empty()).map(
            |(number, slot)| {
                (StateId { slot: number, generation: slot.generation }, &slot.state, &slot.nodes)
            },
        )
    }

    /// Number of slots: one more than the greatest slot.
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// A state, if a node is in it.
    pub fn state(&self, id: StateId) -> Option<&NodeState> {
        self.live(id).map(|slot| &slot.state)
    }

    /// The nodes in a state, ascending; empty for a state without nodes.
    pub fn nodes(&self, id: StateId) -> impl Iterator<Item = NodeId> + '_ {
        self.live(id).into_iter().flat_map(|slot| slot.nodes.iter().copied())
    }

    /// The first node in a state.
    pub fn first_node(&self, id: StateId) -> Option<NodeId> {
        self.live(id).and_then(|slot| slot.nodes.first().copied())
    }

    fn live(&self, id: StateId) -> Option<&Slot> {
        let slot = self.slots.get(id.slot as usize)?;
        (slot.generation == id.generation && !slot.nodes.is_empty()).then_some(slot)
    }

    pub(super) fn enter(&mut self, state: NodeState, node: NodeId) -> StateId {
        if let Some(&number) = self.by_state.get(&state) {
            let slot = &mut self.slots[number as usize];
            slot.nodes.insert(node);
            return StateId { slot: number, generation: slot.generation };
        }
        let nodes = BTreeSet::from([node]);
        let number = if let Some(number) = self.unused.pop() {
            let slot = &mut self.slots[number as usize];
            let generation = slot.generation.wrapping_add(1);
            *slot = Slot { generation, state: state.clone(), nodes };
            number
        } else {
            self.slots.push(Slot { generation: 0, state: state.clone(), nodes });
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        };
        self.by_state.insert(state, number);
        StateId { slot: number, generation: self.slots[number as usize].generation }
    }

    pub(super) fn exchange(&mut self, old: StateId, new: NodeState, node: NodeId) -> StateId {
        let slot = &mut self.slots[old.slot as usize];
        if slot.state == new {
            return old;
        }
        slot.nodes.remove(&node);
        if slot.nodes.is_empty() {
            self.by_state.remove(&slot.state);
            self.unused.push(old.slot);
        }
        self.enter(new, node)
    }
}
