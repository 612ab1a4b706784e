//! Each write: a pod's condition, the status of a gang or a policy, an event.

use octavo_api::Condition;
use octavo_api::PlacementPolicyStatus;
use octavo_api::names::OCTAVO_API_VERSION;
use octavo_api::pod_group::{PodGroupSpec, PodGroupStatus, SubGroupStatus};
use octavo_kube_io::objects::{ObjectName, ScheduledCondition};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::status_queue::{EventWrite, StatusWrite, is_octavo_pod_group};
use super::{GroupPhase, GroupStatus, StatusText};
use crate::bind::{Api, ApiError, ApiRequest, BodyFormat, PodRef, unreadable};

/// Longest message of a condition, and longest event note that the API accepts, in bytes.
const MAX_MESSAGE_BYTES: usize = 8192;
const MAX_NOTE_BYTES: usize = 1024;

/// The reporter that events name.
#[derive(Clone, Debug)]
pub(super) struct EventSource {
    pub(super) controller: String,
    pub(super) instance: String,
}

/// Writes one update. An unchanged status is not written.
pub(super) async fn write(
    api: &Api,
    reporter: &EventSource,
    job: &StatusWrite,
) -> Result<(), ApiError> {
    match job {
        StatusWrite::Condition { pod, status_text, seen } => {
            let write = condition(pod, status_text, seen.as_ref());
            api.send_once(&write).await.map(drop)
        }
        StatusWrite::Group(report) => {
            let status =
                if is_octavo_pod_group(&report.kind) { octavo_group } else { native_group };
            let path = group_path(report);
            update(api, path, "podgroups", |path, object| {
                let is_same = object["metadata"]["uid"] == *report.uid;
                is_same.then(|| status(path, report, object)).flatten()
            })
            .await
        }
        StatusWrite::Policy { name, generation, error } => {
            let path = format!("/apis/{OCTAVO_API_VERSION}/placementpolicies/{name}");
            update(api, path, "placementpolicies", |path, object| {
                policy(path, *generation, error.as_ref(), object)
            })
            .await
        }
        StatusWrite::Event(event) => api.send_once(&event_write(reporter, event)).await.map(drop),
    }
}

/// Reads an object and writes its status, if `write` finds that it must change.
async fn update(
    api: &Api,
    path: String,
    resource: &'static str,
    write: impl FnOnce(String, &Value) -> Option<ApiRequest>,
) -> Result<(), ApiError> {
    let body = match api.send_once(&ApiRequest::get(path.clone(), resource)).await {
        Ok(body) => body,
        Err(error) => return error.if_gone(()),
    };
    let object = serde_json::from_slice(&body).map_err(|error| unreadable(&error))?;
    match write(path, &object) {
        Some(write) => api.send_once(&write).await.map(drop),
        None => Ok(()),
    }
}

/// A part of an object; the default if it is missing or has another form.
fn part<T: DeserializeOwned + Default>(object: &Value, pointer: &str) -> T {
    let part = object.pointer(pointer).cloned().unwrap_or_default();
    serde_json::from_value(part).unwrap_or_default()
}

/// The server merges `PodScheduled` into the conditions by its type. `lastTransitionTime` changes
/// only from or to `False`. If the condition was `False` already, the patch leaves the time out.
fn condition(
    pod: &PodRef,
    status_text: &StatusText,
    seen: Option<&ScheduledCondition>,
) -> ApiRequest {
    let mut condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": status_text.reason,
        "message": truncate(&status_text.message, MAX_MESSAGE_BYTES),
    });
    if seen.is_none_or(|seen| seen.is_true) {
        condition["lastTransitionTime"] = now().into();
    }
    let ObjectName { namespace, name } = &pod.name;
    ApiRequest::patch(
        format!("/api/v1/namespaces/{namespace}/pods/{name}/status"),
        "pods/status",
        json!({"metadata": {"uid": &*pod.uid}, "status": {"conditions": [condition]}}),
    )
}

/// The full status of Octavo's own `PodGroup`.
fn octavo_group(path: String, report: &GroupStatus, object: &Value) -> Option<ApiRequest> {
    let old: PodGroupStatus = part(object, "/status");
    let new = octavo_status(report, &part(object, "/spec"), &old.conditions);
    if new == old {
        return None;
    }
    let mut status = serde_json::to_value(&new).unwrap_or_default();
    // A merge patch keeps fields that it does not name.
    for field in ["subGroups", "domain"] {
        if status.get(field).is_none() {
            status[field] = Value::Null;
        }
    }
    let body = json!({"metadata": {"uid": &*report.uid}, "status": status});
    Some(merge_patch(path, "podgroups/status", body))
}

fn octavo_status(report: &GroupStatus, spec: &PodGroupSpec, old: &[Condition]) -> PodGroupStatus {
    let sum: u32 = spec.sub_groups.iter().map(|subgroup| subgroup.min_member).sum();
    let has_subgroups =
        report.present.keys().chain(report.bound.keys()).any(|subgroup| !subgroup.is_empty());
    let subgroups: std::collections::BTreeSet<_> =
        report.present.keys().chain(report.bound.keys()).collect();
    let subgroup = |name: &std::sync::Arc<str>| SubGroupStatus {
        name: name.as_ref().to_owned(),
        present: report.present.get(name).copied().unwrap_or(0),
        bound: report.bound.get(name).copied().unwrap_or(0),
    };
    PodGroupStatus {
        observed_generation: Some(report.generation),
        phase: Some(report.phase.name().to_owned()),
        conditions: vec![updated_condition(
            old,
            "Scheduled",
            report.phase == GroupPhase::Scheduled,
            &report.status_text,
            report.generation,
        )],
        min: Some(spec.min_member.unwrap_or(if sum > 0 { sum } else { 1 })),
        present: Some(report.present.values().sum()),
        bound: Some(report.bound.values().sum()),
        sub_groups: if has_subgroups {
            subgroups.into_iter().map(subgroup).collect()
        } else {
            Vec::new()
        },
        domain: report.domain.clone(),
    }
}

/// The condition of Kubernetes' own `PodGroup` (`api/scheduling/v1alpha2/types.go`
/// `PodGroupScheduled`). As in kube-scheduler it never returns to `False`
/// (`pkg/scheduler/schedule_one_podgroup.go` `updatePodGroupCondition`).
fn native_group(path: String, report: &GroupStatus, object: &Value) -> Option<ApiRequest> {
    const TYPE: &str = "PodGroupScheduled";
    let old: Vec<Condition> = part(object, "/status/conditions");
    let is_scheduled = report.phase == GroupPhase::Scheduled;
    let previous = old.iter().find(|condition| condition.type_ == TYPE);
    if previous.is_some_and(|previous| previous.status == "True") && !is_scheduled {
        return None;
    }
    // The two reasons that its API defines.
    let reason = if is_scheduled { "Scheduled" } else { "Unschedulable" };
    let StatusText { reason: why, message } = &report.status_text;
    let message = if is_scheduled { message.clone() } else { format!("{why}: {message}") };
    let status_text = StatusText { reason, message };
    let new = updated_condition(&old, TYPE, is_scheduled, &status_text, report.generation);
    if previous == Some(&new) {
        return None;
    }
    let body = json!({"metadata": {"uid": &*report.uid}, "status": {"conditions": [new]}});
    Some(ApiRequest::patch(path + "/status", "podgroups/status", body))
}

fn policy(
    path: String,
    generation: i64,
    error: Option<&StatusText>,
    object: &Value,
) -> Option<ApiRequest> {
    let old: PlacementPolicyStatus = part(object, "/status");
    let accepted = || StatusText { reason: "Accepted", message: "the policy is in use".to_owned() };
    let status_text = error.cloned().unwrap_or_else(accepted);
    let is_accepted = error.is_none();
    let condition =
        updated_condition(&old.conditions, "Accepted", is_accepted, &status_text, generation);
    let new = PlacementPolicyStatus {
        observed_generation: Some(generation),
        conditions: vec![condition],
    };
    (new != old).then(|| merge_patch(path, "placementpolicies/status", json!({ "status": new })))
}

/// A condition. Its time is kept while its status is unchanged.
fn updated_condition(
    old: &[Condition],
    type_: &str,
    is_true: bool,
    status_text: &StatusText,
    generation: i64,
) -> Condition {
    let status = if is_true { "True" } else { "False" };
    let previous = old.iter().find(|old| old.type_ == type_ && old.status == status);
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: status_text.reason.to_owned(),
        message: truncate(&status_text.message, MAX_MESSAGE_BYTES).to_owned(),
        last_transition_time: previous
            .map_or_else(now, |previous| previous.last_transition_time.clone()),
        observed_generation: Some(generation),
    }
}

fn group_path(report: &GroupStatus) -> String {
    let ObjectName { namespace, name } = &report.name;
    let version = &report.kind.api_version;
    format!("/apis/{version}/namespaces/{namespace}/podgroups/{name}")
}

fn merge_patch(path: String, resource: &'static str, body: Value) -> ApiRequest {
    ApiRequest {
        format: BodyFormat::MergePatch,
        ..ApiRequest::patch(path + "/status", resource, body)
    }
}

fn event_write(reporter: &EventSource, event: &EventWrite) -> ApiRequest {
    // Events about cluster-scoped objects are in `default`, as in client-go.
    let namespace = match &*event.name.namespace {
        "" => "default",
        namespace => namespace,
    };
    let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        // The API server accepts a base that ends in a dash, but not in a dot.
        "metadata": {"generateName": format!("{}-", event.name.name), "namespace": namespace},
        "eventTime": time,
        "reportingController": reporter.controller,
        "reportingInstance": reporter.instance,
        "action": "Scheduling",
        "type": if event.is_warning { "Warning" } else { "Normal" },
        "reason": event.reason,
        "note": truncate(&event.note, MAX_NOTE_BYTES),
        "regarding": {
            "apiVersion": event.kind.api_version,
            "kind": event.kind.kind,
            "namespace": &*event.name.namespace,
            "name": &*event.name.name,
            "uid": &*event.uid,
        },
    });
    let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    ApiRequest::post(path, "events", body)
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The longest prefix of at most `max_bytes` bytes.
fn truncate(text: &str, max_bytes: usize) -> &str {
    let end = (0..=max_bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
