//! `ComputeDomain` and `ComputeDomainClique` of NVIDIA's DRA driver: GPUs of several nodes that map each other's memory over NVLink.
//!
//! Group, fields, defaults and rules are those of `resource.nvidia.com/v1beta1` in kubernetes-sigs/dra-driver-nvidia-gpu, so that
//! its manifests and clients work. Conditions, channel numbers and columns are Octavo's additions.

#![expect(unreachable_pub, reason = "KubeSchema writes each type a second time, in a function")]

mod ready_when;

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::TypeMeta;
use kube::{CustomResource, KubeSchema, Resource};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::imex::ImexServices;
use crate::names::{
    IMEX_DAEMON_MANAGER_PREFIX, NVIDIA_API_VERSION, NVIDIA_GROUP, NVIDIA_VERSION,
    REASON_HOST_MANAGED,
};

pub use ready_when::ReadyWhen;

/// A set of nodes on which the pods of one workload share GPU memory over NVLink, through IMEX. The spec cannot change.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "resource.nvidia.com",
    version = "v1beta1",
    kind = "ComputeDomain",
    doc = "A set of nodes on which the pods of one workload share GPU memory over NVLink.",
    plural = "computedomains",
    singular = "computedomain",
    namespaced,
    status = "ComputeDomainStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name": "Status", "type": "string", "jsonPath": ".status.status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name": "Template", "type": "string", "priority": 1, "jsonPath": ".spec.channel.resourceClaimTemplate.name"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[x_kube(
    validation = Rule::new("self == oldSelf").message("A computeDomain.spec is immutable")
)]
pub struct ComputeDomainSpec {
    /// Number of nodes with which the domain counts as ready. Deprecated: 0 means those that its pods have. It holds no pod back.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub num_nodes: i64,
    /// The channel by which pods enter the domain.
    pub channel: ComputeDomainChannel,
}

/// The channel by which pods enter a domain.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComputeDomainChannel {
    /// The template that is made for the domain, in its namespace. Pods name it.
    pub resource_claim_template: ComputeDomainTemplate,
    /// The IMEX channels that a claim gets: one, or all of its node.
    #[serde(default)]
    #[schemars(schema_with = "allocation_mode")]
    pub allocation_mode: ComputeDomainAllocationMode,
}

/// The template of a domain's claims.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComputeDomainTemplate {
    /// Name of the `ResourceClaimTemplate`. It must not exist.
    pub name: String,
}

/// The IMEX channels of a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ComputeDomainAllocationMode {
    /// Channel 0.
    #[default]
    Single,
    /// All channels of the node's IMEX domain.
    All,
}

/// Status of a domain.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComputeDomainStatus {
    /// Whether all its nodes are ready. Programs rather look at the condition `Ready`.
    #[schemars(schema_with = "readiness")]
    pub status: Readiness,
    /// Its nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub nodes: Vec<ComputeDomainNode>,
    /// Its IMEX channels, one in each NVLink clique of its nodes, where domains share the IMEX domain of a clique. An addition to
    /// the fields of NVIDIA's driver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["cliqueID".into()]))]
    pub channels: Vec<ComputeDomainChannelNumber>,
    /// `Ready`: whether pods of the domain can share memory, and the reason if not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// The IMEX channel of a domain in an NVLink clique. No two domains with nodes in a clique have the same there.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComputeDomainChannelNumber {
    /// The NVLink clique: `<cluster UUID>.<clique id>`.
    #[serde(rename = "cliqueID")]
    pub clique_id: String,
    /// Number of the channel.
    #[schemars(range(min = 0, max = 2047))]
    pub channel: u32,
}

/// A node of a domain.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComputeDomainNode {
    /// Name of the node.
    pub name: String,
    /// Address at which its IMEX daemon listens.
    pub ip_address: String,
    /// Its NVLink clique: `<cluster UUID>.<clique id>`; empty without a fabric.
    #[serde(rename = "cliqueID")]
    pub clique_id: String,
    /// Its place in the clique's list of IMEX nodes. No two nodes of a clique have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<i64>,
    /// Whether its IMEX daemon is ready.
    #[serde(default)]
    #[schemars(schema_with = "readiness")]
    pub status: Readiness,
}

/// Whether something is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Readiness {
    /// It is.
    Ready,
    /// It is not.
    #[default]
    NotReady,
}

impl ComputeDomainStatus {
    /// The domain's channel in a clique.
    pub fn channel(&self, clique: &str) -> Option<u32> {
        let found = self.channels.iter().find(|channel| channel.clique_id == clique);
        found.map(|channel| channel.channel)
    }

    /// The services under which pods of the domain may have started. `None`: nothing of them is in the status.
    pub fn services(&self) -> Option<ImexServices> {
        if self.conditions.iter().any(|condition| condition.reason == REASON_HOST_MANAGED) {
            return Some(ImexServices::OfHost);
        }
        if !self.channels.is_empty() {
            return Some(ImexServices::PerClique);
        }
        // Without an index no service of a domain runs. Nodes without a fabric have none, and need none.
        self.nodes.iter().any(|node| node.index.is_some()).then_some(ImexServices::PerDomain)
    }
}

/// The IMEX daemons of a domain in one NVLink clique. It lies in the namespace of the driver and is named
/// `<UID of the domain>.<clique id>`. It has no spec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComputeDomainClique {
    /// Version and kind.
    #[serde(flatten)]
    pub types: TypeMeta,
    /// Name, labels and owners.
    pub metadata: ObjectMeta,
    /// The daemons, one a node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub daemons: Vec<ComputeDomainDaemon>,
}

/// An IMEX daemon.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComputeDomainDaemon {
    /// Name of its node.
    pub node_name: String,
    /// Address at which it listens.
    pub ip_address: String,
    /// The clique of its node.
    #[serde(rename = "cliqueID")]
    pub clique_id: String,
    /// Its place in the clique's list of IMEX nodes. No two daemons of a clique have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<i64>,
    /// Whether it is ready to share memory.
    #[serde(default)]
    #[schemars(schema_with = "readiness")]
    pub status: Readiness,
}

impl ComputeDomainClique {
    /// The kind.
    pub const KIND: &str = "ComputeDomainClique";
    /// The plural in paths.
    pub const PLURAL: &str = "computedomaincliques";

    /// A clique without daemons, for a domain's UID and a clique id.
    pub fn new(domain_uid: &str, clique_id: &str) -> Self {
        let name = Some(format!("{domain_uid}.{clique_id}"));
        Self {
            types: TypeMeta {
                api_version: NVIDIA_API_VERSION.to_owned(),
                kind: Self::KIND.to_owned(),
            },
            metadata: ObjectMeta { name, ..ObjectMeta::default() },
            daemons: Vec::new(),
        }
    }
}

impl Resource for ComputeDomainClique {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Self::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        NVIDIA_GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        NVIDIA_VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        Self::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The field manager of a node's daemon: the prefix, and the FNV-1a hash of the node's name in 16 hexadecimal digits.
///
/// Names of field managers have at most 128 characters, those of nodes 253. So it has a hash instead of the name.
pub fn daemon_manager(node: &str) -> String {
    let hash = node.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{IMEX_DAEMON_MANAGER_PREFIX}{hash:016x}")
}

fn readiness(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["Ready", "NotReady"], "default": "NotReady"})
}

fn allocation_mode(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["All", "Single"], "default": "Single"})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published test vectors of FNV-1a, 64 bits.
    #[test]
    fn field_managers_of_daemons_have_the_hash_of_the_node() {
        assert_eq!(daemon_manager(""), "octavo-imex-daemon-cbf29ce484222325");
        assert_eq!(daemon_manager("a"), "octavo-imex-daemon-af63dc4c8601ec8c");
        assert_eq!(daemon_manager("foobar"), "octavo-imex-daemon-85944171f73967e8");
    }
}
