//! Quota of guard connections, which use the agent's file descriptors.
//!
//! Half of the quota is reserved evenly for the shares; the other half is first come, first served. One share therefore
//! cannot block the guards of another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Maximum connections of all shares of a node.
const MAX_CONNECTIONS: u64 = 4096;
/// Guards may use at most this fraction of the agent's descriptors, divided by those of a connection: its socket, its
/// doorbell, and its process.
const DESCRIPTORS_DIVISOR: u64 = 4 * 3;
/// Maximum connections of a share: about one per process.
pub(crate) const MAX_CONNECTIONS_PER_SHARE: usize = 512;

/// The room of a node.
#[derive(Debug)]
pub(crate) struct ConnectionQuota {
    total: usize,
    /// Connections of each share that listens.
    held: Mutex<BTreeMap<String, ShareConnections>>,
}

#[derive(Debug, Default)]
struct ShareConnections {
    connections: usize,
    /// Listening sockets of the share. A recreated socket overlaps with its predecessor.
    sockets: usize,
}

/// A share's part of the quota, while it listens.
#[derive(Debug)]
pub(crate) struct ShareQuota {
    quota: Arc<ConnectionQuota>,
    share: String,
}

/// A connection's place.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    of: Arc<ShareQuota>,
}

impl ConnectionQuota {
    /// A quota with a total number of connections.
    pub(crate) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self { total, held: Mutex::default() })
    }

    /// A quota derived from this process's descriptor limit.
    pub(crate) fn for_process() -> Arc<Self> {
        let limit = getrlimit(Resource::Nofile).current;
        let descriptors = limit.map_or(u64::MAX, |limit| limit / DESCRIPTORS_DIVISOR);
        Self::new(usize::try_from(descriptors.min(MAX_CONNECTIONS)).unwrap_or(usize::MAX))
    }

    /// Takes a share's part.
    pub(crate) fn for_share(self: &Arc<Self>, share: &str) -> Arc<ShareQuota> {
        self.held().entry(share.to_owned()).or_default().sockets += 1;
        Arc::new(ShareQuota { quota: Arc::clone(self), share: share.to_owned() })
    }

    /// Whole between statements.
    fn held(&self) -> MutexGuard<'_, BTreeMap<String, ShareConnections>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ShareQuota {
    /// A permit for one more connection, if the quota allows it.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let mut held = self.quota.held();
        let half = self.quota.total / 2;
        let kept = (half / held.len().max(1)).max(1);
        let of_all = held.values().map(|held| held.connections.saturating_sub(kept));
        let is_free = of_all.sum::<usize>() < half;
        let own = held.get_mut(&self.share)?;
        if own.connections >= MAX_CONNECTIONS_PER_SHARE || (own.connections >= kept && !is_free) {
            return None;
        }
        own.connections += 1;
        Some(ConnectionPermit { of: Arc::clone(self) })
    }
}

impl Drop for ShareQuota {
    fn drop(&mut self) {
        let mut held = self.quota.held();
        let Some(own) = held.get_mut(&self.share) else { return };
        own.sockets -= 1;
        if own.sockets == 0 {
            held.remove(&self.share);
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let Some(own) = self.of.quota.held().get_mut(&self.of.share) {
            own.connections -= 1;
        }
    }
}

/// Raises this process's descriptor limit to its maximum, since each guard of a node needs one. On failure the current
/// limit applies.
pub fn raise_descriptor_limit() {
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

    fn permits(share: &Arc<ShareQuota>, wanted: usize) -> Vec<ConnectionPermit> {
        (0..wanted).map_while(|_| share.try_acquire()).collect()
    }

    #[test]
    fn a_share_that_takes_all_it_can_leaves_the_others_their_part() {
        let quota = ConnectionQuota::new(64);
        let shares: Vec<_> = (0..8).map(|share| quota.for_share(&share.to_string())).collect();
        let greedy = permits(&shares[0], 1000);
        assert_eq!(greedy.len(), 32 + 4, "what is everybody's, and its own part");
        let also = permits(&shares[1], 1000);
        assert_eq!(also.len(), 4);
        for share in &shares[2..] {
            assert_eq!(permits(share, 1000).len(), 4);
        }
        // Returned permits are available to all shares again.
        drop(greedy);
        assert_eq!(permits(&shares[1], 1000).len(), 32);
        drop((also, shares));
        assert!(quota.held().is_empty());
    }

    #[test]
    fn a_share_that_comes_later_has_its_part_too() {
        let quota = ConnectionQuota::new(64);
        let first = quota.for_share("first");
        let all = permits(&first, 1000);
        assert_eq!(all.len(), 64);
        let second = quota.for_share("second");
        assert_eq!(permits(&second, 1000).len(), 16);
        assert!(first.try_acquire().is_none());
        // Its socket may be recreated.
        let again = quota.for_share("second");
        drop(second);
        assert_eq!(permits(&again, 1000).len(), 16);
    }

    #[test]
    fn a_share_has_no_more_than_its_processes_may_need() {
        let quota = ConnectionQuota::new(4096);
        assert_eq!(permits(&quota.for_share("a"), 5000).len(), MAX_CONNECTIONS_PER_SHARE);
    }

    #[test]
    fn descriptors_are_raised_to_what_the_system_allows() {
        let allowed = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(512), maximum: allowed }).unwrap();
        raise_descriptor_limit();
        assert_eq!(getrlimit(Resource::Nofile).current, allowed);
    }
}
