//! Watches: the decoded parts of objects, and the restart of a watch.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::AsyncBufReadExt as _;
use http::Request;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::task::JoinHandle;

use super::{Change, ObservedState, Shared};
use crate::scheduler::api::{Api, Kind};

/// A pod, trimmed.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    pub(super) metadata: Meta,
    pub(super) spec: PodSpec,
    status: Status,
}

/// Spec of a pod, trimmed.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PodSpec {
    pub(super) node_name: Option<String>,
}

/// A claim, trimmed.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Claim {
    pub(super) metadata: Meta,
}

/// A gang, trimmed.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Group {
    pub(super) metadata: Meta,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Meta {
    pub(super) name: String,
    pub(super) uid: String,
    resource_version: String,
    pub(super) deletion_timestamp: Option<IgnoredAny>,
    pub(super) owner_references: Vec<Owner>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Owner {
    pub(super) name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
    conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: String,
    message: String,
}

/// An object of a watch.
pub(super) trait WatchedObject: DeserializeOwned + Send + 'static {
    fn meta(&self) -> &Meta;
}

impl WatchedObject for Pod {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl WatchedObject for Claim {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl WatchedObject for Group {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Pod {
    /// Why it waits, if a scheduler has reported it.
    pub(super) fn waiting_reason(&self) -> Option<(String, String)> {
        self.status.no("PodScheduled")
    }

    pub(super) fn is_running(&self) -> bool {
        self.status.phase == "Running"
    }
}

impl Group {
    /// Why it waits, except while its own pods are missing.
    pub(super) fn waiting_reason(&self) -> Option<(String, String)> {
        if self.status.phase == "Gathering" {
            return None;
        }
        self.status.no("Scheduled")
    }
}

impl Status {
    fn no(&self, type_: &str) -> Option<(String, String)> {
        let found =
            self.conditions.iter().find(|found| found.type_ == type_ && found.status == "False")?;
        Some((found.reason.clone(), found.message.clone()))
    }
}

#[derive(Deserialize)]
struct Line<T> {
    #[serde(rename = "type")]
    type_: String,
    object: T,
}

/// Lists a kind, then follows its watch for as long as the task lives.
pub(super) async fn follow<T: WatchedObject>(
    api: &Api,
    kind: Kind,
    shared: &Arc<Shared>,
    see: fn(&mut ObservedState, Change<T>),
) -> anyhow::Result<JoinHandle<()>> {
    let (api, shared) = (api.clone(), Arc::clone(shared));
    let mut version = list(&api, kind, &shared, see).await?;
    Ok(tokio::spawn(async move {
        loop {
            // A watch that ends is routine: the API server closes slow ones.
            let ended = watch(&api, kind, &mut version, &shared, see).await;
            if ended.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
                if let Ok(listed) = list(&api, kind, &shared, see).await {
                    version = listed;
                }
            }
        }
    }))
}

async fn list<T: WatchedObject>(
    api: &Api,
    kind: Kind,
    shared: &Shared,
    see: fn(&mut ObservedState, Change<T>),
) -> anyhow::Result<String> {
    let list = api.list::<T>(kind).await?;
    see(&mut shared.lock(), Change::Replace(list.items));
    shared.changed.notify_waiters();
    Ok(list.metadata.resource_version)
}

/// Follows one watch to its end. An error means that a relist is needed.
async fn watch<T: WatchedObject>(
    api: &Api,
    kind: Kind,
    version: &mut String,
    shared: &Shared,
    see: fn(&mut ObservedState, Change<T>),
) -> anyhow::Result<()> {
    let path =
        format!("{}?watch=1&allowWatchBookmarks=true&resourceVersion={version}", kind.path());
    let request = Request::get(path).body(Vec::new()).context("make a request")?;
    let mut stream = Box::pin(api.client().request_stream(request).await?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if stream.read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        let event: Line<T> = serde_json::from_slice(&line).context("read a watch")?;
        version.clone_from(&event.object.meta().resource_version);
        let change = match event.type_.as_str() {
            "ADDED" | "MODIFIED" => Change::Upsert(event.object),
            "DELETED" => Change::Delete(event.object),
            "BOOKMARK" => continue,
            other => anyhow::bail!("the watch of {kind} says {other}"),
        };
        see(&mut shared.lock(), change);
        shared.changed.notify_waiters();
    }
}
