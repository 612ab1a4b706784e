//! What the bindings of a gang say about it, for a scheduler that starts later.
//!
//! A gang is bound by many requests, and the scheduler may be killed between any two of them. Each
//! binding writes an annotation into its pod, in the same request. So no pod of the gang is bound
//! without it. It names the minimum that had places then, and when the youngest pod with a place was
//! created. All these times are of the API server, which no clock of a scheduler disturbs.
//!
//! ```text
//!   a pod of the gang without a node   created by that time: its own binding may be missing
//!                                      created later: it replaces a pod that had its node
//! ```
//!
//! So the first keeps the gang from counting as one that ran in full. That holds although the pod may
//! be one above the minimum that has waited since.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_api::names::GANG_PLACED;
use octavo_kube_io::objects::{Meta, Pod};
use serde::{Deserialize, Serialize};

use super::Cache;
use super::members::{is_bound, is_placed};
use crate::groups::{GroupName, GroupSpec};

/// A gang whose minimum had places, as a binding says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlacedGang {
    /// Minimum of members by subgroup.
    min_members: BTreeMap<String, u32>,
    /// When the youngest pod with a place was created, in seconds since 1970.
    youngest_created: i64,
}

impl PlacedGang {
    /// What a pod's binding says. `None`: nothing, or nothing that can be read.
    fn of(pod: &Pod) -> Option<Self> {
        serde_json::from_str(pod.meta.annotations.get(GANG_PLACED)?).ok()
    }
}

impl Cache {
    /// What bindings of a gang say about it. `None` if its minimum has no places.
    pub(in crate::state) fn placed_gang(&self, group: &GroupName) -> Option<Arc<str>> {
        let spec = self.spec_of(group)?;
        if !self.missing_if(group, &spec, is_placed).is_empty() {
            return None;
        }
        let records = self.members(group).filter_map(|uid| self.pod(uid));
        let placed = records.filter(|record| is_placed(record));
        let gang = PlacedGang {
            min_members: spec.subs.iter().map(|sub| (sub.name.to_string(), sub.min)).collect(),
            youngest_created: placed.map(|record| record.pod.meta.created).max()?,
        };
        serde_json::to_string(&gang).ok().map(Arc::from)
    }

    /// The spec with which a gang ran in full earlier, as the bindings of its running pods say.
    pub(super) fn earlier_full_run(
        &self,
        group: &GroupName,
        spec: &GroupSpec,
    ) -> Option<GroupSpec> {
        let records: Vec<_> = self.members(group).filter_map(|uid| self.pod(uid)).collect();
        let waiting = records.iter().filter(|record| record.pod.node.is_none());
        let oldest = waiting.map(|record| record.pod.meta.created).min();
        let bound = records.iter().filter(|record| is_bound(record));
        let placed = bound.filter_map(|record| PlacedGang::of(&record.pod));
        // Those that wait now came after all that had places.
        let full = placed.filter(|gang| oldest.is_none_or(|oldest| gang.youngest_created < oldest));
        let gang = full.max_by_key(|gang| gang.youngest_created)?;
        let mut earlier = spec.clone();
        earlier.subs.retain_mut(|sub| {
            let min = gang.min_members.get(&*sub.name);
            sub.min = min.copied().unwrap_or_default();
            min.is_some()
        });
        Some(earlier)
    }
}

/// Whether the annotations of a pod differ by more than what its binding says about its gang.
pub(super) fn has_other_annotations(old: &Meta, new: &Meta) -> bool {
    let is_other = |(key, _): &(&String, &String)| *key != GANG_PLACED;
    let (old, new) = (old.annotations.iter(), new.annotations.iter());
    old.filter(is_other).ne(new.filter(is_other))
}
