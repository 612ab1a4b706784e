//! The search for the cheapest disruptions of a node.

use std::cmp::Reverse;

use smallvec::{SmallVec, smallvec};

use super::super::disruption_cost::DisruptionCost;
use super::super::eviction_uses::{Alternatives, EvictionUses};
use super::super::node_view;
use super::{Group, NodeView, Positions};
use crate::cluster::states::NodeState;
use crate::workload::Member;

/// Kinds of resources by which victims within limits are selected.
const AMOUNT_KINDS: usize = 4;

/// By group of interchangeable disruptions: how many of them.
type Counts = SmallVec<[u16; 8]>;

pub(super) struct Search<'a, 'm, C> {
    pub(super) view: &'a NodeView<'m>,
    pub(super) groups: &'a [Group],
    pub(super) costs: Vec<DisruptionCost>,
    /// By group: what one disruption uses of the limits.
    pub(super) uses: Vec<EvictionUses>,
    /// For workloads that may lose only some pods alone: the groups, and the limit.
    pub(super) slack: Vec<(SmallVec<[usize; 4]>, u16)>,
    /// By limit: pods that may be evicted or moved.
    pub(super) limits: &'a [u32],
    pub(super) free: u32,
    pub(super) max_fit: u32,
    /// By members above `free`, less one.
    pub(super) best: Vec<Alternatives<Counts>>,
    pub(super) count: &'a C,
    pub(super) spent: u64,
}

impl<C: Fn(&NodeState) -> u32> Search<'_, '_, C> {
    /// Looks at all sets of disruptions.
    pub(super) fn exhaustive(&mut self) {
        let mut state = self.view.state.clone();
        let mut gone = smallvec![0; self.view.pods.len()];
        self.all(0, &mut state, &mut gone, &mut SmallVec::new(), DisruptionCost::ZERO);
    }

    /// Enumerates the numbers of disruptions of all groups from `depth` on.
    fn all(
        &mut self,
        depth: usize,
        state: &mut NodeState,
        gone: &mut SmallVec<[u16; 8]>,
        counts: &mut Counts,
        cost: DisruptionCost,
    ) {
        // No set is better than one that gives as much for less and uses no limit.
        let unlimited = EvictionUses::default();
        if self.best.last().is_some_and(|best| best.covers(cost, &unlimited)) {
            return;
        }
        if depth == self.groups.len() {
            self.note(state, counts, cost);
            return;
        }
        let (groups, each) = (self.groups, self.costs[depth]);
        let group = &groups[depth];
        let before = state.clone();
        let mut sum = cost;
        counts.push(0);
        self.all(depth + 1, state, gone, counts, sum);
        for (number, disruption) in (1..).zip(&group.disruptions) {
            self.take(state, gone, disruption);
            counts[depth] = number;
            sum = sum.plus(each);
            self.all(depth + 1, state, gone, counts, sum);
        }
        counts.pop();
        for disruption in &group.disruptions {
            for position in disruption {
                gone[usize::from(*position)] -= 1;
            }
        }
        *state = before;
    }

    fn note(&mut self, state: &NodeState, counts: &Counts, cost: DisruptionCost) {
        let uses = self.uses_of(counts);
        if !self.is_within_slack(counts) || !self.allows(&uses) {
            return;
        }
        self.spent += 1;
        let members = (self.count)(state).min(self.max_fit);
        let Some(above) = members.checked_sub(self.free + 1) else { return };
        self.best[above as usize].add(cost, uses, || counts.clone());
    }

    fn is_within_slack(&self, counts: &[u16]) -> bool {
        self.slack
            .iter()
            .all(|(groups, most)| groups.iter().map(|group| counts[*group]).sum::<u16>() <= *most)
    }

    fn uses_of(&self, counts: &[u16]) -> EvictionUses {
        let mut uses = EvictionUses::default();
        for (each, count) in self.uses.iter().zip(counts) {
            uses.add_all(each, u32::from(*count), |_| true);
        }
        uses
    }

    fn allows(&self, uses: &EvictionUses) -> bool {
        uses.is_within(|limit| self.limits[limit as usize])
    }

    fn take(&self, state: &mut NodeState, gone: &mut SmallVec<[u16; 8]>, disruption: &Positions) {
        for position in disruption {
            let position = usize::from(*position);
            gone[position] += 1;
            if gone[position] == 1 {
                node_view::take_off(state, self.view.members[position]);
            }
        }
    }

    /// Removes victims and reprieves those that are not needed, the most expensive first, in several
    /// orders.
    pub(super) fn greedy(&mut self) {
        for start in self.starts() {
            let dear = |(group, _): &(usize, usize)| Reverse(self.costs[*group]);
            let mut by_price = start.clone();
            by_price.sort_by_key(dear);
            let mut by_size = start.clone();
            by_size.sort_by_key(|&(group, disruption)| {
                (self.size(group, disruption), dear(&(group, disruption)))
            });
            // A GPU is idle only after its last pod is gone: keep the GPUs with the most expensive
            // pods.
            let mut by_gpu = start;
            by_gpu
                .sort_by_key(|&(group, disruption)| Reverse(self.cost_of_gpus(group, disruption)));
            for order in [by_price, by_size, by_gpu] {
                for above in 1..=self.max_fit - self.free {
                    self.greedy_for(self.free + above, &order);
                }
            }
        }
    }

    /// Disruptions to begin with, by group and index: all of them, if the limits allow that. Else
    /// as many as the limits allow, in several variants: the cheapest ones, those with most of each
    /// resource, and only those that no limit counts.
    fn starts(&self) -> Vec<Vec<(usize, usize)>> {
        let groups = self.groups.iter().enumerate();
        let all: Vec<(usize, usize)> = groups
            .flat_map(|(number, group)| (0..group.disruptions.len()).map(move |it| (number, it)))
            .collect();
        let within_limits = |order: &[(usize, usize)]| {
            let mut uses = EvictionUses::default();
            let mut start = order.to_vec();
            start.retain(|(group, _)| {
                let mut with = uses.clone();
                with.add_all(&self.uses[*group], 1, |_| true);
                let is_allowed = self.allows(&with);
                if is_allowed {
                    uses = with;
                }
                is_allowed
            });
            start.sort_unstable();
            start
        };
        if within_limits(&all).len() == all.len() {
            return vec![all];
        }
        let most_first = |kind: usize| {
            let mut order = all.clone();
            order.sort_by_key(|(group, disruption)| {
                let pods = self.groups[*group].disruptions[*disruption].iter();
                let amount = |pod: &u16| amounts(self.view.members[usize::from(*pod)])[kind];
                Reverse(pods.map(amount).sum::<i64>())
            });
            within_limits(&order)
        };
        let mut cheapest_first = all.clone();
        cheapest_first.sort_by_key(|(group, _)| self.costs[*group]);
        let mut starts = vec![within_limits(&cheapest_first)];
        let unlimited = all.iter().filter(|(group, _)| self.uses[*group].is_empty()).copied();
        for start in (0..AMOUNT_KINDS).map(most_first).chain([unlimited.collect()]) {
            if !starts.contains(&start) {
                starts.push(start);
            }
        }
        starts
    }

    fn greedy_for(&mut self, members: u32, order: &[(usize, usize)]) {
        let mut state = self.view.state.clone();
        let mut gone: SmallVec<[u16; 8]> = smallvec![0; self.view.pods.len()];
        let mut counts: Counts = smallvec![0; self.groups.len()];
        for &(group, disruption) in order {
            counts[group] += 1;
            self.take(&mut state, &mut gone, &self.groups[group].disruptions[disruption]);
        }
        for &(group, disruption) in order {
            let before = state.clone();
            let disruption = &self.groups[group].disruptions[disruption];
            for position in disruption {
                let position = usize::from(*position);
                gone[position] -= 1;
                if gone[position] == 0 {
                    node_view::put_back(&mut state, self.view.members[position]);
                }
            }
            self.spent += 1;
            if (self.count)(&state) >= members {
                counts[group] -= 1;
            } else {
                state = before;
                for position in disruption {
                    gone[usize::from(*position)] += 1;
                }
            }
        }
        let mut cost = DisruptionCost::ZERO;
        for (count, each) in counts.iter().zip(&self.costs) {
            for _ in 0..*count {
                cost = cost.plus(*each);
            }
        }
        self.note(&state, &counts, cost);
    }

    fn size(&self, group: usize, disruption: usize) -> i64 {
        let members = self.groups[group].disruptions[disruption].iter();
        -members.map(|position| self.view.members[usize::from(*position)].gpu_milli()).sum::<i64>()
    }

    /// Total cost of all pods on the GPUs of a disruption.
    fn cost_of_gpus(&self, group: usize, disruption: usize) -> DisruptionCost {
        let has = |position: &u16, gpu: u16| {
            let member = self.view.members[usize::from(*position)];
            member.placement.gpus.iter().any(|part| part.gpu == gpu)
        };
        let mine = &self.groups[group].disruptions[disruption];
        let mut sum = DisruptionCost::ZERO;
        for gpu in (0..).take(self.view.state.gpus.len()) {
            if !mine.iter().any(|position| has(position, gpu)) {
                continue;
            }
            for (group, each) in self.groups.iter().zip(&self.costs) {
                let on = group
                    .disruptions
                    .iter()
                    .filter(|disruption| disruption.iter().any(|pod| has(pod, gpu)));
                for _ in on {
                    sum = sum.plus(*each);
                }
            }
        }
        sum
    }
}

/// Thousandths of GPUs, GPU memory in MiB, thousandths of CPUs, memory in MiB.
fn amounts(member: &Member) -> [i64; AMOUNT_KINDS] {
    let gpus = &member.placement.gpus;
    let memory = gpus.iter().map(|part| i64::from(part.memory_mib)).sum();
    let resources = &member.shape.resources;
    [member.gpu_milli(), memory, resources.cpu_milli, resources.memory_mib]
}
