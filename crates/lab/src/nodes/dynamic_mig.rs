//! GPUs of a lab that are partitioned by MIG on demand: `all`, `none`, or `NODE:GPU,...`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use anyhow::bail;
use serde::{Deserialize, Serialize};

use crate::cluster::settings::Node;

/// GPUs of a lab that are opted in to dynamic MIG.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DynamicMig {
    /// None.
    #[default]
    None,
    /// All GPUs with MIG.
    All,
    /// These GPUs, as minor numbers by node.
    Some(BTreeMap<String, BTreeSet<u32>>),
}

/// GPUs of one node that are opted in, as `dynamicMig` of its `agent.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum NodeDynamicMig {
    /// `none` or `all`.
    Whole(Extent),
    /// Minor numbers.
    Some(BTreeSet<u32>),
}

/// None or all GPUs of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Extent {
    /// None.
    None,
    /// All GPUs with MIG.
    All,
}

impl NodeDynamicMig {
    /// Value of the node label `octavo.dev/dynamic-mig`; `None` where no GPU is opted in.
    pub(crate) fn label_value(&self) -> Option<String> {
        match self {
            Self::Whole(Extent::None) => None,
            Self::Whole(Extent::All) => Some("all".to_owned()),
            Self::Some(gpus) => {
                let gpus: Vec<String> = gpus.iter().map(u32::to_string).collect();
                Some(gpus.join("_")).filter(|value| !value.is_empty())
            }
        }
    }
}

/// A text is not a valid set of GPUs for dynamic MIG.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a GPU of a node: write all, none, or NODE:GPU,... as \
         dgx-h100-0:6,dgx-h100-0:7"
)]
pub struct DynamicMigError(String);

impl DynamicMig {
    /// The setting for one node.
    pub(crate) fn of(&self, node: &str) -> NodeDynamicMig {
        match self {
            Self::None => NodeDynamicMig::Whole(Extent::None),
            Self::All => NodeDynamicMig::Whole(Extent::All),
            Self::Some(gpus) => NodeDynamicMig::Some(gpus.get(node).cloned().unwrap_or_default()),
        }
    }

    /// Rejects the name of an unknown node.
    pub(crate) fn check(&self, nodes: &[Node]) -> anyhow::Result<()> {
        let Self::Some(gpus) = self else { return Ok(()) };
        let is_known = |name: &&String| nodes.iter().any(|node| node.name == **name);
        if let Some(unknown) = gpus.keys().find(|name| !is_known(name)) {
            let known: Vec<&str> = nodes.iter().map(|node| &*node.name).take(8).collect();
            bail!("--dynamic-mig names the node {unknown}, and the lab has {}", known.join(", "));
        }
        Ok(())
    }
}

impl Default for NodeDynamicMig {
    fn default() -> Self {
        Self::Whole(Extent::None)
    }
}

impl FromStr for DynamicMig {
    type Err = DynamicMigError;

    fn from_str(text: &str) -> Result<Self, DynamicMigError> {
        match text {
            "all" => return Ok(Self::All),
            "none" => return Ok(Self::None),
            _ => {}
        }
        let mut gpus: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for part in text.split(',').map(str::trim) {
            let wrong = || DynamicMigError(part.to_owned());
            let (node, gpu) = part.rsplit_once(':').ok_or_else(wrong)?;
            let gpu = gpu.parse().map_err(|_| wrong())?;
            if node.is_empty() {
                return Err(wrong());
            }
            gpus.entry(node.to_owned()).or_default().insert(gpu);
        }
        Ok(Self::Some(gpus))
    }
}

impl fmt::Display for DynamicMig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::All => f.write_str("all"),
            Self::Some(gpus) => {
                let parts = gpus
                    .iter()
                    .flat_map(|(node, gpus)| gpus.iter().map(move |gpu| format!("{node}:{gpu}")));
                f.write_str(&parts.collect::<Vec<_>>().join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_named_by_node() {
        let some: DynamicMig = "a-0:7, b:0,a-0:6".parse().unwrap();
        assert_eq!(some.to_string(), "a-0:6,a-0:7,b:0");
        assert_eq!(some.of("a-0"), NodeDynamicMig::Some([6, 7].into()));
        assert_eq!(some.of("c"), NodeDynamicMig::Some([].into()));
        assert_eq!("all".parse(), Ok(DynamicMig::All));
        for wrong in ["", "a", "a:", ":1", "a:x", "a:1,", "All"] {
            assert!(wrong.parse::<DynamicMig>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_agent_reads_what_is_written_for_it() {
        let text = |choice: &DynamicMig| serde_json::to_string(&choice.of("a")).unwrap();
        assert_eq!(text(&DynamicMig::All), r#""all""#);
        assert_eq!(text(&DynamicMig::None), r#""none""#);
        assert_eq!(text(&"a:3,a:1".parse().unwrap()), "[1,3]");
        let read: NodeDynamicMig = serde_json::from_str("[1,3]").unwrap();
        assert_eq!(read, NodeDynamicMig::Some([1, 3].into()));
    }

    #[test]
    fn a_node_that_is_not_there_is_named() {
        let nodes = "t4=1".parse::<crate::nodes::nodeset::NodeSet>().unwrap().nodes();
        let error = "t5-0:1".parse::<DynamicMig>().unwrap().check(&nodes).unwrap_err();
        assert!(error.to_string().contains("t5-0") && error.to_string().contains("t4-0"));
        "t4-0:1".parse::<DynamicMig>().unwrap().check(&nodes).unwrap();
    }
}
