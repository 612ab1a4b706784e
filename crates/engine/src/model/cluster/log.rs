//! Which nodes changed, in order: readers remember how far they have read.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::node::NodeId;

/// How many changes are kept at least.
const MIN_KEPT_CHANGES: usize = 1 << 16;

/// The cluster of a log. A copy of a cluster is another cluster, because the two diverge. Ids are
/// compared only for equality. They differ between runs without influence on decisions.
/// [`ClusterId::default`] is the id of no cluster.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct ClusterId(u64);

impl ClusterId {
    fn fresh() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

// Without the number, so that debug output is the same in each run.
impl std::fmt::Debug for ClusterId {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Identity")
    }
}

/// A reader's position and its log. [`Cursor::default`] has read nothing, not even the initial
/// nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    cluster_id: ClusterId,
    position: u64,
}

/// The changes of a cluster.
#[derive(Debug)]
pub struct Log {
    cluster_id: ClusterId,
    /// Position of the first change that is kept. Positions start at 1, so a new cursor has always
    /// missed something.
    first: u64,
    nodes: Vec<NodeId>,
}

/// The changes since a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes<'a> {
    /// These nodes, some perhaps several times.
    Nodes(&'a [NodeId]),
    /// Too many changes, or another cluster: read all nodes.
    All,
}

impl Default for Log {
    fn default() -> Self {
        Self { cluster_id: ClusterId::fresh(), first: 1, nodes: Vec::new() }
    }
}

impl Clone for Log {
    /// The same changes, of another cluster.
    fn clone(&self) -> Self {
        Self { cluster_id: ClusterId::fresh(), first: self.first, nodes: self.nodes.clone() }
    }
}

impl Log {
    /// The cluster of this log. Caches keyed by [`crate::cluster::states::StateId`] must be cleared
    /// when it changes: the same id is another state there.
    pub fn cluster_id(&self) -> ClusterId {
        self.cluster_id
    }

    /// The changes since `cursor`, which moves to the end.
    pub fn read(&self, cursor: &mut Cursor) -> Changes<'_> {
        let since = std::mem::replace(cursor, self.end());
        let position = (since.cluster_id == self.cluster_id).then_some(since.position);
        match position.and_then(|position| position.checked_sub(self.first)) {
            Some(read) => {
                let read = usize::try_from(read).unwrap_or(usize::MAX);
                Changes::Nodes(self.nodes.get(read..).unwrap_or_default())
            }
            None => Changes::All,
        }
    }

    /// The position behind the last change.
    pub fn end(&self) -> Cursor {
        Cursor { cluster_id: self.cluster_id, position: self.first + self.nodes.len() as u64 }
    }

    pub(super) fn note(&mut self, node: NodeId) {
        if self.nodes.len() >= 2 * MIN_KEPT_CHANGES {
            self.nodes.drain(..MIN_KEPT_CHANGES);
            self.first += MIN_KEPT_CHANGES as u64;
        }
        self.nodes.push(node);
    }
}
