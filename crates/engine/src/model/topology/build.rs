//! Topologies from node labels, and from a configured tree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Domain, DomainId, LevelId, Topology};
use crate::node::NodeId;

/// Most levels below the whole cluster.
const MAX_LEVELS: usize = 16;

/// A level that labels make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// Name of the level, such as `rack`.
    pub name: Arc<str>,
    /// Key of the label whose value names a node's domain.
    pub label: String,
    /// Whether a value names the same domain everywhere, as the id of an NVLink clique does. Such a
    /// domain under two parents is an error. Other names are unique below one parent.
    pub is_unique: bool,
}

/// A domain of a tree that is written down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeDomain {
    /// Its name, unique in the tree.
    pub name: String,
    /// Name of its level.
    pub level: String,
    /// Name of the domain above; none: directly below the cluster.
    pub parent: Option<String>,
    /// Names of its nodes that are in no domain below it.
    pub nodes: Vec<String>,
}

/// Why there is no topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A level twice, or named `cluster`.
    #[error("level {0:?} is named twice (the level \"cluster\" always exists)")]
    DuplicateLevel(String),
    /// Too many levels.
    #[error("{count} levels; at most {MAX_LEVELS} are possible")]
    TooManyLevels {
        /// How many there are.
        count: usize,
    },
    /// A unique domain under two parents.
    #[error(
        "{level} {name:?} lies in {first} and in {second}; a {level} is in one domain of the level \
         above: correct the labels, or put the level {level} above that level"
    )]
    SplitDomain {
        /// The level.
        level: String,
        /// The domain.
        name: String,
        /// Path of one parent.
        first: String,
        /// Path of another.
        second: String,
    },
    /// Two domains of one name.
    #[error("domain {0:?} is listed twice; domain names must be unique")]
    DuplicateDomain(String),
    /// A level that is not in the list.
    #[error("domain {domain:?} is of level {level:?}, which is none of: {known}")]
    UnknownLevel {
        /// The domain.
        domain: String,
        /// Its level.
        level: String,
        /// The levels, joined.
        known: String,
    },
    /// A parent that is not there.
    #[error("domain {domain:?} has the parent {parent:?}, which does not exist")]
    UnknownParent {
        /// The domain.
        domain: String,
        /// Its parent.
        parent: String,
    },
    /// Domains that are above one another.
    #[error("the parents of domains form a cycle: {}", .0.join(" -> "))]
    Cycle(Vec<String>),
    /// A parent that is not exactly one level above.
    #[error(
        "domain {domain:?} is of level {level:?}, so its parent must be of level {wanted:?}, not \
         {found:?}"
    )]
    WrongLevel {
        /// The domain.
        domain: String,
        /// Its level.
        level: String,
        /// Level that its parent must have.
        wanted: String,
        /// Level that its parent has.
        found: String,
    },
    /// A node that is not in the cluster.
    #[error("domain {domain:?} has the node {node:?}, which is not in the cluster")]
    UnknownNode {
        /// The domain.
        domain: String,
        /// The node.
        node: String,
    },
    /// A node in two domains.
    #[error("node {node:?} is in the domains {first:?} and {second:?}; it must be in one")]
    NodeTwice {
        /// The node.
        node: String,
        /// One domain.
        first: String,
        /// Another.
        second: String,
    },
}

impl Topology {
    /// A topology without levels: the whole cluster, nodes by id.
    pub fn flat(nodes: usize) -> Self {
        lay_out(vec!["cluster".into()], &vec![Vec::new(); nodes])
    }

    /// The topology from labels. `labels` has each node's labels by id. A node without the label of
    /// a level is in no domain of that level or of any level below.
    pub fn from_labels<'a>(
        levels: &[Level],
        labels: impl IntoIterator<Item = &'a BTreeMap<String, String>>,
    ) -> Result<Self, TopologyError> {
        let names = level_names(levels.iter().map(|level| &*level.name))?;
        let mut parents: BTreeMap<(usize, &str), Vec<Arc<str>>> = BTreeMap::new();
        let mut paths = Vec::new();
        for labels in labels {
            let mut path: Vec<Arc<str>> = Vec::new();
            for (number, level) in levels.iter().enumerate() {
                let value = labels.get(&level.label).filter(|value| !value.is_empty());
                let Some(value) = value else { break };
                if level.is_unique {
                    let known = parents.entry((number, value)).or_insert_with(|| path.clone());
                    if *known != path {
                        return Err(TopologyError::SplitDomain {
                            level: level.name.to_string(),
                            name: value.clone(),
                            first: known.join("/"),
                            second: path.join("/"),
                        });
                    }
                }
                path.push(value.as_str().into());
            }
            paths.push(path);
        }
        Ok(lay_out(names, &paths))
    }

    /// The topology from a tree of domains. `node_named` finds one of `nodes` nodes by name. Nodes
    /// in no domain are directly below the cluster.
    pub fn from_tree(
        levels: &[String],
        tree: &[TreeDomain],
        nodes: usize,
        node_named: impl Fn(&str) -> Option<NodeId>,
    ) -> Result<Self, TopologyError> {
        let names = level_names(levels.iter().map(String::as_str))?;
        let mut by_name = BTreeMap::new();
        for domain in tree {
            if by_name.insert(domain.name.as_str(), domain).is_some() {
                return Err(TopologyError::DuplicateDomain(domain.name.clone()));
            }
        }
        let mut paths: Vec<Vec<Arc<str>>> = vec![Vec::new(); nodes];
        let mut owners: BTreeMap<NodeId, &str> = BTreeMap::new();
        for domain in tree {
            let path = path_of(domain, &by_name, levels)?;
            for name in &domain.nodes {
                let node = node_named(name).filter(|node| (node.0 as usize) < nodes);
                let node = node.ok_or_else(|| TopologyError::UnknownNode {
                    domain: domain.name.clone(),
                    node: name.clone(),
                })?;
                if let Some(first) = owners.insert(node, &domain.name) {
                    return Err(TopologyError::NodeTwice {
                        node: name.clone(),
                        first: first.to_owned(),
                        second: domain.name.clone(),
                    });
                }
                paths[node.0 as usize].clone_from(&path);
            }
        }
        Ok(lay_out(names, &paths))
    }
}

fn level_names<'a>(levels: impl Iterator<Item = &'a str>) -> Result<Vec<Arc<str>>, TopologyError> {
    let mut names: Vec<Arc<str>> = vec!["cluster".into()];
    for level in levels {
        if names.iter().any(|known| **known == *level) {
            return Err(TopologyError::DuplicateLevel(level.to_owned()));
        }
        names.push(level.into());
    }
    let count = names.len() - 1;
    if count > MAX_LEVELS { Err(TopologyError::TooManyLevels { count }) } else { Ok(names) }
}

/// Names from below the cluster down to the domain.
fn path_of(
    domain: &TreeDomain,
    by_name: &BTreeMap<&str, &TreeDomain>,
    levels: &[String],
) -> Result<Vec<Arc<str>>, TopologyError> {
    let level_of = |domain: &TreeDomain| {
        levels.iter().position(|level| *level == domain.level).ok_or_else(|| {
            TopologyError::UnknownLevel {
                domain: domain.name.clone(),
                level: domain.level.clone(),
                known: levels.join(", "),
            }
        })
    };
    let mut path: Vec<Arc<str>> = vec![domain.name.as_str().into()];
    let mut seen = BTreeSet::from([domain.name.as_str()]);
    let mut here = domain;
    while let Some(parent) = &here.parent {
        let above = *by_name.get(parent.as_str()).ok_or_else(|| TopologyError::UnknownParent {
            domain: here.name.clone(),
            parent: parent.clone(),
        })?;
        if !seen.insert(&above.name) {
            let mut circle: Vec<_> = path.iter().map(ToString::to_string).collect();
            circle.push(above.name.clone());
            return Err(TopologyError::Cycle(circle));
        }
        path.push(above.name.as_str().into());
        here = above;
    }
    // Levels are checked last: a cycle has no valid levels and should be reported as a cycle.
    let mut here = domain;
    loop {
        let level = level_of(here)?;
        let above = here.parent.as_deref().and_then(|name| by_name.get(name).copied());
        let found = above.map(level_of).transpose()?;
        if found != level.checked_sub(1) {
            let name = |level: Option<usize>| {
                level
                    .and_then(|level| levels.get(level))
                    .map_or("cluster", String::as_str)
                    .to_owned()
            };
            return Err(TopologyError::WrongLevel {
                domain: here.name.clone(),
                level: here.level.clone(),
                wanted: name(level.checked_sub(1)),
                found: name(found),
            });
        }
        match above {
            Some(above) => here = above,
            None => break,
        }
    }
    path.reverse();
    Ok(path)
}

/// Orders nodes by their domain paths, so that each domain is one range.
fn lay_out(levels: Vec<Arc<str>>, paths: &[Vec<Arc<str>>]) -> Topology {
    let mut order: Vec<u32> = (0..u32::try_from(paths.len()).unwrap_or(u32::MAX)).collect();
    // A shorter path sorts behind the longer ones: loose nodes are last in their domain.
    order.sort_by(|a, b| {
        let (left, right) = (&paths[*a as usize], &paths[*b as usize]);
        let common = left.iter().zip(right).find(|(left, right)| left != right);
        common
            .map_or_else(|| right.len().cmp(&left.len()), |(left, right)| left.cmp(right))
            .then_with(|| a.cmp(b))
    });
    let count = u32::try_from(order.len()).unwrap_or(u32::MAX);
    let root = Domain {
        level: LevelId(0),
        name: Arc::clone(&levels[0]),
        parent: None,
        children: 0..0,
        nodes: 0..count,
    };
    let mut domains = vec![root];
    let mut leaf_domains = vec![Topology::ROOT; paths.len()];
    // Breadth-first, so that the children of one parent are contiguous.
    let mut next = 0;
    while next < domains.len() {
        let (parent, depth) = (next, usize::from(domains[next].level.0));
        let first = u32::try_from(domains.len()).unwrap_or(u32::MAX);
        let mut last: Option<&str> = None;
        for position in domains[parent].nodes.clone() {
            let node = order[position as usize] as usize;
            let Some(name) = paths[node].get(depth) else { break };
            if last != Some(name) {
                domains.push(Domain {
                    level: LevelId(u8::try_from(depth + 1).unwrap_or(u8::MAX)),
                    name: Arc::clone(name),
                    parent: Some(DomainId(u32::try_from(parent).unwrap_or(u32::MAX))),
                    children: 0..0,
                    nodes: position..position,
                });
                last = Some(name);
            }
            let tightest = domains.len() - 1;
            domains[tightest].nodes.end = position + 1;
            leaf_domains[node] = DomainId(u32::try_from(tightest).unwrap_or(u32::MAX));
        }
        domains[parent].children = first..u32::try_from(domains.len()).unwrap_or(u32::MAX);
        next += 1;
    }
    let mut positions = vec![0; order.len()];
    for (position, node) in (0..).zip(&order) {
        positions[*node as usize] = position;
    }
    let order = order.into_iter().map(NodeId).collect();
    Topology { levels, domains, order, positions, leaf_domains }
}
