//! Which GPUs a pod accepts: HAMi's lists of types and UUIDs, as conditions on devices.
//!
//! HAMi's type of a card is NVML's product name, with `NVIDIA-` before it if it does not begin with `NVIDIA`. An entry of a list
//! matches if the type contains it, whatever the case (`CheckType`). UUIDs are compared as they are (`CheckUUID`).

use std::fmt::Write as _;

use octavo_api::names::DRIVER;

use crate::GpuModel;

/// Which GPUs a pod accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Parts of product names of which one must match, in lower case; empty for any.
    pub(crate) types: Vec<String>,
    /// Parts of product names of which none may match, in lower case.
    pub(crate) not_types: Vec<String>,
    /// The accepted UUIDs; empty for any.
    pub(crate) uuids: Vec<String>,
    /// UUIDs that are not accepted.
    pub(crate) not_uuids: Vec<String>,
    /// Whether the GPUs of a container are on one NUMA node.
    pub(crate) is_one_numa_node: bool,
}

/// An entry of a list of types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TypePart {
    /// A part of a product name, in lower case.
    Name(String),
    /// It is in every type, since each has `NVIDIA`.
    Every,
}

impl TypePart {
    /// Reads an entry. Older versions of HAMi put `NVIDIA-` before every name, so it is left out.
    pub(crate) fn new(entry: &str) -> Self {
        let lower = entry.to_ascii_lowercase();
        let name = lower.strip_prefix("nvidia-").filter(|rest| !rest.is_empty());
        let name = name.unwrap_or(&lower);
        if "nvidia".contains(name) || name == "nvidia-" {
            Self::Every
        } else {
            Self::Name(name.to_owned())
        }
    }
}

impl Selection {
    /// Whether it accepts every GPU.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a model's name is accepted.
    pub(crate) fn accepts(&self, model: &GpuModel) -> bool {
        let name = model.product_name.to_ascii_lowercase();
        let has_any = |parts: &[String]| parts.iter().any(|part| name.contains(part));
        (self.types.is_empty() || has_any(&self.types)) && !has_any(&self.not_types)
    }

    /// CEL expressions of the conditions on the product name.
    pub(crate) fn type_expressions(&self) -> Vec<String> {
        let contains = |part: &String| {
            format!("{}.lowerAscii().contains({})", attribute("productName"), literal(part))
        };
        let any = (!self.types.is_empty())
            .then(|| self.types.iter().map(contains).collect::<Vec<_>>().join(" || "));
        let none = |part: &String| format!("!{}", contains(part));
        let none = (!self.not_types.is_empty())
            .then(|| self.not_types.iter().map(none).collect::<Vec<_>>().join(" && "));
        any.into_iter().chain(none).collect()
    }

    /// CEL expressions of the conditions on the UUID.
    pub(crate) fn uuid_expressions(&self) -> Vec<String> {
        let is_in = |uuids: &[String]| {
            let list = uuids.iter().map(|uuid| literal(uuid)).collect::<Vec<_>>().join(", ");
            format!("{} in [{list}]", attribute("uuid"))
        };
        let some = (!self.uuids.is_empty()).then(|| is_in(&self.uuids));
        let none = (!self.not_uuids.is_empty()).then(|| format!("!({})", is_in(&self.not_uuids)));
        some.into_iter().chain(none).collect()
    }
}

/// A CEL expression that accepts one product.
pub(crate) fn is_product(name: &str) -> String {
    format!("{} == {}", attribute("productName"), literal(name))
}

/// A CEL expression that accepts GPUs of at least so much memory.
pub(crate) fn has_memory(mib: u64) -> String {
    format!("device.capacity['{DRIVER}'].memory.compareTo(quantity('{mib}Mi')) >= 0")
}

fn attribute(name: &str) -> String {
    format!("device.attributes['{DRIVER}'].{name}")
}

/// A CEL string.
fn literal(text: &str) -> String {
    let mut literal = String::from("'");
    for letter in text.chars() {
        match letter {
            '\'' => literal.push_str("\\'"),
            '\\' => literal.push_str("\\\\"),
            letter if letter.is_control() => {
                let _ = write!(literal, "\\U{:08x}", u32::from(letter));
            }
            letter => literal.push(letter),
        }
    }
    literal.push('\'');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_parts_of_names() {
        let name = |text: &str| TypePart::Name(text.to_owned());
        for (entry, expected) in [
            ("A100", name("a100")),
            ("a100", name("a100")),
            ("NVIDIA-NVIDIA A100", name("nvidia a100")),
            ("NVIDIA-Tesla T4", name("tesla t4")),
            ("Tesla", name("tesla")),
            ("NVIDIA", TypePart::Every),
            ("NVIDIA-", TypePart::Every),
            ("nvidia-nvidia", TypePart::Every),
            ("A", TypePart::Every),
        ] {
            assert_eq!(TypePart::new(entry), expected, "{entry}");
        }
    }

    #[test]
    fn texts_are_quoted() {
        assert_eq!(literal(r"it's a \ line"), r"'it\'s a \\ line'");
        assert_eq!(literal("a\nb"), "'a\\U0000000ab'");
    }
}
