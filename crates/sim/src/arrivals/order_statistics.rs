//! Removal of items by their rank among the remaining items.

/// The remaining items of a list, as a Fenwick tree. Removal takes logarithmic time and moves no
/// item.
#[derive(Clone, Debug)]
pub(super) struct RemainingItems {
    /// Each node counts the remaining items that it covers: as many before its own index as its
    /// lowest set bit is worth. The first node is unused.
    sums: Vec<usize>,
    count: usize,
}

impl RemainingItems {
    /// A list of `count` items, all of them remaining.
    pub(super) fn all(count: usize) -> Self {
        let covered = |node: usize| node & node.wrapping_neg();
        Self { sums: (0..=count).map(covered).collect(), count }
    }

    /// Number of remaining items.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Removes the item that `place` remaining items precede. Returns its index in the whole list.
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
