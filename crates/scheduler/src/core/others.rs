//! Others that wait: they count for what pods are typical, and for what each tenant wants. By policies
//! that look at neither they are not looked for.

use std::sync::Arc;

use octavo_engine::gang::Group;
use octavo_engine::gpu::ModelSet;
use octavo_engine::node::FeatureMask;
use octavo_engine::objective::CostTerm;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::workload::Profile;
use octavo_engine::{Gang, Shape};

use super::Core;
use super::pod::{self, PodRecord};
use super::queue::Unit;

/// Units that are looked at: the first of the queue.
const MOST: usize = 64;

impl Core {
    /// The others that wait, in the order of the queue, as far as the policy wants to know of them.
    pub(super) fn others_than(&self, gang: &Gang, policy: &PlacementPolicy) -> Vec<Gang> {
        // A single pod whose place only the packing policy chooses: that one learns by itself.
        let is_packed = gang.count() == 1 && policy.is_packing_alone();
        let units = [CostTerm::GpuMilliStranded, CostTerm::PackingPrice, CostTerm::FairnessDeficit];
        if is_packed || !units.iter().any(|unit| policy.has(*unit)) {
            return Vec::new();
        }
        // Who asks may be among them. Those of whom nothing is known are no reason to ask for more.
        let first = self.queue.in_order().take(MOST + 1);
        let others = first.filter_map(|rank| self.waiting_gang(&rank.unit));
        others.filter(|other| other.profile.name != gang.profile.name).take(MOST).collect()
    }

    /// What waits of a unit; none: nobody of it.
    fn waiting_gang(&self, unit: &Unit) -> Option<Gang> {
        let mut gang: Option<Gang> = None;
        let mut guessed: Option<Arc<Shape>> = None;
        for uid in self.uids_of(unit) {
            let Some(record) = self.pods.get(&uid) else { continue };
            if !record.waits_for(&self.config.scheduler_name) {
                continue;
            }
            let gang = gang.get_or_insert_with(|| Gang {
                profile: record
                    .profile
                    .as_deref()
                    .map_or_else(|| self.profile_of(record), Profile::clone),
                groups: Vec::new(),
            });
            let known = record.shape.as_ref().or(guessed.as_ref()).cloned();
            // Members that were not looked at yet are taken to be alike.
            let Some(shape) = known.or_else(|| self.guess_shape(record)) else { continue };
            if record.shape.is_none() {
                guessed = Some(Arc::clone(&shape));
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
    fn guess_shape(&self, record: &PodRecord) -> Option<Arc<Shape>> {
        let ask = self.devices.ask(&record.pod).ok()?;
        let models = if ask.demand.is_some() { ask.models } else { ModelSet::ALL };
        let resources = pod::resources(&record.footprint);
        let shape = Shape::new(resources, ask.demand);
        Some(Arc::new(Shape { models, tolerates: FeatureMask(u64::MAX), ..shape }))
    }
}
