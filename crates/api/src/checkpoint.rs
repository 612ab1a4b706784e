//! How a pod saves its work before it leaves: annotations of the pod, requests to the agent of its node, and their outcomes.
//!
//! ```text
//! annotations of a pod --of--> Checkpoint --> NodeHealth.spec.checkpoints --> the node's agent --> NodeHealth.status.checkpoints
//! ```

#![expect(unreachable_pub, reason = "KubeSchema writes each type a second time, in a function")]

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::{
    CHECKPOINT_CONTAINER, CHECKPOINT_DEADLINE, CHECKPOINT_FILE, CHECKPOINT_HTTP, CHECKPOINT_SIGNAL,
};

/// Time that a pod has for its checkpoint if its annotations name none, in seconds.
pub const DEFAULT_DEADLINE_SECONDS: i64 = 60;
/// Most time that a pod may have, in seconds.
pub const MAX_DEADLINE_SECONDS: i64 = 3_600;
/// Longest path of a URL or file.
const MAX_PATH: usize = 256;

/// What a pod's annotations say of its checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// How the pod is asked.
    pub hook: Hook,
    /// Time that it has, in seconds.
    pub deadline_seconds: i64,
}

/// How a pod is asked to save its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A signal to the first process of a container. The container has saved its work once that process has ended.
    Signal {
        /// The container; the first one if none is named.
        container: Option<String>,
        /// The signal.
        signal: Signal,
    },
    /// A POST. The pod has saved its work once it answers with a status of 2xx.
    Http {
        /// Port of the pod.
        port: u16,
        /// Path, which begins with a slash.
        path: String,
    },
    /// A file in a volume of kind `emptyDir`, which the agent makes. The pod has saved its work once it has removed the file.
    File {
        /// Name of the volume.
        volume: String,
        /// Path within the volume, without `..`.
        path: String,
    },
}

/// Signals that ask a program to save its work.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
    /// `SIGUSR1`, as of Slurm and of many frameworks.
    #[serde(rename = "SIGUSR1")]
    Usr1,
    /// `SIGUSR2`.
    #[serde(rename = "SIGUSR2")]
    Usr2,
    /// `SIGTERM`, as of Megatron-LM.
    #[serde(rename = "SIGTERM")]
    Term,
    /// `SIGHUP`.
    #[serde(rename = "SIGHUP")]
    Hup,
    /// `SIGINT`.
    #[serde(rename = "SIGINT")]
    Int,
}

/// A pod that is to save its work now. The controller writes it, and removes it once the pod has gone or need not leave.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointRequest {
    /// UID of the pod. It is asked once.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
    /// Namespace of the pod.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Name of the pod.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Since when it is asked.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// Time that it has, in seconds.
    #[schemars(range(min = 1, max = 3_600))]
    pub deadline_seconds: i64,
    /// A signal to a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<SignalRequest>,
    /// URL to which a POST goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub url: Option<String>,
    /// A file that is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileRequest>,
}

/// A signal to a container.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignalRequest {
    /// ID of the container, as in the status of the pod without the name of the runtime.
    #[serde(rename = "containerID")]
    #[schemars(length(min = 1, max = 128))]
    pub container_id: String,
    /// The signal.
    pub signal: Signal,
}

/// A file in a volume of a pod.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileRequest {
    /// Name of the volume, of kind `emptyDir`.
    #[schemars(length(min = 1, max = 63))]
    pub volume: String,
    /// Path within the volume.
    #[schemars(length(min = 1, max = 256))]
    pub path: String,
}

/// What became of a request, by the agent. It leaves with the request.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointReport {
    /// UID of the pod.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
    /// The `since` of the request that it answers. A pod may be asked more than once while it lives.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub since: String,
    /// What became of it.
    pub outcome: CheckpointOutcome,
    /// Time from the first ask to the outcome, in milliseconds.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub milliseconds: i64,
    /// Why it failed, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
}

/// What became of a request.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckpointOutcome {
    /// The pod was asked and has not answered yet.
    Running,
    /// The pod has saved its work.
    Saved,
    /// The pod could not be asked, or it refused.
    Failed,
    /// The deadline passed without an answer.
    TimedOut,
}

/// Why annotations of a pod cannot be used. The pod is evicted without a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// Several ways to ask.
    #[error("{0} and {1} are both set; leave one of them")]
    Several(&'static str, &'static str),
    /// No way to ask.
    #[error(
        "{0} is set without a way to ask; set {CHECKPOINT_SIGNAL}, {CHECKPOINT_HTTP} or {CHECKPOINT_FILE}"
    )]
    NoHook(&'static str),
    /// A value that is not valid.
    #[error("{annotation}: \"{found}\" is not valid; it must be {wanted}")]
    Invalid {
        /// The annotation.
        annotation: &'static str,
        /// Its value.
        found: String,
        /// What it must be.
        wanted: &'static str,
    },
}

impl Checkpoint {
    /// What a pod's annotations say; `None` without any of them.
    ///
    /// # Errors
    ///
    /// Annotations that contradict one another, or a value that is not valid.
    pub fn of(annotations: &BTreeMap<String, String>) -> Result<Option<Self>, CheckpointError> {
        let value = |annotation: &'static str| {
            annotations.get(annotation).map(|value| (annotation, value.as_str()))
        };
        let ways = [CHECKPOINT_SIGNAL, CHECKPOINT_HTTP, CHECKPOINT_FILE];
        let mut found = ways.into_iter().filter_map(value);
        let (Some((way, text)), second) = (found.next(), found.next()) else {
            let rest = [CHECKPOINT_CONTAINER, CHECKPOINT_DEADLINE].into_iter().find_map(value);
            return rest.map_or(Ok(None), |(name, _)| Err(CheckpointError::NoHook(name)));
        };
        if let Some((other, _)) = second {
            return Err(CheckpointError::Several(way, other));
        }
        let container = value(CHECKPOINT_CONTAINER).map(|(_, container)| container.to_owned());
        let hook = match way {
            CHECKPOINT_SIGNAL => signal(text).map(|signal| Hook::Signal { container, signal }),
            CHECKPOINT_HTTP => http(text),
            _ => file(text),
        };
        let wanted = match way {
            CHECKPOINT_SIGNAL => "SIGUSR1, SIGUSR2, SIGTERM, SIGHUP or SIGINT",
            CHECKPOINT_HTTP => "a port and a path, as in :8080/checkpoint",
            _ => "a volume and a path in it, as in control/checkpoint",
        };
        let invalid = |annotation, found: &str, wanted| CheckpointError::Invalid {
            annotation,
            found: found.to_owned(),
            wanted,
        };
        let hook = hook.ok_or_else(|| invalid(way, text, wanted))?;
        let deadline_seconds = match value(CHECKPOINT_DEADLINE) {
            None => DEFAULT_DEADLINE_SECONDS,
            Some((name, text)) => text
                .parse()
                .ok()
                .filter(|seconds| (1..=MAX_DEADLINE_SECONDS).contains(seconds))
                .ok_or_else(|| invalid(name, text, "a number of seconds from 1 to 3600"))?,
        };
        Ok(Some(Self { hook, deadline_seconds }))
    }
}

fn signal(text: &str) -> Option<Signal> {
    serde_json::from_value(text.into()).ok()
}

fn http(text: &str) -> Option<Hook> {
    let (port, path) = text.strip_prefix(':')?.split_once('/')?;
    let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic());
    let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
    (is_plain && path.len() < MAX_PATH).then(|| Hook::Http { port, path: format!("/{path}") })
}

fn file(text: &str) -> Option<Hook> {
    let (volume, path) = text.split_once('/')?;
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    let is_valid = is_part(volume) && path.split('/').all(is_part);
    (is_valid && volume.len() <= 63 && path.len() <= MAX_PATH)
        .then(|| Hook::File { volume: volume.to_owned(), path: path.to_owned() })
}
