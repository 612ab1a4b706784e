//! The setting `dynamicMig`: GPUs partitioned by MIG on demand.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// The GPUs of a node that MIG partitions as claims request it.
///
/// Written `all`, `none`, or as minor numbers. Numbers are separated by commas on the command line (`0,3`) and by
/// underscores in a label (`0_3`), and form a list in a file (`[0, 3]`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DynamicMig {
    /// None: existing instances are offered as they are.
    #[default]
    None,
    /// All GPUs with MIG support.
    All,
    /// Those with these minor numbers.
    Minors(BTreeSet<u32>),
}

/// Parse error of [`DynamicMig`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} does not say which GPUs to cut: give `all`, `none`, or minor numbers as in {1}")]
pub struct DynamicMigError(String, &'static str);

impl DynamicMig {
    /// Whether the GPU with this minor number is included.
    pub fn has(&self, minor: u32) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Minors(minors) => minors.contains(&minor),
        }
    }

    /// Parses the value of a node's label, with numbers separated by underscores.
    pub fn from_label(value: &str) -> Result<Self, DynamicMigError> {
        parse(value, '_').ok_or_else(|| DynamicMigError(value.to_owned(), "`0_3`"))
    }
}

impl FromStr for DynamicMig {
    type Err = DynamicMigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text, ',').ok_or_else(|| DynamicMigError(text.to_owned(), "`0,3`"))
    }
}

fn parse(text: &str, separator: char) -> Option<DynamicMig> {
    match text.trim() {
        "all" => Some(DynamicMig::All),
        "none" => Some(DynamicMig::None),
        numbers => {
            let numbers = numbers.split(separator).map(|number| number.trim().parse().ok());
            numbers.collect::<Option<_>>().map(DynamicMig::Minors)
        }
    }
}

impl<'de> Deserialize<'de> for DynamicMig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = DynamicMig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`all`, `none`, or a list of minor numbers such as [0, 3]")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<DynamicMig, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, minor: u64) -> Result<DynamicMig, E> {
        let minor = u32::try_from(minor).map_err(E::custom)?;
        Ok(DynamicMig::Minors([minor].into()))
    }

    fn visit_i64<E: Error>(self, minor: i64) -> Result<DynamicMig, E> {
        let minor = u32::try_from(minor).map_err(E::custom)?;
        Ok(DynamicMig::Minors([minor].into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<DynamicMig, A::Error> {
        let mut minors = BTreeSet::new();
        while let Some(minor) = list.next_element()? {
            minors.insert(minor);
        }
        Ok(DynamicMig::Minors(minors))
    }
}

#[cfg(test)]
mod tests;
