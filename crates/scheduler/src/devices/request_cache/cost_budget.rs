//! The cost budget of selectors in a scheduling cycle, so that a pod with many selectors does not
//! delay others.

use super::super::fit::MAX_NODE_COST;

/// Budget of a cycle, approximately: the node at which it runs out is still completed.
const CYCLE_BUDGET: u64 = MAX_NODE_COST;
/// Budget after that, for all requests together: a few changed nodes are evaluated for any pod
/// while that is cheap.
const SPARE_BUDGET: u64 = MAX_NODE_COST / 2;
/// Most that one request may take of the spare budget.
const MAX_SPARE_PER_REQUEST: u64 = MAX_NODE_COST / 100;

/// What is left of the budget. Unlimited before the first cycle.
#[derive(Debug, Default)]
pub(super) struct CostBudget {
    remaining: Option<Remaining>,
    /// What selectors have cost in this cycle.
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

    /// Whether only cheap evaluations are still allowed.
    pub(super) fn is_spent(&self) -> bool {
        self.remaining.as_ref().is_some_and(|remaining| remaining.main == 0)
    }

    /// Cost limit for the next node of a request that has spent `spent`, with `max_node_cost` on
    /// one node. `None` if it has to wait.
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
