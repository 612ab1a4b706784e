//! Segments: runs of consecutive ranks that are placed together. Only complete segments are
//! requested. Members of an incomplete segment wait with a reason.

use crate::groups::GroupSpec;
use crate::state::reporter::pending_reason::PendingReason;

/// Members of a subgroup whose segment is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::state) struct IncompleteSegment {
    /// Name of the subgroup.
    pub(in crate::state) sub: String,
    /// Number of these members.
    pub(in crate::state) count: u32,
    /// Members of a segment.
    pub(in crate::state) size: u32,
    /// Members of the subgroup.
    pub(in crate::state) of: u32,
}

/// Finds members of incomplete segments. `sizes` has the segment size of each subgroup; `members`
/// has the subgroup of each member in rank order. Returns the incomplete segments, and a flag for
/// each member.
pub(super) fn incomplete(
    spec: &GroupSpec,
    sizes: &[Option<u32>],
    members: impl Iterator<Item = usize> + Clone,
) -> (Vec<IncompleteSegment>, Vec<bool>) {
    let mut counts = vec![0_u32; spec.subs.len()];
    for sub in members.clone() {
        counts[sub] += 1;
    }
    let size = |sub: usize| sizes.get(sub).copied().flatten().filter(|size| *size > 0);
    let whole = |sub: usize| size(sub).map_or(counts[sub], |size| counts[sub] / size * size);
    let mut seen = vec![0_u32; spec.subs.len()];
    let is_incomplete = members.map(|sub| {
        seen[sub] += 1;
        seen[sub] > whole(sub)
    });
    let is_incomplete = is_incomplete.collect();
    let of_sub = spec.subs.iter().enumerate().filter_map(|(sub, subgroup)| {
        let (of, count) = (counts[sub], counts[sub] - whole(sub));
        let size = size(sub).filter(|_| count > 0)?;
        Some(IncompleteSegment { sub: subgroup.name.to_string(), count, size, of })
    });
    (of_sub.collect(), is_incomplete)
}

/// Checks that members with equal requests are complete segments. The ranks of a segment must be in
/// one group of the engine.
pub(super) fn check(
    spec: &GroupSpec,
    sub: usize,
    size: u32,
    numbers: impl Iterator<Item = u32>,
) -> Result<(), PendingReason> {
    let numbers: Vec<u32> = numbers.collect();
    let is_segment = |part: &[u32]| {
        let first = part.first().copied().unwrap_or_default();
        part.len() == size as usize
            && first % size == 0
            && part.iter().zip(first..).all(|(number, wanted)| *number == wanted)
    };
    if numbers.chunks(size.max(1) as usize).all(is_segment) {
        return Ok(());
    }
    Err(PendingReason::UnevenSegment { sub: spec.subs[sub].name.to_string(), size })
}
