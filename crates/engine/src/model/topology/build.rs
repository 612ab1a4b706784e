//! Topologies from node labels.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Domain, DomainId, LevelId, Topology};
use crate::node::NodeId;

/// Most levels below the whole cluster.
const MAX_LEVELS: usize = 16;

/// A level that labels make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Level {
    /// Name of the level, such as `rack`.
    pub name: String,
    /// Key of the label whose value names a node's domain.
    pub label: String,
    /// Whether a value names the same domain everywhere, as the id of an NVLink clique does. Such a
    /// domain under two parents is an error. Other names are unique below one parent.
    #[serde(rename = "unique", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unique: bool,
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
                            level: level.name.clone(),
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
    Topology { levels, domains, order, positions, leaf_domains: leaf_domains.into() }
}
