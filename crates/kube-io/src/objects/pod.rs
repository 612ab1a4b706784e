//! Pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_dra::{NodeSelector, NodeSelectorTerm, Quantity, RequestMapping};

pub use octavo_dra::ContainerKind;

use super::{Meta, NodeName, PodUid};

/// Key of the pod as a whole in [`Pod::held`]; no container has this name.
pub const WHOLE_POD: &str = "";

/// Amounts by resource.
pub type Requests = BTreeMap<String, Quantity>;

/// A pod (`core/v1` `Pod`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Metadata.
    pub meta: Meta,
    /// Its specification.
    pub spec: Arc<PodSpec>,
    /// The node that it is bound to (`spec.nodeName`).
    pub node: Option<NodeName>,
    /// Phase.
    pub phase: Phase,
    /// `status.nominatedNodeName`.
    pub nominated_node: Option<NodeName>,
    /// Condition `PodScheduled`.
    pub scheduled: Option<ScheduledCondition>,
    /// `status.resourceClaimStatuses`: name of the `ResourceClaim` by the pod's name for it; `None`
    /// if the pod needs none.
    pub claims: BTreeMap<String, Option<String>>,
    /// `status.extendedResourceClaimStatus`.
    pub extended_claim: Option<ExtendedClaimStatus>,
    /// The amounts that replace requests while an in-place resize is pending (KEP-1287). They are
    /// keyed by container, and by [`WHOLE_POD`] for the pod as a whole. Usually empty.
    ///
    /// The effective amount of a resource is the largest of three: the request, the kubelet's grant
    /// (`allocatedResources`) and the runtime's setting (`resources`). For an infeasible resize
    /// only the last two count.
    pub held: BTreeMap<String, Requests>,
}

/// The trimmed specification of a pod. Pods of one template have equal ones, except for names of
/// volume claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodSpec {
    /// `spec.schedulerName`.
    pub scheduler: String,
    /// `spec.priority`; 0 if unset.
    pub priority: i32,
    /// Whether it may preempt others (`preemptionPolicy` is not `Never`).
    pub may_preempt: bool,
    /// Init containers (with sidecars), then containers.
    pub containers: Vec<Container>,
    /// Requests at pod level (`spec.resources.requests`, KEP-2837).
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
    /// Preferred inter-pod affinity (positive weights) and anti-affinity (negative weights).
    pub preferred_affinity: Vec<(i32, AffinityTerm)>,
    /// Topology spread constraints.
    pub spread: Vec<Spread>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Volumes that restrict the nodes of the pod.
    pub volumes: Vec<PodVolume>,
    /// `spec.resourceClaims`.
    pub claims: Vec<PodClaim>,
    /// Scheduling gates.
    pub gates: Vec<String>,
    /// Whether it uses the host network, so that its container ports are host ports.
    pub is_host_network: bool,
    /// `spec.schedulingGroup.podGroupName`: the native pod group.
    pub group: Option<String>,
    /// `spec.terminationGracePeriodSeconds`.
    pub grace_seconds: i64,
    /// `spec.activeDeadlineSeconds`: how long it may run, in seconds.
    pub active_deadline_seconds: Option<i64>,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Container {
    /// Name.
    pub name: String,
    /// When it runs.
    pub kind: ContainerKind,
    /// Requests. As the API server writes them, limits stand in for unset requests.
    pub requests: BTreeMap<String, Quantity>,
    /// Host ports.
    pub ports: Vec<HostPort>,
    /// Claims that it uses: name in the pod, and the request (`None` for all).
    pub claims: Vec<(String, Option<String>)>,
}

/// A host port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Address; `0.0.0.0` if unset.
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
    /// Name of the `ResourceClaim`; `None` if it is made from the template.
    pub claim: Option<String>,
    /// The template.
    pub template: Option<String>,
}

/// A volume that restricts the nodes of the pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodVolume {
    /// Name in the pod.
    pub name: String,
    /// Its source.
    pub source: VolumeSource,
}

/// The source of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VolumeSource {
    /// A `PersistentVolumeClaim` by name.
    Claim(String),
    /// A generic ephemeral volume, whose claim is named `<pod>-<volume>`.
    Ephemeral,
    /// A cloud disk that only one node at a time may write: kind, ID, and whether it is read-only.
    Exclusive(String, String, bool),
    /// An inline CSI volume of this driver.
    Csi(String),
}

/// A toleration of node taints.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Toleration {
    /// Key; empty for every key.
    pub key: String,
    /// `Exists`, `Equal`, or the newer `Lt` and `Gt`, as written; empty means `Equal`.
    pub operator: String,
    /// Value.
    pub value: String,
    /// Effect as written; empty for every effect.
    pub effect: String,
    /// For how long a `NoExecute` taint is tolerated; `None` for ever.
    pub seconds: Option<i64>,
}

/// A term of inter-pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AffinityTerm {
    /// Selected pods; `None` for no pods.
    pub selector: Option<LabelSelector>,
    /// Namespaces by name. With neither names nor a selector it is the pod's own.
    pub namespaces: Vec<String>,
    /// Namespaces by label.
    pub namespace_selector: Option<LabelSelector>,
    /// Node label whose value defines a topology domain.
    pub topology_key: String,
}

/// A label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    /// Labels and their required values.
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
    /// Node label whose value defines a topology domain.
    pub topology_key: String,
    /// Whether it is hard (`whenUnsatisfiable: DoNotSchedule`).
    pub is_hard: bool,
    /// How many more selected pods a domain may have than the one with the fewest.
    pub max_skew: i32,
    /// With fewer domains than this, the fewest pods count as none; 1 if unset.
    pub min_domains: i32,
    /// Selected pods of the pod's namespace; `None` for no pods.
    pub selector: Option<LabelSelector>,
    /// Further labels whose values selected pods share with the pod (`matchLabelKeys`).
    pub match_label_keys: Vec<String>,
    /// Whether only nodes that match the pod's node affinity count (`nodeAffinityPolicy`).
    pub honors_affinity: bool,
    /// Whether only nodes whose taints the pod tolerates count (`nodeTaintsPolicy`).
    pub honors_taints: bool,
}

/// Phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Not started.
    #[default]
    Pending,
    /// Running.
    Running,
    /// Ended with success.
    Succeeded,
    /// Ended with failure.
    Failed,
    /// The node does not report.
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
    /// The request that each container uses.
    pub mappings: Vec<RequestMapping>,
}

impl Pod {
    /// Its UID.
    pub fn uid(&self) -> PodUid {
        Arc::clone(&self.meta.uid).into()
    }

    /// Whether the pod has ended and its resources are free.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }
}
