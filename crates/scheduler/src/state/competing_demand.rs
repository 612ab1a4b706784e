//! Others that wait: they count for what pods are typical, and for what each tenant wants. By policies
//! that look at neither they are not looked for.

use std::sync::Arc;

use octavo_engine::gang::Group;
use octavo_engine::gpu::ModelSet;
use octavo_engine::node::Marks as FeatureMask;
use octavo_engine::objective::Unit as CostTerm;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::workload::Profile;
use octavo_engine::{Gang, Shape};

use super::Scheduler;
use super::pod::{self, PodRecord};
use super::queue::QueueKey;

/// Units that are looked at: the first of the queue.
const MAX_COMPETING_GANGS: usize = 64;

impl Scheduler {
    /// The others that wait, in the order of the queue, as far as the policy wants to know of them.
    pub(super) fn competing_gangs(&self, gang: &Gang, policy: &PlacementPolicy) -> Vec<Gang> {
        // A single pod whose place only the packing policy chooses: that one learns by itself.
        let is_packed = gang.count() == 1 && policy.is_packing_alone();
        let terms = [CostTerm::GpuMilliStranded, CostTerm::PackingPrice, CostTerm::FairnessDeficit];
        if is_packed || !terms.iter().any(|term| policy.has(*term)) {
            return Vec::new();
        }
        // Who asks may be among them. Those of whom nothing is known are no reason to ask for more.
        let first = self.queue.in_order().take(MAX_COMPETING_GANGS + 1);
        let competing = first.filter_map(|position| self.pending_gang(&position.key));
        competing
            .filter(|other| other.profile.name != gang.profile.name)
            .take(MAX_COMPETING_GANGS)
            .collect()
    }

    /// What waits of a unit; none: nobody of it.
    fn pending_gang(&self, key: &QueueKey) -> Option<Gang> {
        let mut gang: Option<Gang> = None;
        let mut estimated: Option<Arc<Shape>> = None;
        for uid in self.pods_of(key) {
            let Some(record) = self.pods.get(&uid) else { continue };
            if !record.is_pending_for(&self.config.scheduler_name) {
                continue;
            }
            let gang = gang.get_or_insert_with(|| Gang {
                profile: record
                    .profile
                    .as_deref()
                    .map_or_else(|| self.profile_of(record), Profile::clone),
                groups: Vec::new(),
            });
            let known = record.shape.as_ref().or(estimated.as_ref()).cloned();
            // Members that were not looked at yet are taken to be alike.
            let Some(shape) = known.or_else(|| self.estimate_shape(record)) else { continue };
            if record.shape.is_none() {
                estimated = Some(Arc::clone(&shape));
            }
            if let Some(group) = gang.groups.iter_mut().find(|group| *group.shape == *shape) {
                (group.count, group.min) = (group.count + 1, group.min + 1);
            } else {
                let name = format!("members-{}", gang.groups.len());
                gang.groups.push(Group::new(name, shape, 1));
            }
        }
        gang.filter(|gang| !gang.groups.is_empty())
    }

    /// What a pod asks for that was not looked at yet, whatever it wishes of nodes.
    fn estimate_shape(&self, record: &PodRecord) -> Option<Arc<Shape>> {
        let ask = self.devices.ask(&record.pod).ok()?;
        let models = if ask.demand.is_some() { ask.models } else { ModelSet::ALL };
        let resources = pod::resources(&record.footprint);
        let shape = Shape::new(resources, ask.demand);
        Some(Arc::new(Shape { models, tolerates: FeatureMask(u64::MAX), ..shape }))
    }
}
