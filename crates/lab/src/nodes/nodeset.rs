//! The simulated nodes of a lab: `dgx-h100=2,gb200-tray=18`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::cluster::settings::Node;
use crate::nodes::dynamic_mig::NodeDynamicMig;
use crate::nodes::owner::Owner;

/// Machines with their numbers of nodes, in the given order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSet {
    groups: Vec<(String, u32)>,
}

/// A text is not a valid node set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeSetError {
    /// A part has no machine before the `=`.
    #[error("`{0}` names no machine: write MACHINE=COUNT, as dgx-h100=2")]
    NoMachine(String),
    /// A count is not a number from 1 to [`NodeSet::MAX_NODES`].
    #[error("`{0}` is not a number of nodes: write a number from 1 to {most}", most = NodeSet::MAX_NODES)]
    Count(String),
    /// Two parts would give their nodes the same names.
    #[error("the machine `{0}` is named twice: give it one count")]
    Twice(String),
    /// A machine's name has no characters that are valid in a node's name.
    #[error("nodes cannot have a name from `{0}`: use letters or digits in the file's name")]
    Nameless(String),
}

impl NodeSet {
    /// Largest number of nodes of one machine.
    pub const MAX_NODES: u32 = 5_000;

    /// No nodes at all.
    pub fn none() -> Self {
        Self { groups: Vec::new() }
    }

    /// Names and machines of the nodes: `dgx-h100-0`, `dgx-h100-1`, ...
    pub fn nodes(&self) -> Vec<Node> {
        let name = |machine: &str, index: u32| match stem(machine) {
            Some(stem) => format!("{stem}-{index}"),
            None => format!("node-{index}"),
        };
        self.groups
            .iter()
            .flat_map(|(machine, count)| (0..*count).map(move |index| (machine, index)))
            .map(|(machine, index)| Node {
                name: name(machine, index),
                machine: machine.clone(),
                index,
                dynamic_mig: NodeDynamicMig::default(),
                owner: Owner::default(),
            })
            .collect()
    }
}

impl Default for NodeSet {
    /// Two 8-GPU H100 nodes, one 8-GPU A100 node and two 4-GPU trays of a GB200 rack.
    fn default() -> Self {
        let group = |machine: &str, count| (machine.to_owned(), count);
        Self { groups: vec![group("dgx-h100", 2), group("dgx-a100-80", 1), group("gb200-tray", 2)] }
    }
}

impl FromStr for NodeSet {
    type Err = NodeSetError;

    fn from_str(text: &str) -> Result<Self, NodeSetError> {
        let mut groups = Vec::new();
        let mut stems = BTreeMap::new();
        for part in text.split(',').map(str::trim) {
            let (machine, count) = part.rsplit_once('=').unwrap_or((part, "1"));
            if machine.is_empty() {
                return Err(NodeSetError::NoMachine(part.to_owned()));
            }
            let count = count.parse().ok().filter(|count| (1..=Self::MAX_NODES).contains(count));
            let count = count.ok_or_else(|| NodeSetError::Count(part.to_owned()))?;
            let stem = stem(machine).ok_or_else(|| NodeSetError::Nameless(machine.to_owned()))?;
            if stems.insert(stem, ()).is_some() {
                return Err(NodeSetError::Twice(machine.to_owned()));
            }
            // Paths are stored as absolute paths: a later command may run in another folder.
            let is_path = machine.contains('/');
            let machine = match std::path::absolute(machine) {
                Ok(path) if is_path => path.display().to_string(),
                _ => machine.to_owned(),
            };
            groups.push((machine, count));
        }
        Ok(Self { groups })
    }
}

impl fmt::Display for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (machine, count)) in self.groups.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{machine}={count}")?;
        }
        Ok(())
    }
}

/// The stem of a machine's node names: a DNS label from its file's stem.
pub(crate) fn stem(machine: &str) -> Option<String> {
    let name = Path::new(machine).file_name()?.to_str()?;
    let name = name.strip_suffix(".yaml").or_else(|| name.strip_suffix(".yml")).unwrap_or(name);
    let label: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .take(40)
        .collect();
    let label = label.trim_matches('-');
    (!label.is_empty()).then(|| label.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.parse::<NodeSet>().unwrap().nodes().into_iter().map(|node| node.name).collect()
    }

    #[test]
    fn nodes_are_numbered_within_their_machine() {
        assert_eq!(names("dgx-h100=2, gb200-tray"), ["dgx-h100-0", "dgx-h100-1", "gb200-tray-0"]);
        assert_eq!(NodeSet::default().nodes().len(), 5);
        assert_eq!(NodeSet::none().nodes(), []);
    }

    #[test]
    fn a_path_gives_its_stem_as_a_label_and_is_kept_absolute() {
        let nodes = "machines/My_Box.v2.yaml=1".parse::<NodeSet>().unwrap().nodes();
        assert_eq!(nodes[0].name, "my-box-v2-0");
        assert!(nodes[0].machine.starts_with('/'), "{}", nodes[0].machine);
        let equals = "/tmp/a=b.yaml=3".parse::<NodeSet>().unwrap();
        assert_eq!(equals.to_string(), "/tmp/a=b.yaml=3");
    }

    #[test]
    fn invalid_node_set_is_refused_with_the_wrong_part() {
        let error = |text: &str| text.parse::<NodeSet>().unwrap_err();
        assert_eq!(error("a=1,=2"), NodeSetError::NoMachine("=2".into()));
        assert_eq!(error("a=0"), NodeSetError::Count("a=0".into()));
        assert_eq!(error("a=many"), NodeSetError::Count("a=many".into()));
        assert_eq!(error("a=5001"), NodeSetError::Count("a=5001".into()));
        assert_eq!(error("a=1,x/a.yaml=1"), NodeSetError::Twice("x/a.yaml".into()));
        assert_eq!(error("___=1"), NodeSetError::Nameless("___".into()));
        assert_eq!(error(""), NodeSetError::NoMachine(String::new()));
    }

    #[test]
    fn a_set_prints_as_it_is_written() {
        let text = "dgx-h100=2,dgx-a100-80=1,gb200-tray=2";
        assert_eq!(NodeSet::default().to_string(), text);
        assert_eq!(text.parse::<NodeSet>().unwrap(), NodeSet::default());
    }
}
