//! How many connections of guards there may be, for they are the agent's descriptors. Half of the room is divided
//! evenly among the shares and kept for them; the other half is whoever's that comes first. So one share cannot
//! keep the guards of another from saying who they are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Connections that the shares of a node may have together.
const MOST_CONNECTIONS: u64 = 4096;
/// Of descriptors that the agent may have, this part at most is the guards'.
const DESCRIPTORS_PART: u64 = 4;
/// Connections that a share may have: one for each of its processes, in reason.
pub(super) const MOST_OF_SHARE: usize = 512;

/// The room of a node.
#[derive(Debug)]
pub(super) struct Room {
    total: usize,
    /// Connections of each share that listens.
    held: Mutex<BTreeMap<String, Held>>,
}

#[derive(Debug, Default)]
struct Held {
    connections: usize,
    /// How often the share listens: a socket that is made anew overlaps with the one before it.
    sockets: usize,
}

/// A share's part of the room, for as long as it listens.
#[derive(Debug)]
pub(super) struct Part {
    room: Arc<Room>,
    share: String,
}

/// A connection's place.
#[derive(Debug)]
pub(super) struct Place {
    part: Arc<Part>,
}

impl Room {
    /// Room for so many.
    pub(super) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self { total, held: Mutex::default() })
    }

    /// What the system lets this process have.
    pub(super) fn of_process() -> Arc<Self> {
        let limit = getrlimit(Resource::Nofile).current;
        let part = limit.map_or(u64::MAX, |limit| limit / DESCRIPTORS_PART);
        Self::new(usize::try_from(part.min(MOST_CONNECTIONS)).unwrap_or(usize::MAX))
    }

    /// Takes a share's part.
    pub(super) fn part(self: &Arc<Self>, share: &str) -> Arc<Part> {
        self.held().entry(share.to_owned()).or_default().sockets += 1;
        Arc::new(Part { room: Arc::clone(self), share: share.to_owned() })
    }

    /// Whole between statements.
    fn held(&self) -> MutexGuard<'_, BTreeMap<String, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    /// A place for one more connection, if there is one.
    pub(super) fn place(self: &Arc<Self>) -> Option<Place> {
        let mut held = self.room.held();
        let half = self.room.total / 2;
        let kept = (half / held.len().max(1)).max(1);
        let of_all = held.values().map(|held| held.connections.saturating_sub(kept));
        let is_free = of_all.sum::<usize>() < half;
        let own = held.get_mut(&self.share)?;
        if own.connections >= MOST_OF_SHARE || (own.connections >= kept && !is_free) {
            return None;
        }
        own.connections += 1;
        Some(Place { part: Arc::clone(self) })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut held = self.room.held();
        let Some(own) = held.get_mut(&self.share) else { return };
        own.sockets -= 1;
        if own.sockets == 0 {
            held.remove(&self.share);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(own) = self.part.room.held().get_mut(&self.part.share) {
            own.connections -= 1;
        }
    }
}

/// Lets this process have as many descriptors as it may: each guard of a node takes one. What the system gave is
/// used where it does not let itself be raised.
pub(crate) fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => tracing::debug!(from = limit.current, to = limit.maximum, "more descriptors"),
        Err(error) => tracing::warn!(%error, "the number of descriptors cannot be raised"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(part: &Arc<Part>, wanted: usize) -> Vec<Place> {
        (0..wanted).map_while(|_| part.place()).collect()
    }

    #[test]
    fn a_share_that_takes_all_it_can_leaves_the_others_their_part() {
        let room = Room::new(64);
        let parts: Vec<_> = (0..8).map(|share| room.part(&share.to_string())).collect();
        let greedy = places(&parts[0], 1000);
        assert_eq!(greedy.len(), 32 + 4, "what is everybody's, and its own part");
        let also = places(&parts[1], 1000);
        assert_eq!(also.len(), 4);
        for part in &parts[2..] {
            assert_eq!(places(part, 1000).len(), 4);
        }
        // What is given back is everybody's again.
        drop(greedy);
        assert_eq!(places(&parts[1], 1000).len(), 32);
        drop((also, parts));
        assert!(room.held().is_empty());
    }

    #[test]
    fn a_share_that_comes_later_has_its_part_too() {
        let room = Room::new(64);
        let first = room.part("first");
        let all = places(&first, 1000);
        assert_eq!(all.len(), 64);
        let second = room.part("second");
        assert_eq!(places(&second, 1000).len(), 16);
        assert!(first.place().is_none());
        // Its socket may be made anew.
        let again = room.part("second");
        drop(second);
        assert_eq!(places(&again, 1000).len(), 16);
    }

    #[test]
    fn a_share_has_no_more_than_its_processes_may_need() {
        let room = Room::new(4096);
        assert_eq!(places(&room.part("a"), 5000).len(), MOST_OF_SHARE);
    }

    #[test]
    fn descriptors_are_raised_to_what_the_system_allows() {
        let allowed = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(512), maximum: allowed }).unwrap();
        raise_descriptors();
        assert_eq!(getrlimit(Resource::Nofile).current, allowed);
    }
}
