//! One write each: a pod's condition, the status of a gang or a policy, an event.

use octavo_api::Condition;
use octavo_api::PlacementPolicyStatus;
use octavo_api::names::OCTAVO_API_VERSION;
use octavo_api::pod_group::{PodGroupSpec, PodGroupStatus, SubGroupStatus};
use octavo_kube_io::objects::{ObjectName, ScheduledCondition};
use serde_json::{Value, json};

use super::pending::{EventJob, Job, is_own};
use super::{GroupPhase, GroupReport, Statement};
use crate::bind::{Api, Fault, Form, PodRef, Write};

/// Longest message of a condition, and longest note that the API takes of an event, in bytes.
const LONGEST_MESSAGE: usize = 8192;
const LONGEST_NOTE: usize = 1024;

/// Who reports, as events have it.
#[derive(Clone, Debug)]
pub(super) struct Reporter {
    pub(super) controller: String,
    pub(super) instance: String,
}

/// Writes one thing; what is so already is not written.
pub(super) async fn write(api: &Api, reporter: &Reporter, job: &Job) -> Result<(), Fault> {
    match job {
        Job::Condition { pod, statement, seen } => {
            let write = condition(pod, statement, seen.as_ref());
            api.write_once(&write).await.map(drop)
        }
        Job::Group(report) if is_own(&report.kind) => own_group(api, report).await,
        Job::Group(report) => native_group(api, report).await,
        Job::Policy { name, generation, error } => {
            policy(api, name, *generation, error.as_ref()).await
        }
        Job::Event(event) => api.write_once(&event_write(reporter, event)).await.map(drop),
    }
}

/// `PodScheduled` is merged into the conditions by its type. The time is that of the last change from or to
/// `False`: where it was `False` already the old time stays, for it is not in the patch.
fn condition(pod: &PodRef, statement: &Statement, seen: Option<&ScheduledCondition>) -> Write {
    let mut condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": statement.reason,
        "message": cut(&statement.message, LONGEST_MESSAGE),
    });
    if seen.is_none_or(|seen| seen.is_true) {
        condition["lastTransitionTime"] = now().into();
    }
    let ObjectName { namespace, name } = &pod.name;
    Write::patch(
        format!("/api/v1/namespaces/{namespace}/pods/{name}/status"),
        "pods/status",
        json!({"metadata": {"uid": &*pod.uid}, "status": {"conditions": [condition]}}),
    )
}

/// The status of Octavo's own `PodGroup`, whole.
async fn own_group(api: &Api, report: &GroupReport) -> Result<(), Fault> {
    const RESOURCE: &str = "podgroups/status";
    let path = group_path(report);
    let Some(object) = there(api, &path, &report.uid).await? else { return Ok(()) };
    let old = object.get("status").cloned().unwrap_or_default();
    let old = serde_json::from_value::<PodGroupStatus>(old).unwrap_or_default();
    let spec = object.get("spec").cloned().unwrap_or_default();
    let spec = serde_json::from_value::<PodGroupSpec>(spec).unwrap_or_default();
    let new = own_status(report, &spec, &old.conditions);
    if new == old {
        return Ok(());
    }
    let mut status = serde_json::to_value(&new).unwrap_or_default();
    // A merge patch leaves alone what it does not name.
    for field in ["subGroups", "domain"] {
        if status.get(field).is_none() {
            status[field] = Value::Null;
        }
    }
    let body = json!({"metadata": {"uid": &*report.uid}, "status": status});
    api.write_once(&merge_patch(path, RESOURCE, body)).await.map(drop)
}

fn own_status(report: &GroupReport, spec: &PodGroupSpec, old: &[Condition]) -> PodGroupStatus {
    let sum: u32 = spec.sub_groups.iter().map(|part| part.min_member).sum();
    let is_parted = report.present.keys().chain(report.bound.keys()).any(|part| !part.is_empty());
    let parts: std::collections::BTreeSet<_> =
        report.present.keys().chain(report.bound.keys()).collect();
    let part = |name: &std::sync::Arc<str>| SubGroupStatus {
        name: name.as_ref().to_owned(),
        present: report.present.get(name).copied().unwrap_or(0),
        bound: report.bound.get(name).copied().unwrap_or(0),
    };
    PodGroupStatus {
        observed_generation: Some(report.generation),
        phase: Some(report.phase.name().to_owned()),
        conditions: vec![renewed(
            old,
            "Scheduled",
            report.phase == GroupPhase::Scheduled,
            &report.statement,
            report.generation,
        )],
        min: Some(spec.min_member.unwrap_or(if sum > 0 { sum } else { 1 })),
        present: Some(report.present.values().sum()),
        bound: Some(report.bound.values().sum()),
        sub_groups: if is_parted { parts.into_iter().map(part).collect() } else { Vec::new() },
        domain: report.domain.clone(),
    }
}

/// The condition of Kubernetes' own `PodGroup` (`api/scheduling/v1alpha2/types.go` `PodGroupScheduled`). As
/// kube-scheduler's it does not go back to `False` (`pkg/scheduler/schedule_one_podgroup.go`
/// `updatePodGroupCondition`).
async fn native_group(api: &Api, report: &GroupReport) -> Result<(), Fault> {
    const TYPE: &str = "PodGroupScheduled";
    let path = group_path(report);
    let Some(object) = there(api, &path, &report.uid).await? else { return Ok(()) };
    let old = object.pointer("/status/conditions").cloned().unwrap_or_default();
    let old = serde_json::from_value::<Vec<Condition>>(old).unwrap_or_default();
    let is_scheduled = report.phase == GroupPhase::Scheduled;
    let known = old.iter().find(|condition| condition.type_ == TYPE);
    if known.is_some_and(|known| known.status == "True") && !is_scheduled {
        return Ok(());
    }
    // The two reasons that its API knows.
    let reason = if is_scheduled { "Scheduled" } else { "Unschedulable" };
    let Statement { reason: why, message } = &report.statement;
    let message = if is_scheduled { message.clone() } else { format!("{why}: {message}") };
    let statement = Statement { reason, message };
    let new = renewed(&old, TYPE, is_scheduled, &statement, report.generation);
    if known == Some(&new) {
        return Ok(());
    }
    let body = json!({"metadata": {"uid": &*report.uid}, "status": {"conditions": [new]}});
    api.write_once(&Write::patch(path + "/status", "podgroups/status", body)).await.map(drop)
}

async fn policy(
    api: &Api,
    name: &str,
    generation: i64,
    error: Option<&Statement>,
) -> Result<(), Fault> {
    let path = format!("/apis/{OCTAVO_API_VERSION}/placementpolicies/{name}");
    let Some(object) = api.read_once::<Value>(&path, "placementpolicies").await? else {
        return Ok(());
    };
    let old = object.get("status").cloned().unwrap_or_default();
    let old = serde_json::from_value::<PlacementPolicyStatus>(old).unwrap_or_default();
    let accepted =
        || Statement { reason: "Accepted", message: "the policy is used as it stands".to_owned() };
    let statement = error.cloned().unwrap_or_else(accepted);
    let is_accepted = error.is_none();
    let condition = renewed(&old.conditions, "Accepted", is_accepted, &statement, generation);
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

/// A condition; its time is kept where its status is.
fn renewed(
    old: &[Condition],
    type_: &str,
    is_true: bool,
    statement: &Statement,
    generation: i64,
) -> Condition {
    let status = if is_true { "True" } else { "False" };
    let known = old.iter().find(|old| old.type_ == type_ && old.status == status);
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: statement.reason.to_owned(),
        message: cut(&statement.message, LONGEST_MESSAGE).to_owned(),
        last_transition_time: known.map_or_else(now, |known| known.last_transition_time.clone()),
        observed_generation: Some(generation),
    }
}

/// The object as it is, if it is still this one.
async fn there(api: &Api, path: &str, uid: &str) -> Result<Option<Value>, Fault> {
    let object = api.read_once::<Value>(path, "podgroups").await?;
    let is_this = |object: &Value| object.pointer("/metadata/uid").is_some_and(|one| one == uid);
    Ok(object.filter(is_this))
}

fn group_path(report: &GroupReport) -> String {
    let ObjectName { namespace, name } = &report.name;
    let version = &report.kind.api_version;
    format!("/apis/{version}/namespaces/{namespace}/podgroups/{name}")
}

fn merge_patch(path: String, resource: &'static str, body: Value) -> Write {
    Write { form: Form::MergePatch, ..Write::patch(path + "/status", resource, body) }
}

fn event_write(reporter: &Reporter, event: &EventJob) -> Write {
    // Events about objects of the whole cluster are in `default`, as client-go has it.
    let namespace = match &*event.name.namespace {
        "" => "default",
        namespace => namespace,
    };
    let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        // The API server lets a base end in a dash, and in no point.
        "metadata": {"generateName": format!("{}-", event.name.name), "namespace": namespace},
        "eventTime": time,
        "reportingController": reporter.controller,
        "reportingInstance": reporter.instance,
        "action": "Scheduling",
        "type": if event.is_warning { "Warning" } else { "Normal" },
        "reason": event.reason,
        "note": cut(&event.note, LONGEST_NOTE),
        "regarding": {
            "apiVersion": event.kind.api_version,
            "kind": event.kind.kind,
            "namespace": &*event.name.namespace,
            "name": &*event.name.name,
            "uid": &*event.uid,
        },
    });
    let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    Write::post(path, "events", body)
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The beginning of a text that has at most so many bytes.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
