//! The scheduler that owns each node of a lab: `octavo`, `kube`, or `MACHINE=OWNER,...`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::bail;
use serde::{Deserialize, Serialize};

use crate::cluster::settings::Node;
use crate::nodes::nodeset;

/// The scheduler that allocates a node's devices. A node has one owner, because the API server does
/// not prevent two schedulers from allocating the same device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// Kubernetes' own scheduler: the node carries no label.
    #[default]
    Kube,
    /// Octavo's scheduler: the node carries the label [`octavo_api::names::LABEL_OWNER`].
    Octavo,
}

/// Owners of a lab's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owners {
    /// One owner for all nodes.
    All(Owner),
    /// Owners by machine stem. Other nodes belong to Kubernetes' scheduler.
    Machines(BTreeMap<String, Owner>),
}

/// A text does not name owners of nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` does not say who owns which nodes: write octavo, kube, or MACHINE=OWNER,... as \
     dgx-h100=octavo"
)]
pub struct OwnersError(String);

impl Owner {
    /// Value of the node label; `None` without a label.
    pub(crate) fn label(self) -> Option<&'static str> {
        match self {
            Self::Kube => None,
            Self::Octavo => Some("octavo"),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text {
            "kube" => Some(Self::Kube),
            "octavo" => Some(Self::Octavo),
            _ => None,
        }
    }
}

impl Owners {
    /// The owner of a node.
    pub(crate) fn of(&self, node: &Node) -> Owner {
        match self {
            Self::All(owner) => *owner,
            Self::Machines(owners) => {
                let stem = nodeset::stem(&node.machine).unwrap_or_default();
                owners.get(&stem).copied().unwrap_or_default()
            }
        }
    }

    /// Rejects a machine without nodes in the lab.
    pub(crate) fn check(&self, nodes: &[Node]) -> anyhow::Result<()> {
        let Self::Machines(owners) = self else { return Ok(()) };
        let stems: Vec<String> =
            nodes.iter().filter_map(|node| nodeset::stem(&node.machine)).collect();
        if let Some(unknown) = owners.keys().find(|machine| !stems.contains(machine)) {
            let mut known = stems.clone();
            known.dedup();
            bail!("--owner names {unknown}, and the lab has nodes of {}", known.join(", "));
        }
        Ok(())
    }
}

impl Default for Owners {
    fn default() -> Self {
        Self::All(Owner::Kube)
    }
}

impl FromStr for Owners {
    type Err = OwnersError;

    fn from_str(text: &str) -> Result<Self, OwnersError> {
        if let Some(owner) = Owner::parse(text) {
            return Ok(Self::All(owner));
        }
        let mut owners = BTreeMap::new();
        for part in text.split(',').map(str::trim) {
            let wrong = || OwnersError(part.to_owned());
            let (machine, owner) = part.rsplit_once('=').ok_or_else(wrong)?;
            let stem = nodeset::stem(machine).ok_or_else(wrong)?;
            if owners.insert(stem, Owner::parse(owner).ok_or_else(wrong)?).is_some() {
                return Err(wrong());
            }
        }
        Ok(Self::Machines(owners))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kube => "kube",
            Self::Octavo => "octavo",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::nodeset::NodeSet;

    #[test]
    fn one_owner_has_all_nodes_and_else_the_machine_says_whose_a_node_is() {
        let nodes = "dgx-h100=1,/m/My_Box.yaml=1,t4=1".parse::<NodeSet>().unwrap().nodes();
        let all: Owners = "octavo".parse().unwrap();
        assert!(nodes.iter().all(|node| all.of(node) == Owner::Octavo));
        let some: Owners = "dgx-h100=octavo, /m/My_Box.yaml=octavo".parse().unwrap();
        let owners: Vec<Owner> = nodes.iter().map(|node| some.of(node)).collect();
        assert_eq!(owners, [Owner::Octavo, Owner::Octavo, Owner::Kube]);
        assert_eq!(Owners::default().of(&nodes[0]), Owner::Kube);
    }

    #[test]
    fn invalid_owner_is_refused_with_the_wrong_part() {
        for wrong in ["", "me", "t4=me", "t4", "=octavo", "t4=octavo,t4=kube"] {
            assert!(wrong.parse::<Owners>().is_err(), "{wrong:?}");
        }
        let error = "dgx-h100=octavo,t4=me".parse::<Owners>().unwrap_err();
        assert!(error.to_string().contains("`t4=me`"), "{error}");
    }

    #[test]
    fn a_machine_that_the_lab_has_no_node_of_is_named() {
        let nodes = "t4=2".parse::<NodeSet>().unwrap().nodes();
        let error = "l4=octavo".parse::<Owners>().unwrap().check(&nodes).unwrap_err().to_string();
        assert!(error.contains("l4") && error.contains("t4"), "{error}");
        "t4=octavo".parse::<Owners>().unwrap().check(&nodes).unwrap();
    }
}
