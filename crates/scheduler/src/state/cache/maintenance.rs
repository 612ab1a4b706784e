//! Work on nodes that is ahead, as `Maintenance` objects plan it: until its start a node takes only
//! pods with GPUs that end or yield in time. From then on the controller's taint holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use octavo_api::checkpoint::Checkpoint;
use octavo_api::maintenance::{Drain, MaintenanceSpec, Plan};
use octavo_api::names::{OCTAVO_API_VERSION, TAINT_MAINTENANCE};
use octavo_engine::solve::NodeSet;
use octavo_kube_io::objects::{Delta, Kind, NodeName, PodUid, TaintEffect, WatchedObject};

use super::Cache;
use super::node::GpuUse;
use super::pod::PodRecord;
use crate::groups::PlacementHints;
use crate::predicates::tolerates;

/// Kind of the objects.
const KIND: &str = "Maintenance";

/// How long a pod may hold up work on its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::state) enum Stay {
    /// Not at all: it has no GPUs, or yields.
    #[default]
    Yields,
    /// For these seconds: then it ends, or loses no more work than it accepts.
    Seconds(u64),
    /// Until it ends by itself.
    Open,
}

/// Work on nodes.
#[derive(Clone, Debug, Default)]
pub(in crate::state) struct Maintenances {
    /// Work whose pods are to leave, by the name of the object.
    plans: BTreeMap<Arc<str>, Plan>,
    /// Nodes whose work is near or in progress, with the start of the first, in seconds since 1970.
    ahead: BTreeMap<NodeName, u64>,
    /// The time, in seconds since 1970.
    now: u64,
    /// When the next work comes near, or ends.
    due: Option<u64>,
}

/// The kind of object to watch; it is cluster-scoped.
pub(crate) fn maintenance_kind() -> Kind {
    Kind::new(OCTAVO_API_VERSION, KIND)
}

/// Why a pod that stays is kept from a node, and perhaps from others with work at the same time.
pub(in crate::state) fn phrase(node: &str, has_others: bool, start: u64) -> String {
    let start = i64::try_from(start).ok().and_then(|start| Timestamp::from_second(start).ok());
    let start = start.map_or_else(String::new, |start| format!(" from {start} on"));
    let subject =
        if has_others { format!("node {node} and others are") } else { format!("node {node} is") };
    format!("{subject} in maintenance{start}, and the pod neither ends nor yields before")
}

impl Maintenances {
    /// Forgets a node.
    pub(super) fn forget(&mut self, node: &NodeName) {
        self.ahead.remove(node);
    }

    /// Applies a change; objects of other kinds are ignored. Returns whether any plan is another.
    fn apply(&mut self, delta: &Delta<WatchedObject>) -> bool {
        let before = self.plans.clone();
        match delta {
            Delta::Upsert(object) if object.kind == KIND => self.set(object),
            Delta::Delete(object) if object.kind == KIND => {
                self.plans.remove(&object.meta.name.name);
            }
            Delta::Replace(kind, objects) if kind.kind == KIND => {
                self.plans.clear();
                for object in objects {
                    self.set(object);
                }
            }
            _ => return false,
        }
        self.plans != before
    }

    /// What cannot be read plans nothing: a condition of the object says so.
    fn set(&mut self, object: &WatchedObject) {
        let spec = serde_json::from_value::<MaintenanceSpec>(object.spec.clone()).ok();
        let plan = spec.and_then(|spec| spec.check().ok());
        let name = Arc::clone(&object.meta.name.name);
        match plan.filter(|plan| plan.drain == Drain::AtStart) {
            Some(plan) => self.plans.insert(name, plan),
            None => self.plans.remove(&name),
        };
    }
}

impl Cache {
    /// Applies a change of work on nodes. Returns the nodes with other work ahead.
    pub(in crate::state) fn apply_maintenances(
        &mut self,
        delta: &Delta<WatchedObject>,
    ) -> Vec<NodeName> {
        if self.maintenances.apply(delta) { self.sync_maintenances() } else { Vec::new() }
    }

    /// Sets the time, in seconds since 1970. Returns the nodes with other work ahead.
    pub(in crate::state) fn set_wall_clock(&mut self, seconds: u64) -> Vec<NodeName> {
        let before = std::mem::replace(&mut self.maintenances.now, seconds);
        let is_due = self.maintenances.due.is_some_and(|due| due <= seconds);
        // A clock that was set back brings work ahead again.
        if is_due || seconds < before { self.sync_maintenances() } else { Vec::new() }
    }

    fn sync_maintenances(&mut self) -> Vec<NodeName> {
        let horizon = self.config.maintenance_horizon_seconds;
        let now = self.maintenances.now;
        let windows = self.maintenances.plans.values().map(|plan| plan.window);
        let times = windows.flat_map(|window| [window.start.saturating_sub(horizon), window.end]);
        self.maintenances.due = times.filter(|time| *time > now).min();
        let mut names: Vec<NodeName> = self.nodes.keys().cloned().collect();
        names.retain(|name| self.sync_maintenance(name));
        for name in &names {
            self.sync_node(name);
        }
        names
    }

    /// Finds the work that is ahead for a node. Returns whether it is another than before.
    pub(super) fn sync_maintenance(&mut self, name: &NodeName) -> bool {
        let (now, horizon) = (self.maintenances.now, self.config.maintenance_horizon_seconds);
        let Some(record) = self.nodes.get(name) else { return false };
        let labels = &record.node.meta.labels;
        let is_near = |plan: &&Plan| {
            plan.window.start <= now.saturating_add(horizon)
                && !plan.window.is_over(now)
                && plan.is_meant(name, labels)
        };
        let near = self.maintenances.plans.values().filter(is_near);
        let start = near.map(|plan| plan.window.start).min();
        let ahead = &mut self.maintenances.ahead;
        let before = match start {
            Some(start) => ahead.insert(name.clone(), start),
            None => ahead.remove(name),
        };
        before != start
    }

    /// How long a pod may hold up work on nodes.
    pub(in crate::state) fn stay(&self, uid: &PodUid) -> Stay {
        self.pods.get(uid).map_or(Stay::Yields, |record| self.stay_of(record))
    }

    /// The same of a pod's record.
    pub(in crate::state) fn stay_of(&self, record: &PodRecord) -> Stay {
        let used = record.node_mask.as_ref().map_or(GpuUse::None, |(_, _, used)| *used);
        self.stay_with(record, used)
    }

    /// The same of a pod that uses GPUs in this way. Where no work is planned all pods count as
    /// yielding.
    pub(super) fn stay_with(&self, record: &PodRecord, used: GpuUse) -> Stay {
        if self.maintenances.plans.is_empty() || used == GpuUse::None {
            return Stay::Yields;
        }
        let pod = &record.pod;
        let hints = PlacementHints::of(&pod.meta).unwrap_or_default();
        let (is_movable, at_risk) = match &record.member {
            Some(member) => {
                let seconds = member.spec.seconds_at_risk;
                (member.spec.is_movable, (seconds > 0).then_some(seconds))
            }
            None => (hints.is_movable.unwrap_or(false), hints.seconds_at_risk),
        };
        let mut tolerations = pod.spec.tolerations.iter();
        let has_hook = matches!(Checkpoint::of(&pod.meta.annotations), Ok(Some(_)));
        if is_movable
            || has_hook
            || tolerations.any(|it| tolerates(it, TAINT_MAINTENANCE, "", TaintEffect::NoSchedule))
        {
            return Stay::Yields;
        }
        let deadline = pod.spec.active_deadline_seconds.map(|it| u64::try_from(it).unwrap_or(0));
        let seconds = [deadline, at_risk.map(u64::from)].into_iter().flatten().min();
        seconds.map_or(Stay::Open, Stay::Seconds)
    }

    /// The start of the work on a node before which a pod neither ends nor yields, in seconds since
    /// 1970.
    pub(in crate::state) fn work_before_end(&self, stay: Stay, node: &str) -> Option<u64> {
        let start = *self.maintenances.ahead.get(node)?;
        self.maintenances.is_kept_away(stay, start).then_some(start)
    }

    /// Nodes of the engine with work before which a pod neither ends nor yields.
    pub(in crate::state) fn nodes_with_work_ahead(&self, stay: Stay) -> NodeSet {
        let ahead = self.maintenances.ahead.iter();
        ahead
            .filter(|(_, start)| self.maintenances.is_kept_away(stay, **start))
            .filter_map(|(name, _)| self.engine.node(name))
            .collect()
    }
}

impl Maintenances {
    fn is_kept_away(&self, stay: Stay, start: u64) -> bool {
        match stay {
            Stay::Yields => false,
            Stay::Seconds(seconds) => start <= self.now.saturating_add(seconds),
            Stay::Open => true,
        }
    }
}
