//! The real nodes of a lab: `2:dgx-h100`.

use std::fmt;
use std::str::FromStr;

use crate::cluster::settings::Node;
use crate::nodes::dynamic_mig::NodeDynamicMig;
use crate::nodes::nodeset::stem;
use crate::nodes::owner::Owner;

/// The default machine, whose GPUs a real node simulates.
const DEFAULT_MACHINE: &str = "dgx-h100";

/// Machines with their numbers of real nodes, in the given order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealNodeSet {
    groups: Vec<(u8, String)>,
}

/// A text is not a valid set of real nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RealNodeSetError {
    /// A count is not a number, or the sum exceeds [`RealNodeSet::MAX_NODES`].
    #[error(
        "`{0}` is not a number of real nodes: write COUNT or COUNT:MACHINE, as 2:dgx-h100, {most} \
         nodes at most",
        most = RealNodeSet::MAX_NODES
    )]
    Count(String),
    /// No machine after the colon, or one without a usable name.
    #[error("`{0}` names no machine after the colon: write COUNT:MACHINE, as 2:dgx-h100")]
    Machine(String),
}

impl RealNodeSet {
    /// Largest number of real nodes of a lab.
    pub const MAX_NODES: u8 = 64;

    /// The nodes: `real-0`, `real-1`, ...
    pub fn nodes(&self) -> Vec<Node> {
        let machines = self
            .groups
            .iter()
            .flat_map(|(count, machine)| std::iter::repeat_n(machine, usize::from(*count)));
        (0_u32..)
            .zip(machines)
            .map(|(index, machine)| Node {
                name: format!("real-{index}"),
                machine: machine.clone(),
                index,
                dynamic_mig: NodeDynamicMig::default(),
                owner: Owner::default(),
            })
            .collect()
    }
}

impl FromStr for RealNodeSet {
    type Err = RealNodeSetError;

    fn from_str(text: &str) -> Result<Self, RealNodeSetError> {
        let mut groups = Vec::new();
        let mut left = Self::MAX_NODES;
        for part in text.split(',').map(str::trim) {
            let (count, machine) = part.split_once(':').unwrap_or((part, DEFAULT_MACHINE));
            let count: u8 = count.parse().map_err(|_| RealNodeSetError::Count(part.to_owned()))?;
            left =
                left.checked_sub(count).ok_or_else(|| RealNodeSetError::Count(part.to_owned()))?;
            if stem(machine).is_none() {
                return Err(RealNodeSetError::Machine(part.to_owned()));
            }
            // Paths are stored as absolute paths: a later command may run in another folder.
            let machine = match std::path::absolute(machine) {
                Ok(path) if machine.contains('/') => path.display().to_string(),
                _ => machine.to_owned(),
            };
            if count > 0 {
                groups.push((count, machine));
            }
        }
        Ok(Self { groups })
    }
}

impl fmt::Display for RealNodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.groups.is_empty() {
            return f.write_str("0");
        }
        for (i, (count, machine)) in self.groups.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{count}:{machine}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(text: &str) -> Vec<(String, String)> {
        let nodes = text.parse::<RealNodeSet>().unwrap().nodes();
        nodes.into_iter().map(|node| (node.name, node.machine)).collect()
    }

    #[test]
    fn real_nodes_are_numbered_through_all_machines() {
        let pair = |name: &str, machine: &str| (name.to_owned(), machine.to_owned());
        assert_eq!(nodes("0"), []);
        assert_eq!(nodes("1"), [pair("real-0", "dgx-h100")]);
        assert_eq!(
            nodes("2:t4, 1:l4"),
            [pair("real-0", "t4"), pair("real-1", "t4"), pair("real-2", "l4")]
        );
        assert!(nodes("1:machines/t4.yaml")[0].1.starts_with('/'));
    }

    #[test]
    fn invalid_real_node_set_is_refused_with_the_wrong_part() {
        let error = |text: &str| text.parse::<RealNodeSet>().unwrap_err();
        assert_eq!(error("many"), RealNodeSetError::Count("many".into()));
        assert_eq!(error("60,5:t4"), RealNodeSetError::Count("5:t4".into()));
        assert_eq!(error("1:"), RealNodeSetError::Machine("1:".into()));
        assert_eq!(error(""), RealNodeSetError::Count(String::new()));
    }

    #[test]
    fn a_set_prints_as_it_is_written() {
        for text in ["0", "2:dgx-h100,1:t4"] {
            assert_eq!(text.parse::<RealNodeSet>().unwrap().to_string(), text);
        }
    }
}
