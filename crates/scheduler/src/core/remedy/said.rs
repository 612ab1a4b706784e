//! Who would have to go, by the names that people know, and why nobody is asked to.

use std::collections::BTreeSet;

use octavo_engine::explain::{PreemptionHint, VictimRef};

use super::search::{Leaving, Victim, Wish};
use crate::core::Core;
use crate::core::pod::PodRecord;
use crate::groups::PlacementHints;

impl Core {
    pub(super) fn disturbance_said(&self, wish: &Wish, leaving: &Leaving) -> PreemptionHint {
        let said = |victims: &[Victim]| victims.iter().map(|one| self.victim_said(one)).collect();
        PreemptionHint {
            evictions: said(&leaving.evictions),
            moves: said(&leaving.moves),
            hindrances: self.hindrances(wish, leaving),
        }
    }

    /// The pod that a victim is; `None`: it is something else, or gone.
    fn record_of(&self, victim: &Victim) -> Option<&PodRecord> {
        victim.holder.as_ref().and_then(|holder| self.pods.get(holder))
    }

    fn records_of<'a>(&'a self, victims: &'a [Victim]) -> impl Iterator<Item = &'a PodRecord> {
        victims.iter().filter_map(|victim| self.record_of(victim))
    }

    fn victim_said(&self, victim: &Victim) -> VictimRef {
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

    /// Why what would help is not done.
    fn hindrances(&self, wish: &Wish, leaving: &Leaving) -> Vec<String> {
        let Leaving { evictions, moves } = leaving;
        let mut words = Vec::new();
        if !evictions.is_empty() {
            self.against_evictions(wish, evictions, &mut words);
        }
        if !moves.is_empty() {
            self.against_moves(moves, &mut words);
        }
        let victims: Vec<_> = self.records_of(evictions).chain(self.records_of(moves)).collect();
        let budgets: BTreeSet<_> =
            victims.iter().filter_map(|record| self.budget_against(record)).collect();
        for budget in &budgets {
            words.push(format!("PodDisruptionBudget {budget} allows no disruption now"));
        }
        // Pods of several budgets were named above: none of these may go.
        let asked = victims.iter().filter(|record| record.pod.meta.deleted.is_none()).copied();
        for (budget, count) in self.over_budget_by(asked) {
            let allowed = self.allows(&budget);
            if !budgets.contains(&budget) && !budget.name.is_empty() {
                words.push(format!(
                    "PodDisruptionBudget {budget} lets {allowed} go now, and {count} would"
                ));
            }
        }
        if let Some(record) = victims.iter().find(|record| record.left_alone_until > self.now) {
            let name = &record.pod.meta.name;
            words.push(format!("pod {name} could not be evicted a moment ago"));
        }
        words
    }

    fn against_evictions(&self, wish: &Wish, victims: &[Victim], words: &mut Vec<String>) {
        if !self.config.preemption {
            words.push("`preemption` is off in the scheduler's config".to_owned());
        }
        if !wish.may_preempt {
            words.push("the `preemptionPolicy` of who waits is `Never`".to_owned());
        }
        if !wish.policy.is_preempting() {
            words.push(format!("PlacementPolicy {} allows no preemption", wish.policy.name()));
        }
        let own = wish.gang.profile.priority;
        let highest = victims.iter().map(|victim| victim.priority).max().unwrap_or(i32::MIN);
        if highest >= own {
            words.push(format!("the priority {highest} is not below that of who waits, {own}"));
        }
        let kept = self.records_of(victims).filter_map(|record| {
            let member = record.member.as_ref()?;
            (!member.spec.is_preemptible).then(|| member.group.to_string())
        });
        for gang in kept.collect::<BTreeSet<_>>() {
            words.push(format!("{gang} says `preemptible: false`"));
        }
    }

    fn against_moves(&self, victims: &[Victim], words: &mut Vec<String>) {
        let most = self.config.defragmentation_moves;
        let moves = victims.len();
        if most == 0 {
            words.push("`defragmentation` is off in the scheduler's config".to_owned());
        } else if u32::try_from(moves).is_ok_and(|moves| moves > most) {
            words.push(format!(
                "{moves} moves are more than the {most} that `defragmentation.moves` allows"
            ));
        }
        let says = |record: &PodRecord| PlacementHints::of(&record.pod.meta).ok()?.is_movable;
        let is_said = |record: &&PodRecord| {
            let of_gang = record.member.as_ref().map(|member| member.spec.is_movable);
            of_gang.or_else(|| says(record)).unwrap_or(false)
        };
        let (mut count, mut name) = (0, None);
        for record in self.records_of(victims).filter(|record| !is_said(record)) {
            count += 1;
            name = name.or(Some(&record.pod.meta.name));
        }
        let movable = octavo_api::names::MOVABLE;
        match (count, name) {
            (1, Some(name)) => words.push(format!("pod {name} does not say `{movable}: \"true\"`")),
            (2.., Some(name)) => words.push(format!(
                "{count} of the pods, pod {name} the first, do not say `{movable}: \"true\"`"
            )),
            _ => {}
        }
    }
}
