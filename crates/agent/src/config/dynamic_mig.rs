//! The setting `dynamicMig`: GPUs partitioned by MIG on demand.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use octavo_gpu::{Gpu, PciAddress};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

/// The GPUs of a node that MIG partitions as claims request it.
///
/// Written `all`, `none`, or as GPUs: minor numbers, UUIDs or PCI addresses. GPUs are separated by commas on the command
/// line (`0,3`) and by underscores in a label (`0_3`), and form a list in a file (`[0, 3]`). A label's value can have
/// no PCI address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DynamicMig {
    /// None: existing instances are offered as they are.
    #[default]
    None,
    /// All GPUs with MIG support.
    All,
    /// These.
    Gpus(BTreeSet<GpuName>),
}

/// A GPU as an administrator names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GpuName {
    /// The number of its device node. A reboot, another GPU or a change of MIG mode may give it to another GPU.
    Minor(u32),
    /// `GPU-` and its UUID.
    Uuid(String),
    /// Its PCI address.
    Pci(PciAddress),
}

/// Parse error of [`DynamicMig`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} does not say which GPUs to cut: give `all`, `none`, or {1}")]
pub struct DynamicMigError(String, &'static str);

impl DynamicMig {
    /// Whether the GPU is included.
    pub fn has(&self, gpu: &Gpu) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Gpus(names) => names.iter().any(|name| name.is(gpu)),
        }
    }

    /// Parses the value of a node's label, with GPUs separated by underscores.
    pub fn from_label(value: &str) -> Result<Self, DynamicMigError> {
        parse(value, '_')
            .ok_or_else(|| DynamicMigError(value.to_owned(), "minor numbers or UUIDs as in `0_3`"))
    }
}

impl GpuName {
    /// Whether it names this GPU.
    pub fn is(&self, gpu: &Gpu) -> bool {
        match self {
            Self::Minor(minor) => gpu.number == *minor,
            Self::Uuid(uuid) => gpu.uuid == *uuid,
            Self::Pci(address) => gpu.pci == *address,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        if let Ok(minor) = text.parse() {
            return Some(Self::Minor(minor));
        }
        if text.strip_prefix("GPU-").is_some_and(|uuid| !uuid.is_empty()) {
            return Some(Self::Uuid(text.to_owned()));
        }
        text.parse().ok().map(Self::Pci)
    }
}

impl fmt::Display for GpuName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Minor(minor) => write!(f, "gpu-{minor}"),
            Self::Uuid(uuid) => f.write_str(uuid),
            Self::Pci(address) => address.fmt(f),
        }
    }
}

impl FromStr for DynamicMig {
    type Err = DynamicMigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text, ',').ok_or_else(|| {
            let gpus = "minor numbers, UUIDs or PCI addresses as in `0,3`";
            DynamicMigError(text.to_owned(), gpus)
        })
    }
}

fn parse(text: &str, separator: char) -> Option<DynamicMig> {
    match text.trim() {
        "all" => Some(DynamicMig::All),
        "none" => Some(DynamicMig::None),
        names => {
            let names = names.split(separator).map(|name| GpuName::parse(name.trim()));
            names.collect::<Option<_>>().map(DynamicMig::Gpus)
        }
    }
}

impl<'de> Deserialize<'de> for DynamicMig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// What a file has.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Minor(u32),
            Text(String),
            List(Vec<Item>),
        }
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Item {
            Minor(u32),
            Text(String),
        }
        let expected = || {
            D::Error::custom(
                "`dynamicMig` is `all`, `none`, or a list of minor numbers, UUIDs or PCI addresses, \
                 such as [0, 3]",
            )
        };
        match Written::deserialize(deserializer).map_err(|_| expected())? {
            Written::Minor(minor) => Ok(Self::Gpus([GpuName::Minor(minor)].into())),
            Written::Text(text) => text.parse().map_err(D::Error::custom),
            Written::List(list) => {
                let names = list.into_iter().map(|item| match item {
                    Item::Minor(minor) => Some(GpuName::Minor(minor)),
                    Item::Text(text) => GpuName::parse(&text),
                });
                names.collect::<Option<_>>().map(Self::Gpus).ok_or_else(expected)
            }
        }
    }
}

#[cfg(test)]
mod tests;
