//! The elastic reserve: places for pods of several GPUs are kept for as many as are to be expected.
//!
//! A node's last places for four or eight GPUs are easily cut up by small pods, which would do as
//! well elsewhere. How many more pods come until the cluster is full can be estimated from what is
//! left, and from it how many of them will want several GPUs. A shape of which hardly more places
//! are left than pods to be expected is *tight*; taking away such a place is the last resort, for
//! others and for the shape's own pods alike, so that they take the places that harm least.

use smallvec::SmallVec;

use super::levels::Levels;
use super::potential::Narrow;
use crate::fit;
use crate::node::NodeClass;
use crate::resources::Resources;
use crate::shape::Shape;

/// Most shapes that are looked after: one bit of a mask for each.
pub(super) const MOST: usize = 64;

/// More than any cluster has places, in thousandths.
const MOST_EXPECTED: i64 = 1 << 50;

/// Places of each shape on one node.
pub(super) type Places = SmallVec<[u16; MOST]>;

/// The shapes that are looked after.
#[derive(Clone, Debug, Default)]
pub(super) struct Reserve {
    pub(super) wishes: Vec<Wish>,
}

/// A shape of several GPUs.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) shape: Shape,
    pub(super) weight: i64,
    /// Weight of all pods that such a place would serve, each by how many places it takes.
    pub(super) rate: i64,
    resources: Narrow,
    count: u32,
    /// By class: whether the shape is allowed there.
    is_allowed: Vec<bool>,
}

impl Reserve {
    /// A reserve for these shapes and their weights.
    pub(super) fn new(shapes: Vec<(Shape, i64)>, classes: &[NodeClass]) -> Self {
        let mut wishes: Vec<Wish> = shapes
            .into_iter()
            .take(MOST)
            .map(|(shape, weight)| Wish {
                weight,
                rate: 0,
                resources: Narrow::of(&shape.resources),
                count: u32::from(shape.gpus.count().max(1)),
                is_allowed: classes.iter().map(|class| fit::is_allowed(class, &shape)).collect(),
                shape,
            })
            .collect();
        let rates: Vec<i64> = wishes.iter().map(|wish| rate(wish, &wishes)).collect();
        for (wish, rate) in wishes.iter_mut().zip(rates) {
            wish.rate = rate;
        }
        Self { wishes }
    }

    /// How many pods of each shape a node with these amounts free has places for.
    pub(super) fn places(&self, class: usize, free: &Resources, levels: &Levels) -> Places {
        let idle = idle(levels);
        if idle < 2 {
            return SmallVec::from_elem(0, self.wishes.len());
        }
        let free = Narrow::of(free);
        self.wishes.iter().map(|wish| wish.places(class, &free, idle)).collect()
    }

    /// The shapes that lose places of `before` when amounts fall to these, as a mask.
    pub(super) fn losers(
        &self,
        before: &Places,
        class: usize,
        free: &Resources,
        levels: &Levels,
    ) -> u64 {
        let idle = idle(levels);
        let free = Narrow::of(free);
        let mut mask = 0;
        for (bit, (wish, before)) in self.wishes.iter().zip(before).enumerate() {
            if *before > 0 && wish.places(class, &free, idle) < *before {
                mask |= 1 << bit;
            }
        }
        mask
    }

    /// The shapes of which hardly more places are left than will be wanted, as a mask: `left`
    /// places of each, `more_milli` thousandths of pods to come, of which each is of one shape or
    /// another with the weight `total`. The margin is what chance adds to what is expected.
    pub(super) fn tight(&self, left: &[i64], more_milli: i64, total: i64) -> u64 {
        let mut mask = 0;
        for (bit, (wish, left)) in self.wishes.iter().zip(left).enumerate() {
            let wide = i128::from(wish.rate) * i128::from(more_milli) / i128::from(total.max(1));
            let expected = i64::try_from(wide).unwrap_or(MOST_EXPECTED).min(MOST_EXPECTED);
            let margin = (expected * 1000).isqrt() + 1000;
            if left.saturating_mul(1000) <= expected.saturating_add(margin) {
                mask |= 1 << bit;
            }
        }
        mask
    }
}

impl Wish {
    fn places(&self, class: usize, free: &Narrow, idle: u32) -> u16 {
        let by_gpus = idle / self.count;
        if by_gpus == 0 || !self.is_allowed.get(class).is_some_and(|is| *is) {
            return 0;
        }
        u16::try_from(by_gpus.min(self.resources.times_in(free))).unwrap_or(u16::MAX)
    }
}

fn idle(levels: &Levels) -> u32 {
    levels.iter().map(|level| u32::from(level.is_idle)).sum()
}

/// Weight of the pods that take places of a shape: its own and all that are larger.
fn rate(wish: &Wish, all: &[Wish]) -> i64 {
    let takes = |other: &&Wish| {
        let is_near = wish.is_allowed.iter().zip(&other.is_allowed).any(|(one, two)| *one && *two);
        let cpu = |wish: &Wish| wish.shape.resources.cpu_milli;
        is_near && other.count >= wish.count && cpu(other) >= cpu(wish)
    };
    let each = |other: &Wish| other.weight.saturating_mul((other.count / wish.count).into());
    all.iter().filter(takes).map(each).sum()
}
