//! Who of a list is still there, counted among those who are.

/// The items of a list, of which more and more are gone: a Fenwick tree over who is there, so that
/// taking one away costs the logarithm of the list's length and moves nobody.
#[derive(Clone, Debug)]
pub(super) struct RemainingItems {
    /// Of each node but the first, which stands for nothing: who is there of the items that it
    /// covers, as many before its own index as its lowest bit is worth.
    sums: Vec<usize>,
    count: usize,
}

impl RemainingItems {
    /// A list of so many items, none of which is gone.
    pub(super) fn all(count: usize) -> Self {
        let covered = |node: usize| node & node.wrapping_neg();
        Self { sums: (0..=count).map(covered).collect(), count }
    }

    /// How many are there.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Takes away the item before which `place` others are there; its index in the whole list.
    pub(super) fn take(&mut self, place: usize) -> Option<usize> {
        if place >= self.count {
            return None;
        }
        self.count -= 1;
        let (mut index, mut before) = (0, place);
        let mut step = (self.sums.len() - 1).checked_ilog2().map_or(0, |log| 1 << log);
        while step > 0 {
            match self.sums.get_mut(index + step) {
                Some(sum) if *sum <= before => {
                    before -= *sum;
                    index += step;
                }
                // It covers the item, as every node does that is not passed.
                Some(sum) => *sum -= 1,
                None => {}
            }
            step >>= 1;
        }
        Some(index)
    }
}
