//! Pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_dra::{NodeSelector, NodeSelectorTerm, Quantity, RequestMapping};

pub use octavo_dra::ContainerKind;

use super::Meta;

/// Key in [`Pod::held`] of the pod as a whole: no container has this name.
pub const WHOLE_POD: &str = "";

/// Amounts by resource.
pub type Requests = BTreeMap<String, Quantity>;

/// A pod (`core/v1` `Pod`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Metadata.
    pub meta: Meta,
    /// What it asks for.
    pub spec: Arc<PodSpec>,
    /// The node it is bound to (`spec.nodeName`).
    pub node: Option<Arc<str>>,
    /// Phase.
    pub phase: Phase,
    /// `status.nominatedNodeName`.
    pub nominated_node: Option<Arc<str>>,
    /// Condition `PodScheduled`.
    pub scheduled: Option<ScheduledCondition>,
    /// `status.resourceClaimStatuses`: by name of the pod's claim the name of the `ResourceClaim`;
    /// `None`: the pod needs none.
    pub claims: BTreeMap<String, Option<String>>,
    /// `status.extendedResourceClaimStatus`.
    pub extended_claim: Option<ExtendedClaimStatus>,
    /// What counts in place of what is asked for while a resize in place is not done (KEP-1287): by
    /// container, and under [`WHOLE_POD`] of the pod as a whole, the amounts that differ. As a rule empty.
    ///
    /// What counts of a resource is the most of what is asked for, what the kubelet has granted
    /// (`allocatedResources`) and what the runtime has set (`resources`) in the status; of a resize that
    /// cannot be done only the last two.
    pub held: BTreeMap<String, Requests>,
}

/// What a pod asks for, trimmed. Pods of one template are equal in it but for names of volumes' claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodSpec {
    /// `spec.schedulerName`.
    pub scheduler: String,
    /// `spec.priority`; 0 where it is not set.
    pub priority: i32,
    /// Whether it may preempt others (`preemptionPolicy` is not `Never`).
    pub may_preempt: bool,
    /// Init containers (with sidecars), then containers.
    pub containers: Vec<Container>,
    /// Requests of the pod as a whole (`spec.resources.requests`, KEP-2837).
    pub pod_requests: BTreeMap<String, Quantity>,
    /// `spec.overhead`.
    pub overhead: BTreeMap<String, Quantity>,
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity.
    pub node_affinity: Option<NodeSelector>,
    /// Preferred node affinity: weights and terms.
    pub preferred_nodes: Vec<(i32, NodeSelectorTerm)>,
    /// Required inter-pod affinity.
    pub affinity: Vec<AffinityTerm>,
    /// Required inter-pod anti-affinity.
    pub anti_affinity: Vec<AffinityTerm>,
    /// Whether it has preferred inter-pod affinity or anti-affinity.
    pub has_preferred_affinity: bool,
    /// Topology spread constraints.
    pub spread: Vec<Spread>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Volumes that matter for where a pod can run.
    pub volumes: Vec<PodVolume>,
    /// `spec.resourceClaims`.
    pub claims: Vec<PodClaim>,
    /// Scheduling gates.
    pub gates: Vec<String>,
    /// Whether it is in the node's network namespace: its container ports are the node's then.
    pub is_host_network: bool,
    /// `spec.schedulingGroup.podGroupName`: the native pod group.
    pub group: Option<String>,
    /// `spec.terminationGracePeriodSeconds`.
    pub grace_seconds: i64,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Container {
    /// Name.
    pub name: String,
    /// When it runs.
    pub kind: ContainerKind,
    /// Requests; limits stand in where a request is not set, as the API server writes them.
    pub requests: BTreeMap<String, Quantity>,
    /// Ports of the host that it wants.
    pub ports: Vec<HostPort>,
    /// Claims it uses: name in the pod and the request in it (`None`: all).
    pub claims: Vec<(String, Option<String>)>,
}

/// A port of the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Address; `0.0.0.0` where none is set.
    pub ip: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Port.
    pub port: u16,
}

/// A claim of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodClaim {
    /// Name in the pod.
    pub name: String,
    /// The `ResourceClaim` by name; `None`: one is made from the template.
    pub claim: Option<String>,
    /// The template.
    pub template: Option<String>,
}

/// A volume that matters for where a pod can run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodVolume {
    /// Name in the pod.
    pub name: String,
    /// What it is.
    pub source: VolumeSource,
}

/// What a volume is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VolumeSource {
    /// A `PersistentVolumeClaim` by name.
    Claim(String),
    /// A generic ephemeral volume: its claim is named `<pod>-<volume>`.
    Ephemeral,
    /// A disk of a cloud that one node at a time may have for writing: kind, id, and whether it is
    /// read only.
    Exclusive(String, String, bool),
    /// An inline CSI volume of this driver.
    Csi(String),
}

/// A toleration of node taints.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Toleration {
    /// Key; empty: every key.
    pub key: String,
    /// `Exists`, `Equal`, or the newer `Lt` and `Gt`, as written; empty is `Equal`.
    pub operator: String,
    /// Value.
    pub value: String,
    /// Effect as written; empty: every effect.
    pub effect: String,
}

/// A term of inter-pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AffinityTerm {
    /// Pods that are meant; `None`: none.
    pub selector: Option<LabelSelector>,
    /// Namespaces by name; with neither these nor a selector: the pod's own.
    pub namespaces: Vec<String>,
    /// Namespaces by labels.
    pub namespace_selector: Option<LabelSelector>,
    /// Label of nodes that says what is near.
    pub topology_key: String,
}

/// A label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    /// Labels that must be there with these values.
    pub labels: BTreeMap<String, String>,
    /// Further requirements.
    pub expressions: Vec<LabelRequirement>,
}

/// A requirement of a label selector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelRequirement {
    /// Key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Values.
    pub values: Vec<String>,
}

/// A topology spread constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spread {
    /// Label of nodes.
    pub topology_key: String,
    /// Whether it must hold (`whenUnsatisfiable: DoNotSchedule`).
    pub is_hard: bool,
}

/// Phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Not started.
    #[default]
    Pending,
    /// Runs.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
    /// The node does not say.
    Unknown,
}

/// Condition `PodScheduled`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduledCondition {
    /// Whether its status is `True`.
    pub is_true: bool,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
}

/// The claim that a scheduler made for a pod's extended resources (KEP-5004).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtendedClaimStatus {
    /// Name of the `ResourceClaim`.
    pub claim: String,
    /// Which container uses which request.
    pub mappings: Vec<RequestMapping>,
}

impl Pod {
    /// Whether it has ended: what it had is free.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }
}
