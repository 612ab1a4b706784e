//! Which placement policy applies: `PlacementPolicy` objects as the engine's policies.
//!
//! A pod or group may name a policy. Others get the default policy, or else the engine's own
//! default. A changed policy applies from the next decision on. An invalid change is not used: the
//! last valid version stays, until the object is corrected or this process restarts.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_engine::World;
use octavo_engine::objective::CostTerm;
use octavo_engine::objective::policy::{PlacementPolicy, PolicyError, PolicySpec};
use octavo_kube_io::objects::{Delta, Kind, WatchedObject};
use serde_json::Value;

use crate::status::{StatusText, StatusUpdate};

/// API group of policies.
const API_GROUP: &str = "octavo.dev";
/// Their kind.
const KIND: &str = "PlacementPolicy";
/// Field that only the scheduler uses, not the engine.
const BELOW_MINIMUM: &str = "belowMinimumSeconds";

/// All policies of the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policies {
    list: BTreeMap<Arc<str>, PolicyEntry>,
    fallback: Arc<PlacementPolicy>,
}

/// A policy object.
#[derive(Clone, Debug, PartialEq)]
struct PolicyEntry {
    uid: Arc<str>,
    created: i64,
    generation: i64,
    is_default: bool,
    /// For how long a gang may have fewer members than its minimum; `None`: for ever.
    below_minimum_seconds: Option<u64>,
    /// The last valid version.
    policy: Option<Arc<PlacementPolicy>>,
    /// Why the current version is invalid.
    error: Option<Unusable>,
    /// Why the cluster cannot keep its limits now.
    unkept: Option<PolicyError>,
}

/// Why a policy cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// The object's spec is malformed.
    #[error("spec: {problem}; correct it as `kubectl explain placementpolicy.spec` shows")]
    Malformed {
        /// What is wrong.
        problem: String,
    },
    /// The policy is invalid.
    #[error("{0}")]
    Invalid(#[from] PolicyError),
    /// It counts what a cluster has no figures of.
    #[error(
        "{field}: nodes and GPUs of a cluster have no {unit}, so it would have no effect; remove it. \
         The simulator has such figures"
    )]
    NoFigures {
        /// Path of the field.
        field: &'static str,
        /// The unit without figures.
        unit: CostTerm,
    },
    /// Another policy is the default already.
    #[error(
        "spec.isDefault: PlacementPolicy {other:?} is the default already, because it is older; make one \
         of the two not the default. This one is used by those that name it"
    )]
    SecondDefault {
        /// The default.
        other: Arc<str>,
    },
    /// No policy has that name.
    #[error("there is no PlacementPolicy {name:?}; create it, or name one of: {known}")]
    NotFound {
        /// The name.
        name: String,
        /// Existing names.
        known: String,
    },
    /// The policy never had a valid version.
    #[error("PlacementPolicy {name:?} cannot be used: {why}")]
    NeverValid {
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
}

impl Unusable {
    /// Reason of conditions and events, and label of metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Malformed { .. } | Self::Invalid(_) | Self::NoFigures { .. } => "InvalidPolicy",
            Self::SecondDefault { .. } => "SecondDefault",
            Self::NotFound { .. } => "PolicyNotFound",
            Self::NeverValid { .. } => "PolicyNotUsable",
        }
    }

    /// Its text for conditions and events.
    pub fn status_text(&self) -> StatusText {
        StatusText { reason: self.reason(), message: self.to_string() }
    }
}

impl Policies {
    /// The kind of object to watch; it is cluster-scoped.
    pub fn kind() -> Kind {
        Kind::new(octavo_api::names::OCTAVO_API_VERSION, KIND)
    }

    /// Applies a change; objects of other kinds are ignored. Returns the status updates of policies
    /// that changed, or whose state depends on the change.
    pub fn apply(&mut self, delta: &Delta<WatchedObject>) -> Vec<StatusUpdate> {
        let before = self.reports();
        match delta {
            Delta::Upsert(object) if is_policy(&object.api_version, &object.kind) => {
                self.set(object);
            }
            Delta::Delete(object) if is_policy(&object.api_version, &object.kind) => {
                self.list.remove(&object.meta.name.name);
            }
            Delta::Replace(kind, objects) if is_policy(&kind.api_version, &kind.kind) => {
                let is_listed =
                    |name: &Arc<str>| objects.iter().any(|object| object.meta.name.name == *name);
                self.list.retain(|name, _| is_listed(name));
                for object in objects {
                    self.set(object);
                }
            }
            _ => return Vec::new(),
        }
        self.changed_since(&before)
    }

    fn set(&mut self, object: &WatchedObject) {
        let meta = &object.meta;
        let old = self.list.get(&meta.name.name).filter(|old| old.uid == meta.uid);
        let read = read(&meta.name.name, &object.spec);
        let (policy, error) = match read.and_then(with_figures) {
            Ok(policy) => (Some(Arc::new(policy)), None),
            Err(error) => (old.and_then(|old| old.policy.clone()), Some(error)),
        };
        let entry = PolicyEntry {
            uid: Arc::clone(&meta.uid),
            created: meta.created,
            generation: object.generation,
            is_default: object.spec["isDefault"] == Value::Bool(true),
            below_minimum_seconds: object.spec[BELOW_MINIMUM].as_u64(),
            policy,
            error,
            unkept: old.and_then(|old| old.unkept.clone()),
        };
        self.list.insert(Arc::clone(&meta.name.name), entry);
    }

    /// The policy of this name, or the default policy.
    pub fn find(&self, wanted: Option<&str>) -> Result<&Arc<PlacementPolicy>, Unusable> {
        let Some(wanted) = wanted else { return Ok(self.default_policy()) };
        let name = wanted.to_owned();
        let Some(entry) = self.list.get(wanted) else {
            let known: Vec<_> = self.list.keys().map(|name| &**name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Unusable::NotFound { name, known });
        };
        entry.policy.as_ref().ok_or_else(|| {
            let why = entry.error.as_ref().map(ToString::to_string).unwrap_or_default();
            Unusable::NeverValid { name, why }
        })
    }

    /// For how many seconds a gang with this policy, or with the default one, may have fewer members
    /// than its minimum; `None`: for ever.
    pub fn below_minimum_seconds(&self, wanted: Option<&str>) -> Option<u64> {
        let name = wanted.or_else(|| self.default_name().map(|name| &**name))?;
        self.list.get(name)?.below_minimum_seconds
    }

    /// The policy of pods and groups that name none.
    pub fn default_policy(&self) -> &Arc<PlacementPolicy> {
        let entry = self.default_name().and_then(|name| self.list.get(name));
        entry.and_then(|entry| entry.policy.as_ref()).unwrap_or(&self.fallback)
    }

    /// The oldest usable policy that is marked as default; of equals the first by name.
    fn default_name(&self) -> Option<&Arc<str>> {
        let usable = |entry: &PolicyEntry| entry.is_default && entry.policy.is_some();
        let candidates = self.list.iter().filter(|(_, entry)| usable(entry));
        candidates.min_by_key(|(name, entry)| (entry.created, *name)).map(|(name, _)| name)
    }

    /// The state of each policy.
    pub fn reports(&self) -> BTreeMap<Arc<str>, StatusUpdate> {
        let default = self.default_name();
        let report = |(name, entry): (&Arc<str>, &PolicyEntry)| {
            let is_second = entry.is_default && default.is_some_and(|default| default != name);
            let second = default.filter(|_| is_second).map(|other| {
                let other = Arc::clone(other);
                Unusable::SecondDefault { other }
            });
            let error = entry.error.clone().or(second).map(|error| {
                let mut status_text = error.status_text();
                if entry.error.is_some() && entry.policy.is_some() {
                    status_text.message.push_str(". Until then the previous version is used");
                }
                status_text
            });
            let unkept = entry
                .unkept
                .as_ref()
                .map(|error| StatusText { reason: "LimitsNotKept", message: error.to_string() });
            let error = error.or(unkept);
            let (name, generation) = (Arc::clone(name), entry.generation);
            (Arc::clone(&name), StatusUpdate::Policy { name, generation, error })
        };
        self.list.iter().map(report).collect()
    }

    /// Checks the policies against the cluster. A policy whose limits cannot be kept, or that names
    /// an unknown level, is still used as far as possible, because nodes come and go. Returns the
    /// status updates of policies for which that has changed.
    pub fn check(&mut self, world: &World) -> Vec<StatusUpdate> {
        let before = self.reports();
        for entry in self.list.values_mut() {
            entry.unkept = entry.policy.as_ref().and_then(|policy| policy.check(world).err());
        }
        self.changed_since(&before)
    }

    fn changed_since(&self, before: &BTreeMap<Arc<str>, StatusUpdate>) -> Vec<StatusUpdate> {
        let reports = self.reports().into_iter();
        let changed = |(name, report): (Arc<str>, StatusUpdate)| {
            (before.get(&name) != Some(&report)).then_some(report)
        };
        reports.filter_map(changed).collect()
    }
}

/// The policy, unless it counts power or money. A cluster has no such figures: the policy
/// would be accepted and have no effect.
fn with_figures(policy: PlacementPolicy) -> Result<PlacementPolicy, Unusable> {
    let limits = policy.constraints();
    let by_limit = [
        ("spec.constraints.maxWatts", limits.max_watts.is_some(), CostTerm::Watts),
        (
            "spec.constraints.maxCentsPerHour",
            limits.max_cents_per_hour.is_some(),
            CostTerm::CentsPerHour,
        ),
    ];
    let by_term = [CostTerm::Watts, CostTerm::CentsPerHour]
        .map(|unit| ("spec.order", policy.has(unit), unit));
    match by_limit.into_iter().chain(by_term).find(|(_, is_used, _)| *is_used) {
        Some((field, _, unit)) => Err(Unusable::NoFigures { field, unit }),
        None => Ok(policy),
    }
}

fn is_policy(api_version: &str, kind: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    kind == KIND && group == API_GROUP
}

/// The engine's document: the object's spec with the object's name.
fn read(name: &str, spec: &Value) -> Result<PlacementPolicy, Unusable> {
    let mut document = match spec {
        Value::Object(fields) => fields.clone(),
        Value::Null => serde_json::Map::new(),
        other => {
            let problem = format!("it is {other}, not a map");
            return Err(Unusable::Malformed { problem });
        }
    };
    document.remove("isDefault");
    if let Some(seconds) = document.remove(BELOW_MINIMUM).filter(|seconds| !seconds.is_null())
        && seconds.as_u64().is_none_or(|seconds| seconds == 0)
    {
        let problem = format!("{BELOW_MINIMUM} is {seconds}, not a positive number of seconds");
        return Err(Unusable::Malformed { problem });
    }
    // A null field counts as missing.
    document.retain(|_, value| !value.is_null());
    document.insert("name".to_owned(), name.into());
    let document = Value::Object(document);
    let spec: PolicySpec = serde_json::from_value(document)
        .map_err(|error| Unusable::Malformed { problem: error.to_string() })?;
    Ok(PlacementPolicy::try_from(spec)?)
}
