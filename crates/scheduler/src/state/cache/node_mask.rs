//! Feature bits for node requirements other than amounts.
//!
//! The engine has no labels, taints and volumes. Each distinct requirement gets one of the engine's
//! 64 feature bits, and a node has the bit if it satisfies the requirement. Requirements beyond 64
//! in use at once get no bit. Neither do requirements for nodes by name, since each pod of a
//! `DaemonSet` has its own. For these all nodes are checked at each decision.

use std::collections::HashMap;

use octavo_engine::node::FeatureMask;
use octavo_kube_io::objects::Pod;

use super::node::GpuUse;
use crate::predicates::NodeFilterKey;

/// Bits of the engine's feature mask.
const MAX_MASKS: usize = 64;

/// A distinct node requirement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::state) struct MaskKey {
    pub(in crate::state) rules: NodeFilterKey,
    pub(in crate::state) gpus: GpuUse,
    /// Whether nodes with work ahead do not suit it.
    pub(in crate::state) is_kept_from_work: bool,
}

/// How a requirement is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) enum NodeMask {
    /// By this feature bit.
    Bit(u8),
    /// By checking all nodes.
    Scan,
}

/// The requirements that have a bit.
#[derive(Debug, Default)]
pub(in crate::state) struct MaskAllocator {
    slots: Vec<Slot>,
    by_key: HashMap<MaskKey, u8>,
    /// Use counter: the requirement that was used longest ago loses its bit.
    clock: u64,
}

#[derive(Debug)]
struct Slot {
    key: MaskKey,
    users: usize,
    last_used: u64,
}

impl NodeMask {
    /// The features that a shape requires of nodes.
    pub(in crate::state) fn required_features(self) -> FeatureMask {
        match self {
            Self::Bit(bit) => FeatureMask(1 << bit),
            Self::Scan => FeatureMask::NONE,
        }
    }
}

impl MaskAllocator {
    /// Returns the mask of a requirement and counts one more user. `true`: the bit is new, and all
    /// nodes must be checked.
    pub(in crate::state) fn acquire(&mut self, key: &MaskKey, pod: &Pod) -> (NodeMask, bool) {
        self.clock += 1;
        if let Some(bit) = self.by_key.get(key).copied() {
            let slot = &mut self.slots[usize::from(bit)];
            (slot.users, slot.last_used) = (slot.users + 1, self.clock);
            return (NodeMask::Bit(bit), false);
        }
        if selects_nodes_by_name(pod) {
            return (NodeMask::Scan, false);
        }
        let slot = Slot { key: key.clone(), users: 1, last_used: self.clock };
        let index = if self.slots.len() < MAX_MASKS {
            self.slots.push(slot);
            self.slots.len() - 1
        } else {
            let idle = self.slots.iter().enumerate().filter(|(_, slot)| slot.users == 0);
            let Some((index, _)) = idle.min_by_key(|(_, slot)| slot.last_used) else {
                return (NodeMask::Scan, false);
            };
            self.by_key.remove(&self.slots[index].key);
            self.slots[index] = slot;
            index
        };
        let bit = u8::try_from(index).unwrap_or(u8::MAX);
        self.by_key.insert(key.clone(), bit);
        (NodeMask::Bit(bit), true)
    }

    /// Counts one user less.
    pub(in crate::state) fn release(&mut self, mask: NodeMask) {
        if let NodeMask::Bit(bit) = mask
            && let Some(slot) = self.slots.get_mut(usize::from(bit))
        {
            slot.users = slot.users.saturating_sub(1);
        }
    }

    /// All bits with their requirements.
    pub(in crate::state) fn iter(&self) -> impl Iterator<Item = (u8, &MaskKey)> {
        (0..).zip(&self.slots).map(|(bit, slot)| (bit, &slot.key))
    }

    /// The requirement of a bit.
    pub(in crate::state) fn key_of(&self, bit: u8) -> Option<&MaskKey> {
        self.slots.get(usize::from(bit)).map(|slot| &slot.key)
    }
}

/// Whether a pod selects nodes by name.
fn selects_nodes_by_name(pod: &Pod) -> bool {
    let affinity = pod.spec.node_affinity.iter();
    affinity.flat_map(|selector| &selector.terms).any(|term| !term.fields.is_empty())
}
