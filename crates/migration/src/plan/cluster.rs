//! The objects that a plan is made of. Of a large cluster's objects only those are kept that say something.

use std::collections::BTreeSet;
use std::fmt;

use octavo_api::names::{DRIVER, DRIVER_COMPUTE_DOMAIN};
use serde::Serialize;
use serde_json::Value;

use super::claims::has_configs;
use super::components::{Component, component};
use super::configs;
use super::object::{containers, has_ended, has_nvidia_resource, name, pod_spec};
use crate::json::{array, text};
use crate::keys::is_scheduler;
use crate::manifests::WORDS;
use crate::metadata::{self, Owner};

/// What a plan is made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cluster {
    /// Whether the API server serves `resource.k8s.io/v1`.
    pub serves_dra: bool,
    /// What could not be read.
    pub unread: Vec<Unread>,
    pub(super) nodes: Vec<Value>,
    pub(super) pods: Vec<Value>,
    pub(super) workloads: Vec<Value>,
    pub(super) operators: Vec<Value>,
    pub(super) classes: Vec<Value>,
    pub(super) definitions: Vec<Value>,
    pub(super) slices: Vec<Value>,
    pub(super) claims: Vec<Value>,
    /// Claims, their templates and classes with configs for NVIDIA's drivers.
    pub(super) configured: Vec<Value>,
    pub(super) config_maps: Vec<Value>,
}

/// Objects that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unread {
    /// Which, such as `pods`.
    pub what: String,
    /// Why, in the API server's words.
    pub why: String,
}

/// Namespace and name of a `ConfigMap`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigMapName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ConfigMapName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A kind of objects that is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Resource, in the plural.
    pub plural: &'static str,
}

const fn kind(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> Kind {
    Kind { group, version, kind, plural }
}

impl Kind {
    /// Slices: if the server does not serve them, it has no dynamic resource allocation.
    pub const SLICES: Self = kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices");

    /// Every kind that is listed, of all namespaces. A server may lack those of other groups than Kubernetes' own.
    pub const ALL: [Self; 16] = [
        kind("", "v1", "Node", "nodes"),
        kind("", "v1", "Pod", "pods"),
        kind("apps", "v1", "DaemonSet", "daemonsets"),
        kind("apps", "v1", "Deployment", "deployments"),
        kind("apps", "v1", "ReplicaSet", "replicasets"),
        kind("apps", "v1", "StatefulSet", "statefulsets"),
        kind("batch", "v1", "CronJob", "cronjobs"),
        kind("batch", "v1", "Job", "jobs"),
        kind("nvidia.com", "v1", "ClusterPolicy", "clusterpolicies"),
        kind("nvidia.com", "v1alpha1", "NVIDIADriver", "nvidiadrivers"),
        kind("nvidia.com", "v1alpha1", "GPUCluster", "gpuclusters"),
        kind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses"),
        kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims"),
        kind("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates"),
        Self::SLICES,
        kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"),
    ];

    /// `apiVersion` of its objects.
    pub fn api_version(self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

impl Cluster {
    /// Adds an object of a kind, if it says something.
    pub fn add(&mut self, kind: Kind, mut object: Value) {
        if !object.is_object() {
            return;
        }
        trim(&mut object);
        object["apiVersion"] = kind.api_version().into();
        object["kind"] = kind.kind.into();
        if has_configs(&object) {
            let mut object = object.clone();
            object["status"] = Value::Null;
            self.configured.push(object);
        }
        match kind.kind {
            "Node" => self.nodes.push(object),
            "Pod" if is_of_interest(&object) => self.pods.push(object),
            "ClusterPolicy" | "NVIDIADriver" | "GPUCluster" => self.operators.push(object),
            "DeviceClass" if name(&object).ends_with("nvidia.com") => self.classes.push(object),
            "CustomResourceDefinition" if is_known_definition(name(&object)) => {
                // Schemas are large, and nothing of them is read.
                object["spec"] = Value::Null;
                self.definitions.push(object);
            }
            "ResourceSlice" => self.slices.push(object),
            "ResourceClaim" if is_allocated(&object) => self.claims.push(object),
            "Pod"
            | "DeviceClass"
            | "CustomResourceDefinition"
            | "ResourceClaim"
            | "ResourceClaimTemplate" => {}
            _ if component(&object).is_some() || has_words(&object) => self.workloads.push(object),
            _ => {}
        }
    }

    /// Adds what another one has.
    pub fn merge(&mut self, other: Self) {
        self.serves_dra |= other.serves_dra;
        self.unread.extend(other.unread);
        self.nodes.extend(other.nodes);
        self.pods.extend(other.pods);
        self.workloads.extend(other.workloads);
        self.operators.extend(other.operators);
        self.classes.extend(other.classes);
        self.definitions.extend(other.definitions);
        self.slices.extend(other.slices);
        self.claims.extend(other.claims);
        self.configured.extend(other.configured);
        self.config_maps.extend(other.config_maps);
    }

    /// The `ConfigMaps` that NVIDIA's operands name. They are to be read and added next.
    pub fn config_maps_wanted(&self) -> BTreeSet<ConfigMapName> {
        configs::wanted(self).into_iter().map(|wanted| wanted.name).collect()
    }

    /// Adds a `ConfigMap`.
    pub fn add_config_map(&mut self, object: Value) {
        self.config_maps.push(object);
    }

    /// The workloads and operands with the part that each is.
    pub(super) fn components(&self) -> impl Iterator<Item = (Component, &Value)> {
        self.workloads.iter().filter_map(|object| Some((component(object)?, object)))
    }
}

/// Removes what is large and says nothing.
fn trim(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    metadata.remove("managedFields");
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

/// Whether a pod has GPUs or claims, is a part of a stack, or is for HAMi or KAI.
fn is_of_interest(pod: &Value) -> bool {
    let Some(spec) = pod_spec(pod) else { return false };
    !has_ended(pod)
        && (component(pod).is_some()
            || !array(spec, "resourceClaims").is_empty()
            || containers(spec).any(has_nvidia_resource)
            || metadata::has_signs(pod, Owner::Pod)
            || text(spec, "schedulerName").is_some_and(is_scheduler))
}

fn has_words(object: &Value) -> bool {
    let text = object.to_string();
    WORDS.iter().any(|word| text.contains(word))
}

fn is_known_definition(name: &str) -> bool {
    let group = name.split_once('.').map_or(name, |(_, group)| group);
    ["nvidia.com", "resource.nvidia.com", "scheduling.run.ai", "kai.scheduler"].contains(&group)
        || name == NODE_FEATURES
}

/// Definition of node feature discovery's objects, to which labels go.
pub(super) const NODE_FEATURES: &str = "nodefeatures.nfd.k8s-sigs.io";

/// Whether a claim has a device of NVIDIA's drivers.
fn is_allocated(claim: &Value) -> bool {
    results(claim).iter().any(|result| {
        let driver = text(result, "driver").unwrap_or_default();
        [DRIVER, DRIVER_COMPUTE_DOMAIN].contains(&driver)
    })
}

/// The devices of a claim.
pub(super) fn results(claim: &Value) -> &[Value] {
    let devices = claim.pointer("/status/allocation/devices");
    devices.map_or(&[], |devices| array(devices, "results"))
}
