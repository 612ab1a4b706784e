//! Octavo's labels and annotations on workloads, pod templates and pods. An annotation takes
//! precedence over the label of the same name.

use std::sync::Arc;

use octavo_api::names;
use octavo_kube_io::objects::Meta;
use serde_json::Value;

use super::error::GroupError;

/// Placement hints from an object's labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementHints {
    /// [`names::TOPOLOGY_REQUIRED`].
    pub required: Option<Arc<str>>,
    /// [`names::TOPOLOGY_PREFERRED`].
    pub preferred: Option<Arc<str>>,
    /// [`names::PLACEMENT_POLICY`].
    pub policy: Option<Arc<str>>,
    /// [`names::MOVABLE`].
    pub is_movable: Option<bool>,
    /// [`names::SECONDS_AT_RISK`].
    pub seconds_at_risk: Option<u32>,
}

/// Whether a Job is a gang ([`names::GANG`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GangHint {
    /// Each pod is placed on its own.
    Off,
    /// As many pods as the Job runs at a time.
    Whole,
    /// This number of pods.
    Count(u32),
}

impl PlacementHints {
    /// The hints of an object or a pod.
    pub fn of(meta: &Meta) -> Result<Self, GroupError> {
        Self::read(|key| annotation_or_label(meta, key))
    }

    /// The hints of a pod template, or of any value with `metadata`.
    pub(super) fn of_template(template: &Value) -> Result<Self, GroupError> {
        let at = |part: &str, key: &str| template["metadata"][part][key].as_str();
        Self::read(|key| at("annotations", key).or_else(|| at("labels", key)))
    }

    fn read<'a>(find: impl Fn(&str) -> Option<&'a str>) -> Result<Self, GroupError> {
        let name = |key: &'static str| match find(key) {
            Some("") => Err(GroupError::invalid_hint(key, "", "a name")),
            found => Ok(found.map(Arc::from)),
        };
        let is_movable = match find(names::MOVABLE) {
            None => None,
            Some("true") => Some(true),
            Some("false") => Some(false),
            Some(found) => {
                let wanted = "\"true\" or \"false\"";
                return Err(GroupError::invalid_hint(names::MOVABLE, found, wanted));
            }
        };
        let seconds = |found: &str| {
            let wanted = "whole seconds, such as \"600\"";
            found
                .parse()
                .map_err(|_| GroupError::invalid_hint(names::SECONDS_AT_RISK, found, wanted))
        };
        Ok(Self {
            required: name(names::TOPOLOGY_REQUIRED)?,
            preferred: name(names::TOPOLOGY_PREFERRED)?,
            policy: name(names::PLACEMENT_POLICY)?,
            is_movable,
            seconds_at_risk: find(names::SECONDS_AT_RISK).map(seconds).transpose()?,
        })
    }

    /// Fills in hints that are not set yet.
    pub(super) fn fill(&mut self, others: &Self) {
        self.required = self.required.take().or_else(|| others.required.clone());
        self.preferred = self.preferred.take().or_else(|| others.preferred.clone());
        self.fill_for_group(others);
    }

    /// The same without topology, which pod templates set for their subgroup alone.
    pub(super) fn fill_for_group(&mut self, others: &Self) {
        self.policy = self.policy.take().or_else(|| others.policy.clone());
        self.is_movable = self.is_movable.or(others.is_movable);
        self.seconds_at_risk = self.seconds_at_risk.or(others.seconds_at_risk);
    }
}

impl GangHint {
    pub(super) fn of(meta: &Meta) -> Result<Option<Self>, GroupError> {
        match annotation_or_label(meta, names::GANG) {
            None => Ok(None),
            Some("true") => Ok(Some(Self::Whole)),
            Some("false") => Ok(Some(Self::Off)),
            Some(found) => match found.parse() {
                Ok(count @ 1..) => Ok(Some(Self::Count(count))),
                _ => Err(GroupError::invalid_hint(
                    names::GANG,
                    found,
                    "\"true\", \"false\" or the number of pods that start together",
                )),
            },
        }
    }
}

/// The annotation of this key, or else the label.
pub(super) fn annotation_or_label<'a>(meta: &'a Meta, key: &str) -> Option<&'a str> {
    meta.annotations.get(key).or_else(|| meta.labels.get(key)).map(String::as_str)
}
