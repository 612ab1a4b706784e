//! Identity of a node in its NVLink fabric.

use std::fmt;
use std::str::FromStr;

use octavo_machine::Machine;

/// A node of a fabric: the UUID of its first GPU, which no other node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub u128);

impl NodeId {
    /// The node of a machine whose GPUs have their UUIDs; `None` without any.
    pub fn of(machine: &Machine) -> Option<Self> {
        let uuid = machine.gpus.first()?.uuid.as_deref()?;
        uuid_number(uuid.strip_prefix("GPU-")?).map(Self)
    }
}

/// A UUID in hex digits as a number.
pub(crate) fn uuid_number(uuid: &str) -> Option<u128> {
    let digits: String = uuid.chars().filter(|digit| *digit != '-').collect();
    u128::from_str_radix(&digits, 16).ok()
}

impl fmt::Display for NodeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

impl FromStr for NodeId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}
