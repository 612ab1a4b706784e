//! Which shares are moved to the host so that another one fits.

use std::cmp::Reverse;
use std::time::Duration;

/// A share that may be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Its name.
    pub(super) share: String,
    /// Bytes that become free.
    pub(super) bytes: u64,
    /// Whether it may be moved now.
    pub(super) is_due: bool,
    /// Its order: protection of its class, whether it works, how long it has been idle, since when it is resident. Lower goes first.
    pub(super) rank: (u8, bool, Reverse<Duration>, Duration),
}

/// The first candidates that free so many bytes, without any that are not needed for it. `None` if those that are due do not suffice.
pub(super) fn choose(mut candidates: Vec<Candidate>, missing: u64) -> Option<Vec<Candidate>> {
    candidates.retain(|candidate| candidate.is_due);
    candidates.sort_by(|one, other| (one.rank, &one.share).cmp(&(other.rank, &other.share)));
    let mut chosen = Vec::new();
    let mut freed = 0_u64;
    for candidate in candidates {
        if freed >= missing {
            break;
        }
        freed = freed.saturating_add(candidate.bytes);
        chosen.push(candidate);
    }
    if freed < missing {
        return None;
    }
    // The best protected ones are spared first.
    for index in (0..chosen.len()).rev() {
        let Some(bytes) = chosen.get(index).map(|it| it.bytes) else { continue };
        if freed - bytes >= missing {
            freed -= bytes;
            chosen.remove(index);
        }
    }
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(share: &str, bytes: u64, protection: u8) -> Candidate {
        let rank = (protection, false, Reverse(Duration::from_secs(5)), Duration::ZERO);
        Candidate { share: share.to_owned(), bytes, is_due: true, rank }
    }

    fn names(chosen: Option<Vec<Candidate>>) -> Vec<String> {
        chosen.expect("enough").into_iter().map(|it| it.share).collect()
    }

    #[test]
    fn the_least_protected_go_first() {
        let all = vec![candidate("a", 10, 1), candidate("b", 10, 0), candidate("c", 10, 2)];
        assert_eq!(names(choose(all.clone(), 5)), ["b"]);
        assert_eq!(names(choose(all.clone(), 15)), ["b", "a"]);
        assert_eq!(choose(all, 31), None);
    }

    #[test]
    fn nothing_is_moved_that_is_not_needed() {
        let all = vec![candidate("small", 5, 0), candidate("large", 50, 1)];
        assert_eq!(names(choose(all.clone(), 40)), ["large"]);
        assert_eq!(names(choose(all, 52)), ["small", "large"]);
    }

    #[test]
    fn the_longest_idle_goes_before_one_that_works() {
        let mut working = candidate("a", 10, 1);
        working.rank.1 = true;
        let mut idle = candidate("b", 10, 1);
        idle.rank.2 = Reverse(Duration::from_secs(9));
        let all = vec![working, candidate("c", 10, 1), idle];
        assert_eq!(names(choose(all, 20)), ["b", "c"]);
    }

    #[test]
    fn only_those_that_are_due_count() {
        let waits = Candidate { is_due: false, ..candidate("a", 10, 0) };
        assert_eq!(choose(vec![waits], 1), None);
    }
}
