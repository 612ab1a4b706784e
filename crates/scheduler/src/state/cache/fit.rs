//! What a node lets a pod do: its rules, and the rules of the pods there.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_kube_io::objects::{NodeName, PodUid};

use super::{Cache, maintenance};
use crate::predicates::{Neighbours, NodeFilterKey, Usage};
use crate::state::cycle::reserve::ReserveError;

impl Cache {
    /// Checks a node's taints, labels and reach of volumes, and whether work on it is ahead.
    pub(in crate::state) fn check_node_rules(
        &self,
        uid: &PodUid,
        node: &str,
    ) -> Result<(), ReserveError> {
        let (Some(record), Some(node)) = (self.pods.get(uid), self.nodes.get(node)) else {
            return Err(ReserveError::NoNode);
        };
        let name = &node.node.meta.name.name;
        if let Some(start) = self.work_before_end(self.stay_of(record), name) {
            return Err(ReserveError::Rules(maintenance::phrase(name, false, start)));
        }
        let node = &node.node;
        let gpus = self.devices.gpus(&node.meta.name.name);
        let checked = match &record.node_mask {
            Some((_, _, used)) if !used.suits(gpus) => {
                let why = "its GPUs are not of the kind that is requested";
                return Err(ReserveError::Rules(why.to_owned()));
            }
            Some((_, rules, _)) => rules.check(node),
            // The pod has changed since it got its place.
            None => NodeFilterKey::of(&record.pod, &self.volumes).check(node),
        };
        checked.map_err(|unfit| ReserveError::Rules(unfit.to_string()))
    }

    /// Checks whether other pods keep a pod without a place away from a node.
    pub(in crate::state) fn check_neighbours(
        &self,
        uid: &PodUid,
        node: &str,
    ) -> Result<(), ReserveError> {
        let (Some(record), Some(node)) = (self.pods.get(uid), self.nodes.get(node)) else {
            return Err(ReserveError::NoNode);
        };
        let away = self.neighbours.exclusions(&record.pod, &self.volumes);
        away.check(&node.node).map_err(|unfit| ReserveError::Neighbours(unfit.to_string()))
    }

    /// Checks the rules about other pods for members of a plan as they will be: its victims are
    /// gone, and the members before are in their places.
    pub(in crate::state) fn check_neighbours_after(
        &mut self,
        members: &[(PodUid, NodeName)],
        victims: &BTreeSet<PodUid>,
    ) -> Result<(), ReserveError> {
        let is_concerned = |uid: &PodUid| {
            let record = self.pods.get(uid);
            record.is_some_and(|record| Neighbours::has_rules(&record.pod))
                || !self.exclusions(uid).is_empty()
        };
        if !members.iter().any(|(uid, _)| is_concerned(uid)) {
            return Ok(());
        }
        self.without_neighbours(victims, |scheduler| {
            let mut placed: Vec<&PodUid> = Vec::new();
            let mut result = Ok(());
            for (uid, node) in members {
                result = scheduler.check_neighbours(uid, node);
                let Some(record) = scheduler.pods.get(uid).filter(|_| result.is_ok()) else {
                    break;
                };
                scheduler.neighbours.add(&record.pod, node);
                placed.push(uid);
            }
            for uid in placed {
                scheduler.neighbours.remove(uid);
            }
            result
        })
    }

    /// Asks as if these pods had left, as the rules of other pods see them.
    pub(in crate::state) fn without_neighbours<T>(
        &mut self,
        leaving: &BTreeSet<PodUid>,
        ask: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let records = leaving.iter().filter_map(|uid| self.pods.get(uid));
        let counted: Vec<_> = records
            .filter_map(|record| Some((Arc::clone(&record.pod), record.neighbour_on.clone()?)))
            .collect();
        for (pod, _) in &counted {
            self.neighbours.remove(&pod.meta.uid);
        }
        let answer = ask(self);
        for (pod, node) in &counted {
            self.neighbours.add(pod, node);
        }
        answer
    }

    /// A node's usage as if these pods had left.
    pub(in crate::state) fn usage_without<'a>(
        &self,
        node: &NodeName,
        leaving: impl IntoIterator<Item = &'a str>,
    ) -> Option<Usage> {
        let mut usage = self.nodes.get(node)?.usage.clone();
        let gone = leaving.into_iter().filter_map(|uid| self.pods.get(uid));
        for gone in gone.filter(|gone| gone.counted_on.as_ref() == Some(node)) {
            usage.remove(&gone.footprint);
        }
        Some(usage)
    }
}
