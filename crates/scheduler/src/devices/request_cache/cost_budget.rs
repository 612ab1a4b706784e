//! What selectors may cost between two looks at what has changed, so that nobody's many selectors hold up the
//! decisions on others.

use super::super::fit::MAX_NODE_COST;

/// What they may cost in a round, about: the node at which it is used up is read to its end.
const CYCLE_BUDGET: u64 = MAX_NODE_COST;
/// What all may cost together that come after that: a few nodes that changed are looked at whoever asked
/// before, as long as that costs little.
const SPARE_BUDGET: u64 = MAX_NODE_COST / 2;
/// What one form may cost of that.
const MAX_SPARE_PER_REQUEST: u64 = MAX_NODE_COST / 100;

/// What selectors may cost yet. Without rounds there is no end to it.
#[derive(Debug, Default)]
pub(super) struct CostBudget {
    remaining: Option<Remaining>,
    /// What they have cost since the last round began.
    #[cfg(test)]
    pub(super) spent: u64,
}

#[derive(Debug)]
struct Remaining {
    main: u64,
    spare: u64,
}

impl CostBudget {
    pub(super) fn begin_cycle(&mut self) {
        self.remaining = Some(Remaining { main: CYCLE_BUDGET, spare: SPARE_BUDGET });
        #[cfg(test)]
        {
            self.spent = 0;
        }
    }

    /// Whether only what costs little is looked at from here on.
    pub(super) fn is_spent(&self) -> bool {
        self.remaining.as_ref().is_some_and(|remaining| remaining.main == 0)
    }

    /// What the next node of a form may cost that has spent so much, and of which a node was seen to cost so much:
    /// `None` where it has to wait.
    pub(super) fn for_node(&self, spent: u64, max_node_cost: u64) -> Option<u64> {
        match &self.remaining {
            Some(Remaining { main: 0, spare }) => {
                let limit = MAX_SPARE_PER_REQUEST.saturating_sub(spent).min(*spare);
                (limit > 0 && max_node_cost <= limit).then_some(limit)
            }
            _ => Some(MAX_NODE_COST),
        }
    }

    pub(super) fn spend(&mut self, cost: u64) {
        #[cfg(test)]
        {
            self.spent += cost;
        }
        match &mut self.remaining {
            Some(Remaining { main: 0, spare }) => *spare = spare.saturating_sub(cost),
            Some(Remaining { main, .. }) => *main = main.saturating_sub(cost),
            None => {}
        }
    }
}
