//! The setting `featureLabels`: where the labels of GPU feature discovery are written.

use std::str::FromStr;

use serde::Deserialize;

/// Where the labels of GPU feature discovery are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureLabels {
    /// Nowhere.
    #[default]
    None,
    /// To the Node object.
    Node,
    /// As the device plugin's config says: to a `NodeFeature` object, or to a file for node feature discovery.
    Config,
}

/// A text names no place of labels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no place of labels: give none, node or config")]
pub struct FeatureLabelsError(String);

impl FromStr for FeatureLabels {
    type Err = FeatureLabelsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "node" => Ok(Self::Node),
            "config" => Ok(Self::Config),
            other => Err(FeatureLabelsError(other.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_the_same_name_in_files_and_flags() {
        for (text, place) in [
            ("none", FeatureLabels::None),
            ("node", FeatureLabels::Node),
            ("config", FeatureLabels::Config),
        ] {
            assert_eq!(text.parse(), Ok(place));
            assert_eq!(serde_json::from_value(text.into()).ok(), Some(place));
        }
        let error = "Node".parse::<FeatureLabels>().unwrap_err().to_string();
        assert!(error.contains("none, node or config"), "{error}");
    }
}
