//! Nodes: records of them, and the engine's picture of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_engine::node::Marks as Bits;
use octavo_kube_io::objects::{Delta, Node};

use super::Core;
use super::marks::MarkKey;
use super::node::{self, NodeRecord};
use super::picture::{NodeWant, Picture};
use crate::predicates::{Capacity, Usage};

impl Core {
    pub(super) fn set_node(&mut self, node: &Arc<Node>) {
        let name = Arc::clone(&node.meta.name.name);
        let capacity = Capacity::of(node);
        self.neighbours.set_node(node);
        if let Some(record) = self.nodes.get_mut(&name) {
            let old = std::mem::replace(&mut record.node, Arc::clone(node));
            if is_same(&old, node) {
                return;
            }
            record.capacity = capacity;
        } else {
            let record = NodeRecord {
                node: Arc::clone(node),
                capacity,
                usage: Usage::default(),
                marks: Bits::NONE,
            };
            self.nodes.insert(Arc::clone(&name), record);
            self.is_picture_old = true;
            // Pods may have been seen before their node.
            self.recount_node(&name);
        }
        let touched = self.devices.apply_nodes(&Delta::Upsert(Arc::clone(node)));
        if touched.are_models_changed {
            self.is_picture_old = true;
        }
        self.note_whether_lost(node);
        self.look_at_node(&name);
        self.something_changed();
    }

    pub(super) fn drop_node(&mut self, name: &Arc<str>) {
        let Some(record) = self.nodes.remove(name) else { return };
        self.neighbours.drop_node(name);
        self.devices.apply_nodes(&Delta::Delete(record.node));
        self.lost.remove(name);
        self.is_picture_old = true;
        self.forget_promises_on(name);
        self.something_changed();
    }

    /// Looks at what a node is like, and brings the picture up to date.
    pub(super) fn look_at_node(&mut self, name: &Arc<str>) {
        let Some(record) = self.nodes.get(name) else { return };
        let marks = self.marks_of(record);
        let Some(record) = self.nodes.get_mut(name) else { return };
        record.marks = marks;
        if self.is_picture_old {
            return;
        }
        let want = self.node_want(name);
        let Some(want) = want else { return };
        let picture = &mut self.picture;
        let is_other_place = picture.labels(name) != Some(&want.spec.labels);
        if is_other_place || picture.set_class(name, &want.spec.class).is_err() {
            self.is_picture_old = true;
            return;
        }
        picture.set_closed(name, want.closed);
    }

    /// Bits of the wishes to which a node says yes.
    fn marks_of(&self, record: &NodeRecord) -> Bits {
        let gpus = self.devices.gpus(&record.node.meta.name.name);
        let says_yes =
            |key: &MarkKey| key.gpus.suits(gpus) && key.rules.check(&record.node).is_ok();
        self.marks
            .iter()
            .filter(|(_, key)| says_yes(key))
            .fold(Bits::NONE, |bits, (bit, _)| Bits(bits.0 | 1 << bit))
    }

    /// Asks all nodes about one wish.
    pub(super) fn spread_mark(&mut self, bit: u8) {
        let Some(key) = self.marks.of(bit).cloned() else { return };
        let names: Vec<_> = self.nodes.keys().cloned().collect();
        for name in names {
            let gpus = self.devices.gpus(&name);
            let Some(record) = self.nodes.get_mut(&name) else { continue };
            let is_yes = key.gpus.suits(gpus) && key.rules.check(&record.node).is_ok();
            let bits = record.marks.0 & !(1 << bit) | u64::from(is_yes) << bit;
            if bits == record.marks.0 {
                continue;
            }
            record.marks = Bits(bits);
            if !self.is_picture_old {
                self.picture.set_marks(&name, Bits(bits));
            }
        }
    }

    fn node_want(&self, name: &Arc<str>) -> Option<NodeWant> {
        let record = self.nodes.get(name)?;
        let gpus = self.devices.gpus(name);
        Some(node::want(record, gpus, &self.config.scheduler_name, &self.level_labels()))
    }

    /// Keys of the labels that levels go by.
    fn level_labels(&self) -> Vec<String> {
        self.config.levels.iter().map(|level| level.label.clone()).collect()
    }

    /// Makes the picture anew, where nodes came or went or have other GPUs.
    pub(super) fn bring_picture_up_to_date(&mut self) {
        if !self.is_picture_old {
            return;
        }
        self.is_picture_old = false;
        let wants: Vec<_> = self.nodes.keys().filter_map(|name| self.node_want(name)).collect();
        let labels: BTreeSet<&str> =
            wants.iter().flat_map(|want| want.spec.labels.keys().map(String::as_str)).collect();
        let levels = self.config.levels(|label| labels.contains(label));
        let learned = self.picture.decider.saved(&self.picture.world.cluster);
        let old_fault = self.picture.topology_fault.take();
        match Picture::new(self.devices.models(), &levels, &wants, learned.as_ref()) {
            Ok(picture) => self.picture = picture,
            Err(misfit) => {
                // Names of nodes are unique and models come from the table, so this is a defect; the
                // cluster is better served without GPUs than not at all.
                tracing::error!(%misfit, "the engine does not take the cluster as it is");
                let bare: Vec<_> = wants.iter().map(NodeWant::without_gpus).collect();
                if let Ok(picture) = Picture::new(&[], &levels, &bare, None) {
                    self.picture = picture;
                }
            }
        }
        if let Some(fault) = &self.picture.topology_fault
            && old_fault.as_ref() != Some(fault)
        {
            tracing::warn!(%fault, "labels of the topology contradict one another; domains are told apart by their path");
        }
        self.refused.clear();
        let uids: Vec<_> = self.in_order_of_age();
        for uid in uids {
            self.refresh(&uid);
        }
        self.show_held_places();
        self.claim_holders.clear();
        let names: Vec<_> = self.nodes.keys().cloned().collect();
        for name in names {
            self.refresh_claims(&name);
        }
    }

    /// Pods in the order in which they came.
    fn in_order_of_age(&self) -> Vec<Arc<str>> {
        let mut pods: Vec<_> = self.pods.values().map(|record| &record.pod.meta).collect();
        pods.sort_by_key(|meta| (meta.created, &meta.name));
        pods.into_iter().map(|meta| Arc::clone(&meta.uid)).collect()
    }

    /// Counts anew what the pods of a node take.
    fn recount_node(&mut self, name: &Arc<str>) {
        let uids: Vec<_> = self.on_node.get(name).into_iter().flatten().cloned().collect();
        for uid in uids {
            if let Some(record) = self.pods.get_mut(&uid) {
                record.counted = None;
            }
            self.refresh(&uid);
        }
    }
}

/// Whether a node is for decisions as it was: heartbeats and images do not matter.
fn is_same(old: &Node, new: &Node) -> bool {
    (&old.meta.labels, &old.taints, &old.allocatable, &old.capacity)
        == (&new.meta.labels, &new.taints, &new.allocatable, &new.capacity)
        && (old.is_unschedulable, old.is_ready) == (new.is_unschedulable, new.is_ready)
}
