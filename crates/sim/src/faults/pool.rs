//! Where servers are: available in an order, fetched only when needed, or away until a time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::members::Server;

/// The servers that the job may use, and when others come.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    /// The job's servers, too; one that comes back is last.
    available: Vec<Server>,
    is_available: Vec<bool>,
    spares: VecDeque<Server>,
    returns: BinaryHeap<Reverse<(u64, Server, Return)>>,
}

/// How a server comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Return {
    /// From a repair.
    Repaired {
        /// Whether it helped.
        helps: bool,
        /// Whether it was for a memory error.
        memory: bool,
    },
    /// Its parent works again.
    ParentBack,
    /// It was a spare.
    Spare,
}

impl Pool {
    /// The first `fleet` of all servers are available, the others are spares.
    pub(super) fn new(all: Vec<Server>, fleet: usize) -> Self {
        let mut available = all;
        let mut is_available = vec![true; available.len()];
        let spares: VecDeque<Server> = available.drain(fleet.min(available.len())..).collect();
        for spare in &spares {
            is_available[*spare] = false;
        }
        Self { available, is_available, spares, returns: BinaryHeap::new() }
    }

    /// Available servers in order.
    pub(super) fn available(&self) -> &[Server] {
        &self.available
    }

    pub(super) fn is_available(&self, server: Server) -> bool {
        self.is_available[server]
    }

    pub(super) fn add(&mut self, server: Server) {
        self.is_available[server] = true;
        self.available.push(server);
    }

    /// Makes a spare available. False if none is left.
    pub(super) fn fetch_spare(&mut self) -> bool {
        let spare = self.spares.pop_front();
        if let Some(spare) = spare {
            self.add(spare);
        }
        spare.is_some()
    }

    /// Orders a spare that becomes available at a time. False if none is left or one is on its way.
    pub(super) fn order_spare(&mut self, until: u64) -> bool {
        let is_on_its_way =
            |Reverse((.., how)): &Reverse<(u64, Server, Return)>| *how == Return::Spare;
        if self.returns.iter().any(is_on_its_way) {
            return false;
        }
        let spare = self.spares.pop_front();
        self.returns.extend(spare.map(|spare| Reverse((until, spare, Return::Spare))));
        spare.is_some()
    }

    /// Takes a server away until a time.
    pub(super) fn send_away(&mut self, server: Server, until: u64, how: Return) {
        if std::mem::take(&mut self.is_available[server]) {
            self.available.retain(|other| *other != server);
        }
        self.returns.push(Reverse((until, server, how)));
    }

    /// When the next server comes back.
    pub(super) fn next_return(&self) -> Option<u64> {
        self.returns.peek().map(|Reverse((time, ..))| *time)
    }

    /// The next server that is due. The caller decides whether it is available again.
    pub(super) fn due(&mut self, now: u64) -> Option<(Server, Return)> {
        let is_due = self.next_return().is_some_and(|time| time <= now);
        let Reverse((_, server, how)) = is_due.then(|| self.returns.pop()).flatten()?;
        Some((server, how))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_leave_and_come_back_last() {
        let mut pool = Pool::new(vec![4, 0, 3, 1, 2], 4);
        assert_eq!(pool.available(), [4, 0, 3, 1]);
        let how = Return::Repaired { helps: true, memory: false };
        pool.send_away(0, 50, how);
        pool.send_away(4, 20, Return::ParentBack);
        assert_eq!((pool.available(), pool.is_available(0)), (&[3, 1][..], false));
        assert_eq!(pool.due(19), None);
        assert_eq!(pool.due(60), Some((4, Return::ParentBack)));
        assert_eq!(pool.next_return(), Some(50));
        assert_eq!(pool.due(60), Some((0, how)));
        assert_eq!((pool.due(60), pool.next_return()), (None, None));
        pool.add(4);
        assert!(pool.fetch_spare() && !pool.fetch_spare());
        assert_eq!(pool.available(), [3, 1, 4, 2]);
        assert!(pool.is_available(2));
        let mut pool = Pool::new(vec![4, 0, 3, 1, 2], 3);
        assert!(pool.order_spare(9) && !pool.order_spare(9));
        assert_eq!((pool.due(8), pool.due(9)), (None, Some((1, Return::Spare))));
        assert!(pool.order_spare(9));
    }
}
