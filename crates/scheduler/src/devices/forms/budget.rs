//! What selectors may cost between two looks at what has changed, so that nobody's many selectors hold up the
//! decisions on others.

use super::super::fit::MOST_COST;

/// What they may cost in a round, about: the node at which it is used up is read to its end.
const OF_ROUND: u64 = MOST_COST;
/// What all may cost together that come after that: a few nodes that changed are looked at whoever asked
/// before, as long as that costs little.
const SPARE: u64 = MOST_COST / 2;
/// What one form may cost of that.
const OF_FORM: u64 = MOST_COST / 100;

/// What selectors may cost yet. Without rounds there is no end to it.
#[derive(Debug, Default)]
pub(super) struct Budget {
    left: Option<Left>,
    /// What they have cost since the last round began.
    #[cfg(test)]
    pub(super) spent: u64,
}

#[derive(Debug)]
struct Left {
    own: u64,
    spare: u64,
}

impl Budget {
    pub(super) fn begin_round(&mut self) {
        self.left = Some(Left { own: OF_ROUND, spare: SPARE });
        #[cfg(test)]
        {
            self.spent = 0;
        }
    }

    /// Whether only what costs little is looked at from here on.
    pub(super) fn is_spent(&self) -> bool {
        self.left.as_ref().is_some_and(|left| left.own == 0)
    }

    /// What the next node of a form may cost that has spent so much, and of which a node was seen to cost so much:
    /// `None` where it has to wait.
    pub(super) fn of_node(&self, spent: u64, dearest: u64) -> Option<u64> {
        match &self.left {
            Some(Left { own: 0, spare }) => {
                let most = OF_FORM.saturating_sub(spent).min(*spare);
                (most > 0 && dearest <= most).then_some(most)
            }
            _ => Some(MOST_COST),
        }
    }

    pub(super) fn spend(&mut self, cost: u64) {
        #[cfg(test)]
        {
            self.spent += cost;
        }
        match &mut self.left {
            Some(Left { own: 0, spare }) => *spare = spare.saturating_sub(cost),
            Some(Left { own, .. }) => *own = own.saturating_sub(cost),
            None => {}
        }
    }
}
