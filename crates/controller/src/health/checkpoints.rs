//! How far the work of a pod that is to leave is saved, and how the pod is asked. Pure.
//!
//! A request stands in the spec of the node's `NodeHealth`. So a pod is asked once, and its time runs from then, also for another
//! controller.

#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::Pod;
use octavo_api::checkpoint::{
    Checkpoint, CheckpointError, CheckpointOutcome, CheckpointReport, CheckpointRequest,
    FileRequest, Hook, SignalRequest,
};

use super::facts::{HealthFacts, date, seconds};

/// Time after a pod's deadline until it leaves without a report of its agent, in seconds.
const MARGIN: u64 = 30;

/// How far a pod's work is saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The pod names no way to ask it.
    NoHook,
    /// It is to be asked.
    NotAsked(Box<CheckpointRequest>),
    /// It was asked, and has until a time, in seconds since 1970.
    Asked(u64),
    /// Its work is saved.
    Saved,
    /// Its work is not saved, and why, for people.
    NotSaved(String),
}

/// How far the work of a pod is saved, by what its node's agent reports. `health` is `None` if the node has no agent.
///
/// # Errors
///
/// Annotations of the pod that cannot be used.
pub fn progress(
    pod: &Pod,
    health: Option<&HealthFacts>,
    now: u64,
) -> Result<Progress, CheckpointError> {
    let Some(checkpoint) = hook(pod)? else { return Ok(Progress::NoHook) };
    let not_saved = |why: &str| Progress::NotSaved(why.to_owned());
    let Some(health) = health else { return Ok(not_saved("no agent of its node reports")) };
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let Some(asked) = health.requests.iter().find(|request| request.uid == uid) else {
        let request = request(pod, checkpoint, now);
        return Ok(request.map_or_else(not_saved, |it| Progress::NotAsked(Box::new(it))));
    };
    let report = report(health, asked);
    let message = |default: &str| {
        let message = report.and_then(|report| report.message.as_deref());
        Progress::NotSaved(message.unwrap_or(default).to_owned())
    };
    Ok(match report.map(|report| report.outcome) {
        Some(CheckpointOutcome::Saved) => Progress::Saved,
        Some(CheckpointOutcome::Failed) => message("it could not be asked, or it refused"),
        Some(CheckpointOutcome::TimedOut) => message("it did not answer before its deadline"),
        Some(CheckpointOutcome::Running) | None => {
            let until = ends_at(asked, now);
            if now < until {
                Progress::Asked(until)
            } else {
                not_saved("its agent reported nothing before its deadline")
            }
        }
    })
}

/// What a pod's annotations say of its checkpoints.
///
/// # Errors
///
/// Annotations that cannot be used.
pub fn hook(pod: &Pod) -> Result<Option<Checkpoint>, CheckpointError> {
    pod.metadata.annotations.as_ref().map_or(Ok(None), Checkpoint::of)
}

/// Whether a pod was asked, and its time is not over and nothing is known of the outcome.
pub fn is_open(health: &HealthFacts, uid: &str, now: u64) -> bool {
    let Some(request) = health.requests.iter().find(|request| request.uid == uid) else {
        return false;
    };
    let report = report(health, request);
    let is_known = report.is_some_and(|it| it.outcome != CheckpointOutcome::Running);
    !is_known && now < ends_at(request, now)
}

/// What the agent reports of a request.
fn report<'a>(
    health: &'a HealthFacts,
    request: &CheckpointRequest,
) -> Option<&'a CheckpointReport> {
    let is_of = |it: &&CheckpointReport| it.uid == request.uid && it.since == request.since;
    health.reports.iter().find(is_of)
}

/// Whether a pod of a node was asked, and its time is not over and nothing is known of the outcome.
pub fn is_saving(health: &HealthFacts, now: u64) -> bool {
    health.requests.iter().any(|request| is_open(health, &request.uid, now))
}

/// Why a pod leaves without a checkpoint whose request was not written, for people: the API server refused it for good, as `refusal`
/// says, or did not take it for as long as the pod would have had. `since` is when that began, in seconds since 1970.
pub fn not_asked(
    request: &CheckpointRequest,
    refusal: Option<&str>,
    since: u64,
    now: u64,
) -> Option<String> {
    if let Some(refusal) = refusal {
        return Some(format!("the API server refuses the request; upgrade the CRDs: {refusal}"));
    }
    let request = CheckpointRequest { since: date(since), ..request.clone() };
    let is_over = now >= ends_at(&request, now);
    is_over.then(|| "the API server did not take the request before its deadline".to_owned())
}

/// When a pod that was asked leaves without a report, in seconds since 1970.
pub fn ends_at(request: &CheckpointRequest, now: u64) -> u64 {
    let since = seconds(&request.since).unwrap_or_default().min(now);
    let deadline = u64::try_from(request.deadline_seconds).unwrap_or_default();
    since.saturating_add(deadline).saturating_add(MARGIN)
}

/// The request to a pod, or why it cannot be asked.
fn request(pod: &Pod, checkpoint: Checkpoint, now: u64) -> Result<CheckpointRequest, &'static str> {
    let (metadata, status) = (&pod.metadata, pod.status.as_ref());
    if status.and_then(|status| status.phase.as_deref()) != Some("Running") {
        return Err("it does not run");
    }
    let mut request = CheckpointRequest {
        uid: metadata.uid.clone().unwrap_or_default(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        since: date(now),
        deadline_seconds: checkpoint.deadline_seconds,
        ..CheckpointRequest::default()
    };
    match checkpoint.hook {
        Hook::Signal { container, signal } => {
            let container_id =
                container_id(pod, container.as_deref()).ok_or("its container does not run")?;
            request.signal = Some(SignalRequest { container_id, signal });
        }
        Hook::Http { port, path } => {
            let ip = status.and_then(|status| status.pod_ip.as_deref()).ok_or("it has no IP")?;
            let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
            request.url = Some(format!("http://{host}:{port}{path}"));
        }
        Hook::File { volume, path } => request.file = Some(FileRequest { volume, path }),
    }
    Ok(request)
}

/// ID of a running container of a pod, without the name of the runtime. Without a name it is the first container.
fn container_id(pod: &Pod, name: Option<&str>) -> Option<String> {
    let first = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let name = name.or(first.map(|container| container.name.as_str()))?;
    let mut statuses = pod.status.as_ref()?.container_statuses.iter().flatten();
    let status = statuses.find(|status| status.name == name)?;
    status.state.as_ref()?.running.as_ref()?;
    let (_, id) = status.container_id.as_deref()?.split_once("://")?;
    Some(id.to_owned())
}
