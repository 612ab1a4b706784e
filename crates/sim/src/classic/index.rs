//! Scores of all groups for one shape, the best at hand.

use super::groups::{Groups, Key};

/// The key of a group that cannot be chosen.
const NEVER: i64 = i64::MIN;

/// Scores of all groups for one shape.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// How far the changes of groups were read.
    read: Option<u64>,
    /// By group: the generation of the scored key, and the score. None: the shape does not fit.
    scores: Vec<(u32, Option<i32>)>,
    best: Tournament,
}

/// A group that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// The score.
    pub(super) score: i32,
    /// Rank of the node that stands for the group.
    pub(super) rank: u32,
}

impl Index {
    /// Scores what changed: the greatest score wins, then the lowest rank.
    pub(super) fn catch_up(&mut self, groups: &Groups, score: impl FnMut(Key) -> Option<i32>) {
        let mut score = score;
        let all = groups.all();
        if let Some(changed) = groups.changed_since(&mut self.read) {
            self.best.grow(all.len());
            for number in changed {
                // A group that changed several times is scored once, because its generation is
                // known then.
                self.refresh(groups, *number, &mut score);
            }
        } else {
            *self = Self { read: self.read, ..Self::default() };
            self.best.grow(all.len());
            for (number, _) in (0..).zip(all) {
                self.refresh(groups, number, &mut score);
            }
        }
    }

    /// The best group and the second best.
    pub(super) fn best(&self) -> Option<(Candidate, Option<Candidate>)> {
        let (first, second) = self.best.first_two()?;
        Some((candidate(first), second.map(candidate)))
    }

    fn refresh(&mut self, groups: &Groups, number: u32, score: impl FnMut(Key) -> Option<i32>) {
        let (index, mut score) = (number as usize, score);
        let group = &groups.all()[index];
        let Some(rank) = group.first() else { return self.best.set(index, NEVER) };
        if self.scores.len() <= index {
            // No group starts with this generation, except after a wrap at 2^32 changes.
            self.scores.resize(groups.all().len(), (u32::MAX, None));
        }
        if self.scores[index].0 != group.generation {
            self.scores[index] = (group.generation, score(group.key));
        }
        self.best.set(index, self.scores[index].1.map_or(NEVER, |score| key(score, rank)));
    }
}

/// The score and then the inverted rank, as one comparable number.
fn key(score: i32, rank: u32) -> i64 {
    i64::from(score) << 32 | i64::from(u32::MAX - rank)
}

fn candidate(key: i64) -> Candidate {
    let score = i32::try_from(key >> 32).unwrap_or(i32::MIN);
    let low = u32::try_from(key & i64::from(u32::MAX)).unwrap_or(u32::MAX);
    Candidate { score, rank: u32::MAX - low }
}

/// A tournament tree over keys. Changing a key and finding the two greatest take logarithmic time.
#[derive(Debug, Default)]
struct Tournament {
    /// The overall winner at 1; the children of `n` at `2n` and `2n + 1`; keys from the middle on.
    winners: Vec<i64>,
}

impl Tournament {
    fn places(&self) -> usize {
        self.winners.len() / 2
    }

    /// Grows to this number of keys.
    fn grow(&mut self, places: usize) {
        if places <= self.places() {
            return;
        }
        let old = self.places();
        let new = places.next_power_of_two();
        let mut winners = vec![NEVER; 2 * new];
        winners[new..new + old].copy_from_slice(&self.winners[old..]);
        for at in (1..new).rev() {
            winners[at] = winners[2 * at].max(winners[2 * at + 1]);
        }
        self.winners = winners;
    }

    fn set(&mut self, place: usize, key: i64) {
        let mut at = self.places() + place;
        self.winners[at] = key;
        while at > 1 {
            at /= 2;
            let winner = self.winners[2 * at].max(self.winners[2 * at + 1]);
            if self.winners[at] == winner {
                return;
            }
            self.winners[at] = winner;
        }
    }

    /// The greatest key and the next one. No two keys are equal.
    fn first_two(&self) -> Option<(i64, Option<i64>)> {
        let first = *self.winners.get(1)?;
        let (mut at, mut second) = (1, NEVER);
        while at < self.places() {
            let is_left = self.winners[2 * at] == first;
            let (winner, loser) = if is_left { (2 * at, 2 * at + 1) } else { (2 * at + 1, 2 * at) };
            second = second.max(self.winners[loser]);
            at = winner;
        }
        (first != NEVER).then_some((first, (second != NEVER).then_some(second)))
    }
}
