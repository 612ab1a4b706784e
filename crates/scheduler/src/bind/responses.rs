//! The parts of API server responses that the binder reads.

use octavo_dra::Allocation;
use serde::Deserialize;

use super::PodRef;

/// Finalizer of claims that are allocated (`resource/v1` `Finalizer`).
pub(super) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Annotation of claims for extended resources (`resource/v1` `ExtendedResourceClaimAnnotation`).
pub(super) const EXTENDED_ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";

/// A `ResourceClaim`, as far as the binder reads it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ClaimView {
    pub(super) metadata: MetaView,
    #[serde(default)]
    pub(super) status: ClaimStatusView,
    #[serde(default)]
    pub(super) spec: serde_json::Value,
}

/// Metadata, as far as the binder reads it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MetaView {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) deletion_timestamp: Option<String>,
    pub(super) finalizers: Vec<String>,
    pub(super) owner_references: Vec<OwnerView>,
    pub(super) annotations: std::collections::BTreeMap<String, String>,
}

/// An owner.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OwnerView {
    pub(super) uid: String,
}

/// Status of a claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClaimStatusView {
    pub(super) allocation: Option<AllocationView>,
    pub(super) reserved_for: Vec<ConsumerView>,
}

/// An allocation, reduced to its devices.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AllocationView {
    devices: DevicesView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct DevicesView {
    results: Vec<ResultView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ResultView {
    request: String,
    driver: String,
    pool: String,
    device: String,
    #[serde(rename = "shareID")]
    share_id: Option<String>,
}

/// A consumer of a claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ConsumerView {
    pub(super) uid: String,
}

/// A pod, as far as the binder reads it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodView {
    pub(super) metadata: MetaView,
    pub(super) spec: PodSpecView,
    pub(super) status: PodStatusView,
}

/// Spec of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpecView {
    pub(super) node_name: Option<String>,
}

/// Status of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatusView {
    pub(super) extended_resource_claim_status: Option<ExtendedView>,
}

/// The claim of a pod's extended resources.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ExtendedView {
    pub(super) resource_claim_name: String,
}

impl MetaView {
    pub(super) fn is_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub(super) fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == FINALIZER)
    }
}

impl ClaimView {
    /// The claim as a watch has it.
    pub(super) fn from_watch(claim: &octavo_kube_io::objects::Claim) -> Self {
        let consumer = |uid: &str| ConsumerView { uid: uid.to_owned() };
        Self {
            metadata: MetaView {
                name: claim.meta.name.name.as_ref().to_owned(),
                uid: claim.meta.uid.as_ref().to_owned(),
                resource_version: claim.meta.version.as_ref().to_owned(),
                finalizers: claim.meta.finalizers.clone(),
                ..MetaView::default()
            },
            status: ClaimStatusView {
                allocation: claim.claim.allocation.as_ref().map(AllocationView::of),
                reserved_for: claim
                    .reserved_for
                    .iter()
                    .map(|reserved| consumer(&reserved.uid))
                    .collect(),
            },
            spec: serde_json::Value::Null,
        }
    }

    pub(super) fn is_reserved_for(&self, pod: &PodRef) -> bool {
        self.status.reserved_for.iter().any(|consumer| *consumer.uid == *pod.uid)
    }

    /// Whether a consumer other than the pod is reserved.
    pub(super) fn has_other_consumers(&self, pod: &PodRef) -> bool {
        self.status.reserved_for.iter().any(|consumer| *consumer.uid != *pod.uid)
    }

    /// Whether it has exactly these devices.
    pub(super) fn has_devices(&self, allocation: &Allocation) -> bool {
        self.status.allocation.as_ref().is_some_and(|view| view.matches(allocation))
    }
}

impl AllocationView {
    fn of(allocation: &Allocation) -> Self {
        let result = |result: &octavo_dra::AllocationResult| ResultView {
            request: result.request.clone(),
            driver: result.driver.clone(),
            pool: result.pool.clone(),
            device: result.device.clone(),
            share_id: result.share_id.clone(),
        };
        Self { devices: DevicesView { results: allocation.results.iter().map(result).collect() } }
    }

    fn matches(&self, allocation: &Allocation) -> bool {
        let same = |(view, result): (&ResultView, &octavo_dra::AllocationResult)| {
            view.request == result.request
                && view.driver == result.driver
                && view.pool == result.pool
                && view.device == result.device
                && view.share_id == result.share_id
        };
        self.devices.results.len() == allocation.results.len()
            && self.devices.results.iter().zip(&allocation.results).all(same)
    }
}
