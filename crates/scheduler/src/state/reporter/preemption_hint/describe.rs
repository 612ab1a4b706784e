//! Describes the victims of a hint by the names of pods and gangs, and why they are not evicted.

use std::collections::BTreeSet;

use octavo_engine::explain::{PreemptionHint, VictimRef};

use octavo_kube_io::objects::NodeName;

use super::search::{HintRequest, Victim, VictimSet};
use crate::groups::PlacementHints;
use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::cache::pod::PodRecord;

impl Scheduler {
    pub(super) fn describe_disturbance(
        &self,
        request: &HintRequest,
        leaving: &VictimSet,
    ) -> PreemptionHint {
        let describe = |victims: &[Victim]| {
            victims.iter().map(|victim| self.cache.describe_victim(victim)).collect()
        };
        PreemptionHint {
            evictions: describe(&leaving.evictions),
            moves: describe(&leaving.moves),
            hindrances: self.obstacles(request, leaving),
        }
    }

    /// Whether the pods of a hint would get their devices once its victims have left.
    pub(super) fn would_fit(&mut self, request: &HintRequest, leaving: &VictimSet) -> bool {
        let place = |(rank, node): &(u32, NodeName)| {
            Some((request.ranks.get(*rank as usize)?.clone(), node.clone()))
        };
        let places: Vec<_> = leaving.places.iter().filter_map(place).collect();
        let victims = leaving.evictions.iter().chain(&leaving.moves);
        let mut all = self.reservations.all_victims();
        all.extend(victims.filter_map(|victim| Some(self.cache.record_of(victim)?.pod.uid())));
        self.would_fit_after(&places, &all)
    }

    /// Why the victims are not evicted or moved.
    fn obstacles(&self, request: &HintRequest, leaving: &VictimSet) -> Vec<String> {
        let VictimSet { evictions, moves, .. } = leaving;
        let mut obstacles = Vec::new();
        if !evictions.is_empty() {
            self.cache.eviction_obstacles(request, evictions, &mut obstacles);
        }
        if !moves.is_empty() {
            self.cache.move_obstacles(moves, &mut obstacles);
        }
        let victims: Vec<_> =
            self.cache.records_of(evictions).chain(self.cache.records_of(moves)).collect();
        let budgets: BTreeSet<_> =
            victims.iter().filter_map(|record| self.cache.closed_budget(record)).collect();
        for budget in &budgets {
            obstacles.push(format!("PodDisruptionBudget {budget} allows no disruption now"));
        }
        // Pods of several budgets were named above, because they cannot be evicted at all.
        let leaving = victims.iter().filter(|record| record.pod.meta.deleted.is_none()).copied();
        for (budget, count, allowed) in self.exceeded_budgets_for(leaving) {
            if !budgets.contains(&budget) && !budget.name.is_empty() {
                obstacles.push(format!(
                    "PodDisruptionBudget {budget} allows {allowed} disruptions now, and {count} are needed"
                ));
            }
        }
        if let Some(record) =
            victims.iter().find(|record| record.eviction_retry_at > self.cache.now())
        {
            let name = &record.pod.meta.name;
            obstacles.push(format!("an eviction of pod {name} failed a moment ago"));
        }
        obstacles
    }
}

impl Cache {
    /// The pod of a victim; `None` if it is a claim or gone.
    fn record_of(&self, victim: &Victim) -> Option<&PodRecord> {
        victim.holder.as_ref().and_then(|holder| self.pod(holder))
    }

    fn records_of<'a>(&'a self, victims: &'a [Victim]) -> impl Iterator<Item = &'a PodRecord> {
        victims.iter().filter_map(|victim| self.record_of(victim))
    }

    fn describe_victim(&self, victim: &Victim) -> VictimRef {
        let record = self.record_of(victim);
        let name = record.map(|record| format!("pod {}", record.pod.meta.name));
        let member = record.and_then(|record| record.member.as_ref());
        VictimRef {
            name: name.unwrap_or_else(|| victim.workload.to_string()),
            gang: member.map(|member| member.group.to_string()),
            priority: victim.priority,
            node: victim.node.clone(),
            to: victim.to.clone(),
        }
    }

    fn eviction_obstacles(
        &self,
        request: &HintRequest,
        victims: &[Victim],
        obstacles: &mut Vec<String>,
    ) {
        if !self.config().preemption {
            obstacles.push("`preemption` is off in the scheduler's config".to_owned());
        }
        if !request.may_preempt {
            obstacles.push("the `preemptionPolicy` of the pending pods is `Never`".to_owned());
        }
        if !request.policy.is_preempting() {
            obstacles
                .push(format!("PlacementPolicy {} allows no preemption", request.policy.name()));
        }
        let preemptor_priority = request.gang.profile.priority;
        let highest = victims.iter().map(|victim| victim.priority).max().unwrap_or(i32::MIN);
        if highest >= preemptor_priority {
            obstacles.push(format!(
                "the priority {highest} is not below {preemptor_priority}, that of the pending pods"
            ));
        }
        let protected_gangs = self.records_of(victims).filter_map(|record| {
            let member = record.member.as_ref()?;
            (!member.spec.is_preemptible).then(|| member.group.to_string())
        });
        for gang in protected_gangs.collect::<BTreeSet<_>>() {
            obstacles.push(format!("{gang} has `preemptible: false`"));
        }
    }

    fn move_obstacles(&self, victims: &[Victim], obstacles: &mut Vec<String>) {
        let max_moves = self.config().defragmentation_moves;
        let moves = victims.len();
        if max_moves == 0 {
            obstacles.push("`defragmentation` is off in the scheduler's config".to_owned());
        } else if u32::try_from(moves).is_ok_and(|moves| moves > max_moves) {
            obstacles.push(format!(
                "`defragmentation.moves` allows {max_moves} moves, and {moves} are needed"
            ));
        }
        let is_annotated_movable =
            |record: &PodRecord| PlacementHints::of(&record.pod.meta).ok()?.is_movable;
        let is_movable = |record: &&PodRecord| {
            let of_gang = record.member.as_ref().map(|member| member.spec.is_movable);
            of_gang.or_else(|| is_annotated_movable(record)).unwrap_or(false)
        };
        let (mut count, mut name) = (0, None);
        for record in self.records_of(victims).filter(|record| !is_movable(record)) {
            count += 1;
            name = name.or(Some(&record.pod.meta.name));
        }
        let movable = octavo_api::names::MOVABLE;
        match (count, name) {
            (1, Some(name)) => {
                obstacles.push(format!("pod {name} does not have `{movable}: \"true\"`"));
            }
            (2.., Some(name)) => obstacles.push(format!(
                "{count} of the pods, the first is pod {name}, do not have `{movable}: \"true\"`"
            )),
            _ => {}
        }
    }
}
