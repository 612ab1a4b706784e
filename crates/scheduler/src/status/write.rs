//! Each write: a pod's condition, the status of a gang or a policy, an event.

use octavo_api::Condition;
use octavo_api::PlacementPolicyStatus;
use octavo_api::names::OCTAVO_API_VERSION;
use octavo_api::pod_group::{PodGroupSpec, PodGroupStatus, SubGroupStatus};
use octavo_kube_io::objects::{ObjectName, ScheduledCondition};
use serde_json::{Value, json};

use super::status_queue::{EventWrite, StatusWrite, is_octavo_pod_group};
use super::{GroupPhase, GroupStatus, StatusText};
use crate::bind::{Api, ApiError, ApiWrite, BodyFormat, PodRef};

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
            api.write_once(&write).await.map(drop)
        }
        StatusWrite::Group(report) if is_octavo_pod_group(&report.kind) => {
            octavo_group(api, report).await
        }
        StatusWrite::Group(report) => native_group(api, report).await,
        StatusWrite::Policy { name, generation, error } => {
            policy(api, name, *generation, error.as_ref()).await
        }
        StatusWrite::Event(event) => api.write_once(&event_write(reporter, event)).await.map(drop),
    }
}

/// The server merges `PodScheduled` into the conditions by its type. `lastTransitionTime` changes
/// only from or to `False`. If the condition was `False` already, the patch leaves the time out.
fn condition(
    pod: &PodRef,
    status_text: &StatusText,
    seen: Option<&ScheduledCondition>,
) -> ApiWrite {
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
    ApiWrite::patch(
        format!("/api/v1/namespaces/{namespace}/pods/{name}/status"),
        "pods/status",
        json!({"metadata": {"uid": &*pod.uid}, "status": {"conditions": [condition]}}),
    )
}

/// The full status of Octavo's own `PodGroup`.
async fn octavo_group(api: &Api, report: &GroupStatus) -> Result<(), ApiError> {
    const RESOURCE: &str = "podgroups/status";
    let path = group_path(report);
    let Some(object) = read_if_same(api, &path, &report.uid).await? else { return Ok(()) };
    let old = object.get("status").cloned().unwrap_or_default();
    let old = serde_json::from_value::<PodGroupStatus>(old).unwrap_or_default();
    let spec = object.get("spec").cloned().unwrap_or_default();
    let spec = serde_json::from_value::<PodGroupSpec>(spec).unwrap_or_default();
    let new = octavo_status(report, &spec, &old.conditions);
    if new == old {
        return Ok(());
    }
    let mut status = serde_json::to_value(&new).unwrap_or_default();
    // A merge patch keeps fields that it does not name.
    for field in ["subGroups", "domain"] {
        if status.get(field).is_none() {
            status[field] = Value::Null;
        }
    }
    let body = json!({"metadata": {"uid": &*report.uid}, "status": status});
    api.write_once(&merge_patch(path, RESOURCE, body)).await.map(drop)
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
async fn native_group(api: &Api, report: &GroupStatus) -> Result<(), ApiError> {
    const TYPE: &str = "PodGroupScheduled";
    let path = group_path(report);
    let Some(object) = read_if_same(api, &path, &report.uid).await? else { return Ok(()) };
    let old = object.pointer("/status/conditions").cloned().unwrap_or_default();
    let old = serde_json::from_value::<Vec<Condition>>(old).unwrap_or_default();
    let is_scheduled = report.phase == GroupPhase::Scheduled;
    let previous = old.iter().find(|condition| condition.type_ == TYPE);
    if previous.is_some_and(|previous| previous.status == "True") && !is_scheduled {
        return Ok(());
    }
    // The two reasons that its API defines.
    let reason = if is_scheduled { "Scheduled" } else { "Unschedulable" };
    let StatusText { reason: why, message } = &report.status_text;
    let message = if is_scheduled { message.clone() } else { format!("{why}: {message}") };
    let status_text = StatusText { reason, message };
    let new = updated_condition(&old, TYPE, is_scheduled, &status_text, report.generation);
    if previous == Some(&new) {
        return Ok(());
    }
    let body = json!({"metadata": {"uid": &*report.uid}, "status": {"conditions": [new]}});
    api.write_once(&ApiWrite::patch(path + "/status", "podgroups/status", body)).await.map(drop)
}

async fn policy(
    api: &Api,
    name: &str,
    generation: i64,
    error: Option<&StatusText>,
) -> Result<(), ApiError> {
    let path = format!("/apis/{OCTAVO_API_VERSION}/placementpolicies/{name}");
    let Some(object) = api.read_once::<Value>(&path, "placementpolicies").await? else {
        return Ok(());
    };
    let old = object.get("status").cloned().unwrap_or_default();
    let old = serde_json::from_value::<PlacementPolicyStatus>(old).unwrap_or_default();
    let accepted = || StatusText { reason: "Accepted", message: "the policy is in use".to_owned() };
    let status_text = error.cloned().unwrap_or_else(accepted);
    let is_accepted = error.is_none();
    let condition =
        updated_condition(&old.conditions, "Accepted", is_accepted, &status_text, generation);
    let new = PlacementPolicyStatus {
        observed_generation: Some(generation),
        conditions: vec![condition],
    };
    if new == old {
        return Ok(());
    }
    let body = json!({"status": new});
    api.write_once(&merge_patch(path, "placementpolicies/status", body)).await.map(drop)
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

/// The object, if it is still the same one.
async fn read_if_same(api: &Api, path: &str, uid: &str) -> Result<Option<Value>, ApiError> {
    let object = api.read_once::<Value>(path, "podgroups").await?;
    let is_this =
        |object: &Value| object.pointer("/metadata/uid").is_some_and(|found| found == uid);
    Ok(object.filter(is_this))
}

fn group_path(report: &GroupStatus) -> String {
    let ObjectName { namespace, name } = &report.name;
    let version = &report.kind.api_version;
    format!("/apis/{version}/namespaces/{namespace}/podgroups/{name}")
}

fn merge_patch(path: String, resource: &'static str, body: Value) -> ApiWrite {
    ApiWrite { format: BodyFormat::MergePatch, ..ApiWrite::patch(path + "/status", resource, body) }
}

fn event_write(reporter: &EventSource, event: &EventWrite) -> ApiWrite {
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
    ApiWrite::post(path, "events", body)
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The longest prefix of at most `max_bytes` bytes.
fn truncate(text: &str, max_bytes: usize) -> &str {
    let end = (0..=max_bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
