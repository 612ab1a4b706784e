//! Opaque configs for NVIDIA's DRA driver, in claims, claim templates and device classes: which there are.

mod served;

use octavo_api::names::{
    ANNOTATION_COMPUTE_DOMAIN, DRIVER, DRIVER_COMPUTE_DOMAIN, OCTAVO_API_VERSION,
};
use serde::Serialize;
use serde_json::Value;

use super::cluster::Cluster;
use super::components::is_octavos;
use super::fields::FieldPlan;
use super::object::{annotation, controller, full_name, namespace};
use crate::json::{array, text};
use served::outcome;

/// An object with configs for NVIDIA's DRA driver, and what becomes of each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimPlan {
    /// The object: `ResourceClaimTemplate team-a/train`.
    pub object: String,
    /// Its configs, each with its path and kind.
    pub configs: Vec<FieldPlan>,
    /// Whether Octavo runs MPS daemons for it.
    #[serde(skip)]
    pub(super) has_mps: bool,
}

/// An object with requests, or a class that serves requests.
struct Holder<'a> {
    object: &'a Value,
    kind: Kind,
    /// The object with the field `config`, and in claims `requests`.
    devices: &'a Value,
}

/// A kind of objects with configs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Claim,
    Template,
    Class,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Claim, Self::Template, Self::Class];

    fn name(self) -> &'static str {
        match self {
            Self::Claim => "ResourceClaim",
            Self::Template => "ResourceClaimTemplate",
            Self::Class => "DeviceClass",
        }
    }

    /// Where its configs and requests are.
    fn path(self) -> &'static str {
        match self {
            Self::Claim => "spec.devices",
            Self::Template => "spec.spec.devices",
            Self::Class => "spec",
        }
    }
}

impl<'a> Holder<'a> {
    fn of(object: &'a Value) -> Option<Self> {
        let kind = Kind::ALL.into_iter().find(|kind| text(object, "kind") == Some(kind.name()))?;
        let devices = kind.path().split('.').try_fold(object, |value, key| value.get(key))?;
        Some(Self { object, kind, devices })
    }

    /// Its configs for NVIDIA's drivers with their places. Those of Octavo's own kinds are none.
    fn configs(&self) -> impl Iterator<Item = (usize, &'a Value)> {
        let is_of_driver = |opaque: &&Value| {
            let driver = text(opaque, "driver").unwrap_or_default();
            let version =
                opaque.get("parameters").and_then(|parameters| text(parameters, "apiVersion"));
            [DRIVER, DRIVER_COMPUTE_DOMAIN].contains(&driver) && version != Some(OCTAVO_API_VERSION)
        };
        let entries = array(self.devices, "config").iter().enumerate();
        entries.filter(move |(_, entry)| entry.get("opaque").as_ref().is_some_and(is_of_driver))
    }

    /// Whether it is a copy of a template, made for a pod.
    fn is_copy(&self, templates: &[Self]) -> bool {
        let is_of_pod = controller(self.object).is_some_and(|(kind, _)| kind == "Pod");
        is_of_pod
            && self.kind == Kind::Claim
            && templates.iter().any(|template| {
                namespace(template.object) == namespace(self.object)
                    && template.devices == self.devices
            })
    }
}

/// Whether an object has a config for NVIDIA's drivers.
pub(super) fn has_configs(object: &Value) -> bool {
    Holder::of(object).is_some_and(|holder| holder.configs().next().is_some())
}

/// Annotations of what Octavo's controller made or served already.
const MARKS: [&str; 2] = ["octavo.dev/spec-hash", ANNOTATION_COMPUTE_DOMAIN];

/// What becomes of the configs of each object. A claim that was made from a template for a pod is as its template.
pub(super) fn claims(cluster: &Cluster) -> Vec<ClaimPlan> {
    let is_foreign = |object: &&Value| {
        !is_octavos(object) && MARKS.iter().all(|mark| annotation(object, mark).is_none())
    };
    let holders = || cluster.configured.iter().filter(is_foreign).filter_map(Holder::of);
    let templates: Vec<Holder<'_>> =
        holders().filter(|holder| holder.kind == Kind::Template).collect();
    let mut plans: Vec<ClaimPlan> = holders()
        .filter(|holder| !holder.is_copy(&templates))
        .map(|holder| {
            let (mut configs, mut has_mps) = (Vec::new(), false);
            for (index, entry) in holder.configs() {
                let outcome = outcome(&holder, entry);
                has_mps |= outcome.has_mps;
                let kind = outcome.kind.map(|kind| format!(" ({kind})")).unwrap_or_default();
                let field = format!("{}.config[{index}]{kind}", holder.kind.path());
                let (served, reason) = (outcome.served, outcome.reason);
                configs.push(FieldPlan { field, served, reason });
            }
            let object = format!("{} {}", holder.kind.name(), full_name(holder.object));
            ClaimPlan { object, configs, has_mps }
        })
        .collect();
    plans.sort_by(|one, other| one.object.cmp(&other.object));
    plans
}
