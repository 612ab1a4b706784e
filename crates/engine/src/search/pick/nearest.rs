//! GPUs of a node with small distances.

use smallvec::SmallVec;

use crate::node::Links;

/// Indices of GPUs, ascending.
pub(super) type Indices = SmallVec<[u16; 8]>;

/// `count` of the idle GPUs, ascending, with the smallest distances. Among equally near sets it is
/// the one that leaves the fewest idle GPUs in the groups it touches, tightest groups first. Whole
/// groups therefore stay whole.
///
/// Exact if one group holds all. Otherwise the groups with the most idle GPUs are taken whole, and
/// the remaining GPUs are chosen in the same way.
pub(super) fn choose(links: &Links, idle: &[u16], count: usize) -> Option<Indices> {
    if idle.len() < count {
        return None;
    }
    let mut chosen = if links.is_flat() || idle.len() == count {
        idle[..count].into()
    } else {
        within(links, 0, idle, count).gpus
    };
    chosen.sort_unstable();
    Some(chosen)
}

/// A set of GPUs and how good it is; less is better.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Set {
    /// Distances of all pairs.
    spread: u32,
    /// Idle GPUs left in the touched groups, from the tightest level on.
    broken: SmallVec<[usize; 4]>,
    /// The GPUs.
    gpus: Indices,
}

/// The best set found among GPUs that no level before `level` parts.
fn within(links: &Links, level: usize, idle: &[u16], count: usize) -> Set {
    let Some(groups) = links.0.get(level) else {
        return Set { spread: 0, broken: SmallVec::new(), gpus: idle[..count].into() };
    };
    let group_of = |gpu: u16| groups.get(usize::from(gpu)).copied();
    let mut parts: SmallVec<[(Option<u8>, Indices); 8]> = SmallVec::new();
    for gpu in idle {
        let group = group_of(*gpu);
        match parts.iter_mut().find(|(known, _)| *known == group) {
            Some((_, gpus)) => gpus.push(*gpu),
            None => parts.push((group, [*gpu].as_slice().into())),
        }
    }
    let in_one = |gpus: &Indices| {
        let mut set = within(links, level + 1, gpus, count);
        set.broken.push(gpus.len() - count);
        set
    };
    let roomy = parts.iter().filter(|(_, gpus)| gpus.len() >= count);
    if let Some(best) = roomy.map(|(_, gpus)| in_one(gpus)).min() {
        return best;
    }
    // No group holds all: the fullest is taken whole. The sort is stable, so ties go to the lower
    // one.
    parts.sort_by_key(|(_, gpus)| std::cmp::Reverse(gpus.len()));
    let mut gpus = parts.remove(0).1;
    let mut others: Indices = parts.into_iter().flat_map(|(_, gpus)| gpus).collect();
    others.sort_unstable();
    let rest = within(links, level, &others, count - gpus.len());
    gpus.extend(rest.gpus);
    let spread = spread(links, &gpus);
    Set { spread, broken: rest.broken, gpus }
}

fn spread(links: &Links, gpus: &[u16]) -> u32 {
    let pairs = gpus.iter().enumerate().flat_map(|(at, gpu)| {
        gpus[at + 1..].iter().map(move |other| (usize::from(*gpu), usize::from(*other)))
    });
    pairs.map(|(a, b)| links.distance(a, b)).sum()
}
