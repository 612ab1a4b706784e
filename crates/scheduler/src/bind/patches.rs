//! The request bodies, and the rules by which Kubernetes 1.36.3 accepts them.
//!
//! Every write is a patch, never an update. An update carries the whole object, of which a watch
//! keeps only a part, and conflicts with every other change. For one claim with one device the
//! finalizer patch has 105 bytes instead of about 900, the allocation about 450 instead of about
//! 1,300.
//!
//! - **Claim, finalizer**: `finalizers` is a merged set (`apimachinery/pkg/apis/meta/v1/types.go`).
//!   A claim that is being deleted accepts no new one (422,
//!   `apimachinery/pkg/api/validation/objectmeta.go`). `metadata.uid` in a patch must match the
//!   object (422, same file), and `metadata.resourceVersion` too (409).
//! - **Claim, allocation and reservation**: `pkg/apis/resource/validation/validation.go`,
//!   `validateResourceClaimStatusUpdate`. A reservation needs an allocation. An allocation is
//!   immutable while it is set. A claim that is being deleted accepts no new reservation.
//!   `reservedFor` is merged by `uid` (`api/resource/v1/types.go`). A status write does not change
//!   metadata (`ResetObjectMetaForStatus`), so finalizer and allocation are two writes.
//! - **RBAC** (`pkg/registry/resource/utils.go` `AuthorizedForBinding`, gate
//!   `DRAResourceClaimGranularStatusAuthorization`): a change of `status.allocation` or
//!   `status.reservedFor` needs `patch` on `resourceclaims/status`. It also needs the verb of the
//!   request (`patch`) on `resourceclaims/binding` cluster-wide: a `ClusterRoleBinding`, without a
//!   namespace or resource names.
//! - **Pod**: `extendedResourceClaimStatus` (`pkg/apis/core/validation/validation.go`,
//!   `validatePodExtendedResourceClaimStatus`) needs at least one mapping, each of a container that
//!   requests the resource.
//! - **Binding** (`pkg/registry/core/pod/storage/storage.go`, `BindingREST`): the UID in the
//!   binding's metadata is a precondition (409 for another pod of the name). A pod that is bound,
//!   gated or being deleted is a 409 too. The server sets `PodScheduled` and clears
//!   `nominatedNodeName` itself. In the same write the pod gets the annotations of the binding.
//! - **Eviction** (`pkg/registry/core/pod/storage/eviction.go`): the server writes the
//!   `DisruptionTarget` condition itself. It answers 429 with the cause `DisruptionBudget` where a
//!   budget forbids the eviction.

use octavo_api::names::GANG_PLACED;
use octavo_kube_io::claims::{request_to_api, result_to_api};
use octavo_kube_io::objects::ObjectName;
use octavo_kube_io::slices::node_selector_to_api;
use serde_json::{Value, json};

use super::call::ApiRequest;
use super::responses::{EXTENDED_ANNOTATION, FINALIZER};
use super::{Evict, ExtendedWrite, PodRef, VolumeWrite, WrittenAllocation};
use crate::predicates::SELECTED_NODE;

const CLAIMS: &str = "resourceclaims";
const CLAIM_STATUS: &str = "resourceclaims/status";
const POD_STATUS: &str = "pods/status";

pub(super) fn claim_path(name: &ObjectName) -> String {
    let ObjectName { namespace, name } = name;
    format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}")
}

pub(super) fn volume_path(name: &str) -> String {
    format!("/api/v1/persistentvolumes/{name}")
}

pub(super) fn pod_path(name: &ObjectName) -> String {
    let ObjectName { namespace, name } = name;
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

/// Adds the finalizer. It names no version, so that other changes of the claim do not conflict. The
/// response shows the claim's state.
pub(super) fn add_finalizer(claim: &ObjectName, uid: &str) -> ApiRequest {
    let body = json!({"metadata": {"uid": uid, "finalizers": [FINALIZER]}});
    ApiRequest::patch(claim_path(claim), CLAIMS, body)
}

/// Removes the finalizer, if the claim has not changed.
pub(super) fn remove_finalizer(claim: &ObjectName, uid: &str, version: &str) -> ApiRequest {
    let body = json!({"metadata": {
        "uid": uid,
        "resourceVersion": version,
        "$deleteFromPrimitiveList/finalizers": [FINALIZER],
    }});
    ApiRequest::patch(claim_path(claim), CLAIMS, body)
}

/// Allocates and reserves, if the claim has not changed.
pub(super) fn allocate(
    claim: &ObjectName,
    uid: &str,
    version: &str,
    allocation: &WrittenAllocation,
    pod: &PodRef,
) -> ApiRequest {
    let body = json!({
        "metadata": {"uid": uid, "resourceVersion": version},
        "status": {"allocation": allocation_body(allocation), "reservedFor": [consumer(pod)]},
    });
    ApiRequest::patch(status(claim_path(claim)), CLAIM_STATUS, body)
}

/// Reserves an allocated claim. It names no version, so that pods sharing a claim do not conflict.
/// The server rejects it for a claim without an allocation.
pub(super) fn reserve(claim: &ObjectName, uid: &str, pod: &PodRef) -> ApiRequest {
    let body = json!({"metadata": {"uid": uid}, "status": {"reservedFor": [consumer(pod)]}});
    ApiRequest::patch(status(claim_path(claim)), CLAIM_STATUS, body)
}

/// Removes a reservation, if the claim has not changed; with `deallocates` the allocation too.
pub(super) fn release(
    claim: &ObjectName,
    uid: &str,
    version: &str,
    pod: &PodRef,
    deallocates: bool,
) -> ApiRequest {
    let status_body = if deallocates {
        json!({"allocation": null, "reservedFor": null})
    } else {
        json!({"reservedFor": [{"$patch": "delete", "uid": *pod.uid}]})
    };
    let body = json!({"metadata": {"uid": uid, "resourceVersion": version}, "status": status_body});
    ApiRequest::patch(status(claim_path(claim)), CLAIM_STATUS, body)
}

/// Creates the claim for a pod's extended resources, with its finalizer.
///
/// The owner reference does not set `blockOwnerDeletion`. With the admission plugin
/// `OwnerReferencesPermissionEnforcement` that needs rights on `pods/finalizers`. kube-scheduler
/// does not set it either.
pub(super) fn create_extended(pod: &PodRef, name: &str, extended: &ExtendedWrite) -> ApiRequest {
    let requests: Vec<_> = extended.claim.requests.iter().map(request).collect();
    let body = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "generateName": format!("{}-extended-resources-", pod.name.name),
            "namespace": *pod.name.namespace,
            "annotations": {EXTENDED_ANNOTATION: "true"},
            "finalizers": [FINALIZER],
            "ownerReferences": [{
                "apiVersion": "v1",
                "kind": "Pod",
                "name": *pod.name.name,
                "uid": *pod.uid,
                "controller": true,
            }],
        },
        "spec": {"devices": {"requests": requests}},
    });
    let namespace = &pod.name.namespace;
    let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims");
    ApiRequest::post(path, CLAIMS, body)
}

/// A request in its API form.
pub(super) fn request(request: &octavo_dra::Request) -> Value {
    json!(request_to_api(request))
}

/// Deletes this claim, and no later claim of its name.
pub(super) fn delete_claim(claim: &ObjectName, uid: &str) -> ApiRequest {
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
    ApiRequest::delete(claim_path(claim), CLAIMS, body)
}

/// Sets which claim has the pod's extended resources. The kubelet reads it.
pub(super) fn set_extended_status(
    pod: &PodRef,
    claim: &str,
    extended: &ExtendedWrite,
) -> ApiRequest {
    let mapping = |mapping: &octavo_dra::RequestMapping| {
        json!({
            "containerName": mapping.container,
            "resourceName": mapping.resource,
            "requestName": mapping.request,
        })
    };
    let mappings: Vec<_> = extended.claim.mappings.iter().map(mapping).collect();
    let status = json!({"resourceClaimName": claim, "requestMappings": mappings});
    pod_status(pod, json!({"extendedResourceClaimStatus": status}))
}

/// Clears what `set_extended_status` set.
pub(super) fn clear_extended_status(pod: &PodRef) -> ApiRequest {
    pod_status(pod, json!({"extendedResourceClaimStatus": null}))
}

/// Binds this pod, and no later pod of its name.
pub(super) fn bind(pod: &PodRef, node: &str, gang_placed: Option<&str>) -> ApiRequest {
    let mut body = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": *pod.name.name, "namespace": *pod.name.namespace, "uid": *pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    if let Some(value) = gang_placed {
        body["metadata"]["annotations"] = json!({GANG_PLACED: value});
    }
    ApiRequest::post(format!("{}/binding", pod_path(&pod.name)), "pods/binding", body)
}

/// Evicts the pod under its disruption budgets.
pub(super) fn evict(pod: &PodRef) -> ApiRequest {
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": *pod.name.name, "namespace": *pod.name.namespace},
        "deleteOptions": {"preconditions": {"uid": *pod.uid}},
    });
    ApiRequest::post(format!("{}/eviction", pod_path(&pod.name)), "pods/eviction", body)
}

/// Deletes the pod with its own grace period.
pub(super) fn delete_pod(pod: &PodRef) -> ApiRequest {
    let body =
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": *pod.uid}});
    ApiRequest::delete(pod_path(&pod.name), "pods", body)
}

/// Sets the pod's `DisruptionTarget` condition, as kube-scheduler does before it deletes a victim
/// (`pkg/scheduler/framework/preemption/executor.go`). `now` is in the API's time format.
pub(super) fn mark_victim(evict: &Evict, now: &str) -> ApiRequest {
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": evict.reason,
        "message": evict.message,
        "lastTransitionTime": now,
    });
    pod_status(&evict.pod, json!({"conditions": [condition]}))
}

/// Requests a volume for a node, as kube-scheduler does
/// (`pkg/scheduler/framework/plugins/volumebinding/binder.go`, `bindAPIUpdate`).
pub(super) fn request_volume(write: &VolumeWrite, node: &str) -> ApiRequest {
    match write {
        VolumeWrite::Provision { claim, uid } => {
            let path = format!(
                "/api/v1/namespaces/{}/persistentvolumeclaims/{}",
                claim.namespace, claim.name
            );
            let body = json!({"metadata": {"uid": **uid, "annotations": {SELECTED_NODE: node}}});
            ApiRequest::patch(path, "persistentvolumeclaims", body)
        }
        VolumeWrite::Bind { volume, version, claim, claim_uid } => {
            let body = json!({
                "metadata": {
                    "resourceVersion": **version,
                    "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
                },
                "spec": {"claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": *claim.namespace, "name": *claim.name, "uid": **claim_uid,
                }},
            });
            ApiRequest::patch(volume_path(volume), "persistentvolumes", body)
        }
    }
}

/// Sets or clears the nominated node.
pub(super) fn nominate(pod: &PodRef, node: Option<&str>) -> ApiRequest {
    pod_status(pod, json!({"nominatedNodeName": node}))
}

fn pod_status(pod: &PodRef, status_body: Value) -> ApiRequest {
    let mut body = json!({"metadata": {"uid": *pod.uid}});
    body["status"] = status_body;
    ApiRequest::patch(status(pod_path(&pod.name)), POD_STATUS, body)
}

fn status(path: String) -> String {
    path + "/status"
}

fn consumer(pod: &PodRef) -> Value {
    json!({"resource": "pods", "name": *pod.name.name, "uid": *pod.uid})
}

/// `status.allocation`.
fn allocation_body(written: &WrittenAllocation) -> Value {
    let extras = written.extras.iter().map(Some).chain(std::iter::repeat(None));
    let results = written.allocation.results.iter().zip(extras);
    let results: Vec<_> = results.map(|(result, extra)| result_body(result, extra)).collect();
    let mut body = json!({"devices": {"results": results}});
    if !written.config.is_empty() {
        body["devices"]["config"] = written.config.clone().into();
    }
    if let Some(nodes) = &written.allocation.nodes {
        body["nodeSelector"] = json!(node_selector_to_api(nodes));
    }
    body
}

fn result_body(result: &octavo_dra::AllocationResult, extra: Option<&Value>) -> Value {
    let mut body = json!(result_to_api(result));
    if let (Some(fields), Some(Value::Object(extra))) = (body.as_object_mut(), extra) {
        fields.extend(extra.clone());
    }
    body
}
