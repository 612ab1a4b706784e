//! Nodes that score alike.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use octavo_engine::cluster::Cluster;
use octavo_engine::cluster::log::{Changes, ClusterId, Cursor};
use octavo_engine::cluster::states::StateId;
use octavo_engine::node::NodeId;

/// How many changes are kept at least.
const KEPT: usize = 1 << 16;

/// The key of a group: the state, and the features that a policy adds.
pub(super) type Key = (StateId, u128);

/// The nodes of a cluster in groups, and which groups changed.
#[derive(Debug, Default)]
pub(super) struct Groups {
    read: Cursor,
    /// The cluster whose nodes these are.
    cluster_id: ClusterId,
    ties: Vec<u32>,
    /// Ranks by node, and nodes by rank: the order among equals.
    ranks: Vec<u32>,
    nodes: Vec<NodeId>,
    /// By node; none before the node was looked at.
    group_of: Vec<Option<u32>>,
    by_number: Vec<Group>,
    by_key: FxHashMap<Key, u32>,
    unused: Vec<u32>,
    /// Groups whose nodes or key changed, in order, from position `first` on.
    changed: Vec<u32>,
    first: u64,
}

#[derive(Debug)]
pub(super) struct Group {
    /// The common key of its nodes.
    pub(super) key: Key,
    /// Number of key changes: scores of an old key are invalid.
    pub(super) generation: u32,
    /// Ranks of its nodes.
    ranks: BTreeSet<u32>,
}

impl Group {
    /// The rank that wins among its nodes; none if it has none.
    pub(super) fn first(&self) -> Option<u32> {
        self.ranks.first().copied()
    }
}

impl Groups {
    /// No nodes yet; equals are ordered by these ranks.
    pub(super) fn new(ties: Vec<u32>) -> Self {
        Self { ties, ..Self::default() }
    }

    /// Forgets all nodes if they belong to another cluster, and returns whether it did. Positions
    /// and generations that readers hold are invalid then.
    pub(super) fn forget_other(&mut self, cluster: &Cluster) -> bool {
        let cluster_id = cluster.log().cluster_id();
        let is_other = self.cluster_id != cluster_id;
        if is_other {
            *self = Self { cluster_id, ..Self::new(std::mem::take(&mut self.ties)) };
        }
        is_other
    }

    /// Reads nodes that changed and nodes whose features changed.
    pub(super) fn update(
        &mut self,
        cluster: &Cluster,
        marked: &[NodeId],
        features: impl Fn(NodeId) -> u128,
    ) {
        self.rank_new(cluster);
        let changes = cluster.log().read(&mut self.read);
        let mut look = |node: NodeId| self.regroup(node, (cluster.state(node), features(node)));
        match changes {
            Changes::All => cluster.nodes().for_each(&mut look),
            Changes::Nodes(nodes) => {
                nodes.iter().copied().for_each(&mut look);
                marked.iter().copied().for_each(&mut look);
            }
        }
        if self.changed.len() >= 2 * KEPT {
            let old = self.changed.len() - KEPT;
            self.changed.drain(..old);
            self.first += old as u64;
        }
    }

    /// All groups by number; some may be without nodes.
    pub(super) fn all(&self) -> &[Group] {
        &self.by_number
    }

    /// The node of a rank.
    pub(super) fn node(&self, rank: u32) -> Option<NodeId> {
        self.nodes.get(rank as usize).copied()
    }

    /// Numbers of groups changed since `position`, which moves to the end. None: too many changes.
    pub(super) fn changed_since(&self, position: &mut Option<u64>) -> Option<&[u32]> {
        let end = self.first + self.changed.len() as u64;
        let since = position.replace(end)?;
        let read = usize::try_from(since.checked_sub(self.first)?).ok()?;
        self.changed.get(read..)
    }

    fn rank_new(&mut self, cluster: &Cluster) {
        let known = self.ranks.len();
        if known == cluster.node_count() {
            return;
        }
        let mut new: Vec<NodeId> = cluster.nodes().skip(known).collect();
        new.sort_by_key(|node| {
            (self.ties.get(node.0 as usize).copied().unwrap_or(u32::MAX), *node)
        });
        self.ranks.resize(cluster.node_count(), 0);
        self.group_of.resize(cluster.node_count(), None);
        for (rank, node) in (0..).skip(known).zip(new) {
            self.ranks[node.0 as usize] = rank;
            self.nodes.push(node);
        }
    }

    fn regroup(&mut self, node: NodeId, key: Key) {
        let (index, rank) = (node.0 as usize, self.ranks[node.0 as usize]);
        if let Some(old) = self.group_of[index] {
            let group = &mut self.by_number[old as usize];
            if group.key == key {
                return;
            }
            group.ranks.remove(&rank);
            self.changed.push(old);
            if group.ranks.is_empty() {
                self.by_key.remove(&group.key);
                self.unused.push(old);
            }
        }
        let number = self.number(key);
        self.by_number[number as usize].ranks.insert(rank);
        self.group_of[index] = Some(number);
        self.changed.push(number);
    }

    /// The group of a key, made if there is none.
    fn number(&mut self, key: Key) -> u32 {
        if let Some(number) = self.by_key.get(&key) {
            return *number;
        }
        let number = if let Some(number) = self.unused.pop() {
            let group = &mut self.by_number[number as usize];
            (group.key, group.generation) = (key, group.generation.wrapping_add(1));
            number
        } else {
            self.by_number.push(Group { key, generation: 0, ranks: BTreeSet::new() });
            u32::try_from(self.by_number.len() - 1).unwrap_or(u32::MAX)
        };
        self.by_key.insert(key, number);
        number
    }
}
