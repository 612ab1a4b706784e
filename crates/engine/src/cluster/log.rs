//! Which nodes changed, in order: readers remember how far they have read.

use crate::node::NodeId;

/// How many changes are kept at least.
const KEPT: usize = 1 << 16;

/// How far a reader has read. [`Cursor::default`] has read nothing, not even that nodes are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(u64);

/// The changes of a cluster.
#[derive(Clone, Debug)]
pub struct Log {
    /// Position of the first change that is kept; positions start at 1, so that a new cursor has
    /// always missed something.
    first: u64,
    nodes: Vec<NodeId>,
}

/// What changed since a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes<'a> {
    /// These nodes, some perhaps several times.
    Nodes(&'a [NodeId]),
    /// Too much to tell: look at all nodes.
    All,
}

impl Default for Log {
    fn default() -> Self {
        Self { first: 1, nodes: Vec::new() }
    }
}

impl Log {
    /// What changed since `cursor`, which is moved to the end.
    pub fn read(&self, cursor: &mut Cursor) -> Changes<'_> {
        let since = *cursor;
        *cursor = self.end();
        match since.0.checked_sub(self.first) {
            Some(read) => {
                let read = usize::try_from(read).unwrap_or(usize::MAX);
                Changes::Nodes(self.nodes.get(read..).unwrap_or_default())
            }
            None => Changes::All,
        }
    }

    /// The position behind the last change.
    pub fn end(&self) -> Cursor {
        Cursor(self.first + self.nodes.len() as u64)
    }

    pub(super) fn note(&mut self, node: NodeId) {
        if self.nodes.len() >= 2 * KEPT {
            self.nodes.drain(..KEPT);
            self.first += KEPT as u64;
        }
        self.nodes.push(node);
    }
}
