//! Changes that may make refused entries schedulable, and which entries each of them wakes.
//!
//! A change is noted when it happens and looked at before the next decisions. A change on a node
//! wakes an entry only if one of its pods would fit there, if need be after the pods that it may
//! evict or move have left. These checks are meant as necessary conditions: an entry may wake in
//! vain. One that is missed nevertheless is tried after five minutes.

use octavo_engine::fit;
use octavo_engine::shape::GpuDemand;
use octavo_engine::workload::Profile;
use octavo_engine::{NodeId, Resources, Shape};
use octavo_kube_io::objects::{NodeName, PodUid};

use crate::groups::PlacementHints;
use crate::predicates::Neighbours;
use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::cache::changes::Changes;
use crate::state::cache::pod::PodRecord;
use crate::state::cycle::decide::Attempt;
use crate::state::cycle::refusal_cache::LastRefusal;
use crate::state::queue::{AwaitedRoom, Help, QueueKey, Refused, WaitsFor};
use crate::state::reporter::pending_reason::PendingReason;

/// Members of a gang that are checked for neighbours that keep them away.
const MAX_MEMBERS: usize = 256;

/// What a node would have without the pods that may leave it.
struct NodeRoom {
    node: NodeId,
    free: Resources,
    free_milli: i64,
    leaving: Vec<LeavingPod>,
    /// The priority below which pods may borrow there.
    lent_below: Option<i32>,
}

/// A pod that may leave a node.
struct LeavingPod {
    resources: Resources,
    milli: i64,
    /// The priority below which it may not evict it; `None` if it can only be moved.
    evictable_at: Option<i32>,
    is_movable: bool,
}

impl Scheduler {
    /// Wakes the refused entries that the noted changes may help.
    pub(in crate::state) fn wake_refused(&mut self) {
        let Changes { nodes, victims, neighbours, devices, all } = self.cache.take_changes();
        self.wake_if(all, &Help::Reset, |_| true);
        self.wake_if(victims, &Help::Victims, WaitsFor::may_have_victims);
        self.wake_if(neighbours, &Help::Perhaps, |waits_for| waits_for.room == AwaitedRoom::Any);
        self.wake_if(devices, &Help::Perhaps, |waits_for| waits_for.uses_devices);
        let Some(newest) = nodes.values().max().copied() else { return };
        self.update_allowances();
        let rooms: Vec<(&NodeName, u64, Option<NodeRoom>)> =
            nodes.iter().map(|(name, revision)| (name, *revision, self.node_room(name))).collect();
        for (class, key, waits_for, refused_at) in self.queue.refused_before(newest) {
            let changed = rooms.iter().filter(|(_, revision, _)| *revision > refused_at);
            let help = changed.filter_map(|(name, _, room)| {
                let room = room.as_ref();
                self.help_of_node(&key, &waits_for, name, room)
            });
            // A place is the most that a change can give.
            if let Some(help) = help.max() {
                self.queue.wake_class(class, &help, self.cache.now());
            }
        }
    }

    /// Wakes the classes that were refused before a change and wait for such a one.
    fn wake_if(&mut self, revision: Option<u64>, help: &Help, is_for: impl Fn(&WaitsFor) -> bool) {
        let Some(revision) = revision else { return };
        for (class, _, waits_for, _) in self.queue.refused_before(revision) {
            if is_for(&waits_for) {
                self.queue.wake_class(class, help, self.cache.now());
            }
        }
    }

    /// How a change of a node may help an entry.
    fn help_of_node(
        &self,
        key: &QueueKey,
        waits_for: &WaitsFor,
        name: &NodeName,
        room: Option<&NodeRoom>,
    ) -> Option<Help> {
        let shapes = match &waits_for.room {
            AwaitedRoom::None => return None,
            AwaitedRoom::Any => return Some(Help::Perhaps),
            AwaitedRoom::For(shapes) => shapes,
        };
        let room = room?;
        let cluster = &self.cache.engine().world.cluster;
        let fits = |shape: &Shape| fit::times_on(cluster, room.node, shape) > 0;
        if shapes.iter().any(|shape| fits(shape)) {
            // What the engine does not count.
            let is_taken = match key {
                QueueKey::Pod(uid) => {
                    self.cache.check_node_rules(uid, name).is_err()
                        || self.check_node_fit(uid, name).is_err()
                }
                QueueKey::Group(_) => false,
            };
            if !is_taken {
                return Some(Help::Room(name.clone()));
            }
        }
        if let QueueKey::Pod(uid) = key
            && self.may_borrow_on(uid, name, room.lent_below)
            && self.cache.can_yield(uid)
        {
            return Some(Help::Room(name.clone()));
        }
        // A pod of another node may move to this one.
        if waits_for.moves {
            return Some(Help::Victims);
        }
        if let QueueKey::Pod(uid) = key
            && self.cache.check_node_rules(uid, name).is_err()
        {
            return None;
        }
        let could_fit = |shape: &Shape| {
            fit::is_allowed(cluster.class(room.node), shape) && room.fits(shape, waits_for)
        };
        (waits_for.may_have_victims() && shapes.iter().any(|shape| could_fit(shape)))
            .then_some(Help::Victims)
    }

    fn node_room(&self, name: &NodeName) -> Option<NodeRoom> {
        let node = self.cache.engine().node(name)?;
        let world = &self.cache.engine().world;
        let gpus = world.cluster.gpus(node).iter();
        let leaving = world.workloads.on(node).filter_map(|id| {
            let Profile { priority, is_preemptible, is_movable, .. } =
                world.workloads.workload(id.workload)?.profile;
            let member = world.workloads.member(id)?;
            let left = member.limit.map(|limit| world.workloads.eviction_limits.allowance(limit));
            left.is_none_or(|left| left > 0).then(|| LeavingPod {
                resources: member.shape.resources,
                milli: member.gpu_milli(),
                evictable_at: is_preemptible.then_some(priority),
                is_movable,
            })
        });
        Some(NodeRoom {
            node,
            free: world.cluster.free(node),
            free_milli: gpus.map(|gpu| i64::from(gpu.milli)).sum(),
            leaving: leaving.collect(),
            lent_below: self.lent_below(name),
        })
    }

    /// Records that an entry was refused. It waits for a change that may help.
    pub(in crate::state) fn refuse(&mut self, key: &QueueKey, reason: &PendingReason) {
        let LastRefusal { class, search, .. } = std::mem::take(&mut self.refusals.last);
        let class = class.filter(|_| reason.lacks_place());
        let waits_for = self.cache.waits_for(key, reason);
        let useless = match self.queue.woken_by(key) {
            Some((waits_for, Help::Room(node))) => {
                let room = self.node_room(&node);
                self.help_of_node(key, &waits_for, &node, room.as_ref())
            }
            Some((_, Help::Perhaps)) => Some(Help::Perhaps),
            _ => None,
        };
        let refused =
            Refused { revision: self.cache.revision(), now: self.cache.now(), search, useless };
        self.queue.refuse(key, class, waits_for, refused);
    }

    /// Handles the refusal of an attempt.
    pub(in crate::state) fn attempt_refused(
        &mut self,
        key: &QueueKey,
        attempt: Attempt,
        reason: &PendingReason,
    ) {
        if attempt == Attempt::WithoutVictims && reason.lacks_place() {
            // The reason of the last full decision stays.
            let reason = self.reporter.pending(key).map_or("", |pending| pending.reason.as_str());
            self.reporter.metrics().decided(key, "refused", reason);
            self.refuse(key, &PendingReason::NoFreePlace);
        } else {
            self.set_pending(key, reason);
        }
    }

    /// What a decision on an entry may do now.
    pub(in crate::state) fn attempt_for(&self, key: &QueueKey) -> Attempt {
        if self.queue.may_search_victims(key, self.cache.now()) {
            Attempt::Full
        } else {
            Attempt::WithoutVictims
        }
    }
}

impl NodeRoom {
    /// Whether a pod could fit by its amounts after the pods have left that may. An upper bound.
    fn fits(&self, shape: &Shape, waits_for: &WaitsFor) -> bool {
        let leaves = |pod: &&LeavingPod| {
            let is_evictable = pod.evictable_at.is_some_and(|priority| {
                waits_for.evicts_below.is_some_and(|below| priority < below)
            });
            is_evictable || (waits_for.moves && pod.is_movable)
        };
        let (mut free, mut milli) = (self.free, self.free_milli);
        for pod in self.leaving.iter().filter(leaves) {
            free = free.plus(&pod.resources);
            milli = milli.saturating_add(pod.milli);
        }
        let needs_milli = match &shape.gpus {
            // Profiles differ by model; any free compute may do.
            GpuDemand::Mig { .. } => 1,
            gpus => gpus.total_milli(),
        };
        shape.resources.fits(&free) && needs_milli <= milli
    }
}

impl Cache {
    /// What a refused entry waits for. `reason` is why it was refused.
    fn waits_for(&self, key: &QueueKey, reason: &PendingReason) -> WaitsFor {
        let uids = self.pods_of(key);
        let pending: Vec<(&PodUid, &PodRecord)> = uids
            .iter()
            .filter_map(|uid| self.pods().get_key_value(uid))
            .filter(|(_, record)| record.is_pending_for(&self.config().scheduler_name))
            .collect();
        let may_preempt = |record: &PodRecord| record.pod.spec.may_preempt;
        let is_preempting =
            self.config().preemption && pending.iter().all(|(_, record)| may_preempt(record));
        // A gang counts with the highest priority of its members, placed ones included.
        let all = uids.iter().filter_map(|uid| self.pod(uid));
        let priority = all.map(|record| {
            let of_gang = record.member.as_ref().and_then(|member| member.spec.priority);
            of_gang.unwrap_or(record.pod.spec.priority)
        });
        let room = match reason {
            PendingReason::Surplus => self.room_for(key, &pending),
            reason if reason.lacks_place() => self.room_for(key, &pending),
            PendingReason::Failed(_) => AwaitedRoom::Any,
            _ => AwaitedRoom::None,
        };
        let uses_devices = |record: &PodRecord| {
            !record.pod.spec.claims.is_empty() || record.footprint.extended().next().is_some()
        };
        WaitsFor {
            room,
            uses_devices: pending.iter().any(|(_, record)| uses_devices(record)),
            evicts_below: priority.max().filter(|_| is_preempting),
            moves: self.config().defragmentation_moves > 0,
        }
    }

    /// The room that these pods of an entry need on some node.
    fn room_for(&self, key: &QueueKey, pending: &[(&PodUid, &PodRecord)]) -> AwaitedRoom {
        let mut shapes = Vec::new();
        for (_, record) in pending {
            let Some(shape) = &record.shape else { return AwaitedRoom::Any };
            if !shapes.contains(shape) {
                shapes.push(shape.clone());
            }
        }
        let has_rules = pending.iter().any(|(_, record)| Neighbours::has_rules(&record.pod));
        let is_kept_away = has_rules
            || pending.iter().take(MAX_MEMBERS).any(|(uid, _)| !self.exclusions(uid).is_empty());
        if is_kept_away || self.has_limits(key, pending) {
            AwaitedRoom::Any
        } else {
            AwaitedRoom::For(shapes)
        }
    }

    /// Whether the policy of an entry limits what the whole cluster uses or keeps free.
    pub(in crate::state) fn has_limits(
        &self,
        key: &QueueKey,
        pending: &[(&PodUid, &PodRecord)],
    ) -> bool {
        let policy = match key {
            QueueKey::Group(group) => self.spec_of(group).and_then(|spec| spec.policy.clone()),
            QueueKey::Pod(_) => pending
                .first()
                .and_then(|(_, record)| PlacementHints::of(&record.pod.meta).ok()?.policy),
        };
        let Ok(policy) = self.policies().find(policy.as_deref()) else { return false };
        policy.has_limits()
    }
}
