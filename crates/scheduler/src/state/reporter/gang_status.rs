//! Status of gangs, for the status of their objects.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::groups::{GroupKind, GroupName, GroupSpec};
use crate::state::Scheduler;
use crate::state::queue::QueueKey;
use crate::state::reporter::Reporter;
use crate::state::reporter::pending_reason::{PendingStatus, Reason};
use crate::status::{GroupPhase, GroupStatus, StatusText, StatusUpdate};

/// The last phase of each gang that has pods, and how many gangs each phase has.
#[derive(Debug, Default)]
pub(in crate::state) struct GangPhases {
    of_gang: HashMap<GroupName, GroupPhase>,
    counts: BTreeMap<GroupPhase, usize>,
}

impl GangPhases {
    fn set(&mut self, gang: &GroupName, phase: GroupPhase) {
        let before = self.of_gang.insert(gang.clone(), phase);
        self.uncount(before);
        *self.counts.entry(phase).or_insert(0) += 1;
    }

    /// Forgets a gang without pods.
    pub(in crate::state) fn remove(&mut self, gang: &GroupName) {
        let before = self.of_gang.remove(gang);
        self.uncount(before);
    }

    /// Gangs by phase, for every phase that a gang has been in.
    pub(in crate::state) fn counts(&self) -> impl Iterator<Item = (GroupPhase, usize)> {
        self.counts.iter().map(|(phase, count)| (*phase, *count))
    }

    fn uncount(&mut self, phase: Option<GroupPhase>) {
        if let Some(count) = phase.and_then(|phase| self.counts.get_mut(&phase)) {
            *count -= 1;
        }
    }
}

impl Scheduler {
    /// Reports a gang that a pod has left, if its object has a status. An event for each pod that
    /// ends would be noise.
    pub(in crate::state) fn report_departure(&mut self, group: &GroupName, spec: &GroupSpec) {
        if !has_status(spec) {
            return;
        }
        if self.cache.gangs().contains_key(group) {
            self.reporter.report_group(group);
            return;
        }
        self.reporter.reports.push(StatusUpdate::Group(GroupStatus {
            kind: spec.announcer.kind.clone(),
            name: spec.announcer.name.clone(),
            uid: Arc::clone(&spec.announcer.uid),
            generation: spec.announcer.generation,
            phase: GroupPhase::Gathering,
            status_text: StatusText {
                reason: Reason::Gathering.as_str(),
                message: "the gang has no pods".to_owned(),
            },
            present: BTreeMap::new(),
            bound: BTreeMap::new(),
            domain: None,
        }));
    }

    /// Reports the gangs that have changed.
    pub(in crate::state) fn report_changed_gangs(&mut self) {
        for group in std::mem::take(&mut self.reporter.changed_gangs) {
            self.push_group_report(&group);
        }
    }

    fn push_group_report(&mut self, group: &GroupName) {
        let Some(spec) = self.cache.spec_of(group) else { return };
        let key = QueueKey::Group(group.clone());
        let (mut present, mut bound) = (BTreeMap::new(), BTreeMap::new());
        let mut common_domain: Option<octavo_engine::DomainId> = None;
        let topology = &self.cache.engine().world.topology;
        for uid in self.cache.present_members(group) {
            let Some(record) = self.cache.pod(&uid) else { continue };
            let Some(member) = &record.member else { continue };
            *present.entry(Arc::clone(&member.sub)).or_insert(0) += 1;
            let Some(place) = &record.place else { continue };
            if place.state == crate::state::cache::pod::PlaceState::Nominated {
                continue;
            }
            *bound.entry(Arc::clone(&member.sub)).or_insert(0) += 1;
            let Some(node) = self.cache.engine().node(&place.node) else { continue };
            let node_domain = topology.leaf_domain(node);
            common_domain = Some(match common_domain {
                None => node_domain,
                Some(current) => {
                    let mut above = topology.ancestors(node_domain);
                    let nodes = |id| topology.domain(id).nodes.clone();
                    let inner = nodes(current);
                    above
                        .find(|id| {
                            let outer = nodes(*id);
                            outer.start <= inner.start && inner.end <= outer.end
                        })
                        .unwrap_or(octavo_engine::Topology::ROOT)
                }
            });
        }
        let pending = self.reporter.pending.get(&key);
        let status_text = pending.map(PendingStatus::gang_statement);
        let all_bound: u32 = bound.values().sum();
        let phase = if self.reservations.is_nominated(&key) {
            GroupPhase::Preempting
        } else {
            match pending {
                Some(pending) if pending.reason == Reason::Gathering => GroupPhase::Gathering,
                Some(_) if all_bound > 0 && all_bound < spec.min => GroupPhase::Repairing,
                Some(_) if all_bound == 0 => GroupPhase::Waiting,
                _ if all_bound >= spec.min && all_bound > 0 => GroupPhase::Scheduled,
                _ => GroupPhase::Binding,
            }
        };
        if self.cache.gangs().contains_key(group) {
            self.reporter.gang_phases.set(group, phase);
        }
        let status_text = status_text.unwrap_or_else(|| StatusText {
            reason: Reason::Scheduled.as_str(),
            message: format!("{all_bound} pods are placed"),
        });
        self.reporter.reports.push(StatusUpdate::Group(GroupStatus {
            kind: spec.announcer.kind.clone(),
            name: spec.announcer.name.clone(),
            uid: Arc::clone(&spec.announcer.uid),
            generation: spec.announcer.generation,
            phase,
            status_text,
            present,
            bound,
            domain: common_domain.map(|id| topology.path(id)),
        }));
    }
}

impl Reporter {
    /// Reports a gang with the next reports. Its members are counted once then, however many of them
    /// have changed.
    pub(in crate::state) fn report_group(&mut self, group: &GroupName) {
        self.changed_gangs.insert(group.clone());
    }
}

/// Whether the object that announced a gang is a pod group, whose status reports the gang.
pub(in crate::state) fn has_status(spec: &GroupSpec) -> bool {
    let kind = &spec.announcer.kind;
    matches!(
        GroupKind::of(&kind.api_version, &kind.kind),
        Some(
            GroupKind::PodGroup
                | GroupKind::NativePodGroup
                | GroupKind::CoschedulingPodGroup
                | GroupKind::VolcanoPodGroup
        )
    )
}
