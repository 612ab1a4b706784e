//! A node's `ResourceSlices`: published, and kept as they should be.
//!
//! [`Publisher`] watches the slices of one driver on one node, and nothing else. It writes when
//! what the API has differs from what is wanted: when devices or their health change, and when
//! somebody deletes or edits a slice (the kubelet deletes them when a driver was away for long). A
//! start that finds what it wants writes nothing.

mod convert;
#[cfg(test)]
mod fake_api;
mod plan;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Backoff;
use plan::{Settled, Wanted, Write};

pub use convert::{SliceError, from_api, node_selector_from_api, node_selector_to_api, to_api};

/// After how long without one a contest over the slices is over.
const CALM: Duration = Duration::from_mins(1);

/// The devices that a driver has on a node. Its slices are cut and numbered by the publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Name of the pool: the node's, for devices that are part of a node.
    pub name: String,
    /// Counter sets that the devices draw from.
    pub counters: Vec<octavo_dra::CounterSet>,
    /// The devices, in the order in which an allocator should try them.
    pub devices: Vec<octavo_dra::Device>,
}

/// How far publishing is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishState {
    /// Nothing is known yet: either of what is wanted or of what is there.
    Waiting,
    /// The API has what is wanted.
    Published {
        /// How many writes that took since the start.
        writes: u64,
    },
    /// The last attempt failed; it is tried again.
    Failing {
        /// Why, in words for people.
        reason: String,
    },
}

/// Keeps the slices of one driver on one node.
pub struct Publisher {
    client: Client,
    driver: String,
    node: String,
    found: BTreeMap<String, ResourceSlice>,
    relisted: Option<BTreeMap<String, ResourceSlice>>,
    is_listed: bool,
    owner: Option<OwnerReference>,
    settled: Settled,
    writes: u64,
}

impl Publisher {
    /// A publisher for the slices of `driver` on `node`; it does nothing until it runs.
    pub fn new(client: Client, driver: impl Into<String>, node: impl Into<String>) -> Self {
        Self {
            client,
            driver: driver.into(),
            node: node.into(),
            found: BTreeMap::new(),
            relisted: None,
            is_listed: false,
            owner: None,
            settled: Settled::default(),
            writes: 0,
        }
    }

    /// Publishes until `stop`, which leaves the slices as they are: a restart of the program is no
    /// loss of devices. `wanted` is `None` until the devices are known; `state` hears what happens.
    pub async fn run(
        mut self,
        mut wanted: watch::Receiver<Option<Pool>>,
        state: watch::Sender<PublishState>,
        stop: CancellationToken,
    ) {
        let mut events = Box::pin(self.watch());
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
        let mut retry_at: Option<Instant> = None;
        // Somebody who keeps undoing our writes, as another driver of this name would, is answered
        // ever more slowly.
        let mut contest = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
        let mut calm_at = Instant::now();
        let mut is_news = true;
        loop {
            let retry = async {
                match retry_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                changed = wanted.changed() => match changed {
                    Ok(()) => is_news = true,
                    Err(_) => return,
                },
                event = events.next() => match event {
                    Some(Ok(event)) => {
                        self.see(event);
                        if !is_news && Instant::now() < calm_at {
                            retry_at.get_or_insert(calm_at);
                            continue;
                        }
                    }
                    Some(Err(error)) => {
                        self.watch_failed(&error, &state);
                        continue;
                    }
                    None => return,
                },
                () = retry => {}
            }
            retry_at = None;
            let Some(pool) = wanted.borrow_and_update().clone() else { continue };
            if !self.is_listed {
                continue;
            }
            let writes = self.writes;
            let outcome = tokio::select! {
                () = stop.cancelled() => return,
                outcome = self.reconcile(&pool) => outcome,
            };
            match outcome {
                Ok(()) => {
                    backoff.reset();
                    if self.writes > writes && !is_news {
                        if calm_at.elapsed() > CALM {
                            contest.reset();
                        }
                        calm_at = Instant::now() + contest.next_delay();
                    }
                    is_news = false;
                    set(&state, PublishState::Published { writes: self.writes });
                }
                Err(error) => {
                    let delay = backoff.next_delay();
                    retry_at = Some(Instant::now() + delay);
                    let reason = explain(&error, &self.node);
                    tracing::warn!(node = %self.node, %reason, ?delay, "cannot publish devices");
                    set(&state, PublishState::Failing { reason });
                }
            }
        }
    }

    fn watch(&self) -> impl Stream<Item = watcher::Result<Event<ResourceSlice>>> + Send + use<> {
        let fields = format!("spec.nodeName={},spec.driver={}", self.node, self.driver);
        let config = watcher::Config::default().fields(&fields);
        watcher::watcher(Api::all(self.client.clone()), config).default_backoff()
    }

    fn see(&mut self, event: Event<ResourceSlice>) {
        let name = |slice: &ResourceSlice| slice.metadata.name.clone().unwrap_or_default();
        match event {
            Event::Init => self.relisted = Some(BTreeMap::new()),
            Event::InitApply(slice) => {
                self.relisted.get_or_insert_default().insert(name(&slice), slice);
            }
            Event::InitDone => {
                let relisted = self.relisted.take().unwrap_or_default();
                // Slices go with their node: the one that owns new ones may be another.
                if self.found.keys().any(|name| !relisted.contains_key(name)) {
                    self.owner = None;
                }
                self.found = relisted;
                self.is_listed = true;
            }
            // News that is older than our own last write would make us write again, in vain.
            Event::Apply(slice) => {
                let name = name(&slice);
                if self.found.get(&name).is_none_or(|known| version(&slice) >= version(known)) {
                    self.found.insert(name, slice);
                }
            }
            Event::Delete(slice) => {
                let name = name(&slice);
                if self.found.get(&name).is_some_and(|known| version(&slice) >= version(known)) {
                    self.found.remove(&name);
                    self.owner = None;
                }
            }
        }
    }

    fn watch_failed(&self, error: &watcher::Error, state: &watch::Sender<PublishState>) {
        // Watches end all the time, and are taken up again where they stood.
        tracing::debug!(node = %self.node, %error, "the watch of our slices was interrupted");
        if !self.is_listed {
            let reason = format!("cannot list our ResourceSlices: {error}");
            tracing::warn!(node = %self.node, %reason, "cannot publish devices");
            set(state, PublishState::Failing { reason });
        }
    }

    async fn reconcile(&mut self, pool: &Pool) -> Result<(), kube::Error> {
        let devices: Vec<Device> = pool.devices.iter().map(convert::device_to_api).collect();
        let owner = self.owner().await?;
        let wanted = Wanted {
            driver: &self.driver,
            node: &self.node,
            pool: &pool.name,
            devices: &devices,
            owner: &owner,
        };
        let writes = plan::plan(&wanted, &self.found, &self.settled);
        let api: Api<ResourceSlice> = Api::all(self.client.clone());
        for write in writes {
            self.write(&api, write).await?;
        }
        Ok(())
    }

    async fn write(&mut self, api: &Api<ResourceSlice>, write: Write) -> Result<(), kube::Error> {
        let (sent, kept) = match write {
            Write::Create(slice) => {
                let kept = api.create(&PostParams::default(), &slice).await?;
                (slice, kept)
            }
            Write::Replace(slice) => {
                let name = slice.metadata.name.clone().unwrap_or_default();
                let kept = api.replace(&name, &PostParams::default(), &slice).await?;
                (slice, kept)
            }
            Write::Delete(name) => {
                match api.delete(&name, &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => {}
                    other => drop(other?),
                }
                self.found.remove(&name);
                self.writes += 1;
                return Ok(());
            }
        };
        self.writes += 1;
        if self.settled.remember(&sent, &kept) {
            tracing::warn!(
                node = %self.node,
                slice = kept.metadata.name.as_deref().unwrap_or_default(),
                "the API server dropped fields of our devices: one of its DRA feature gates is off"
            );
        }
        self.found.insert(kept.metadata.name.clone().unwrap_or_default(), kept);
        Ok(())
    }

    /// The node owns its slices, so that they go when it goes.
    async fn owner(&mut self) -> Result<OwnerReference, kube::Error> {
        if let Some(owner) = &self.owner {
            return Ok(owner.clone());
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = nodes.get_metadata(&self.node).await?;
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.node.clone(),
            uid: node.metadata.uid.unwrap_or_default(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        self.owner = Some(owner.clone());
        Ok(owner)
    }
}

/// The resource version as the number that it is (KEP-5504); one that is none counts as newest.
fn version(slice: &ResourceSlice) -> u64 {
    let version = slice.metadata.resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or(u64::MAX)
}

/// Tells only of changes, so that readers wake for something.
fn set(state: &watch::Sender<PublishState>, new: PublishState) {
    state.send_if_modified(|old| {
        let is_changed = *old != new;
        *old = new;
        is_changed
    });
}

fn explain(error: &kube::Error, node: &str) -> String {
    match error {
        kube::Error::Api(status) if status.is_forbidden() => format!(
            "the API server does not let this agent publish the devices of node {node}: {}; its \
             service account needs the chart's role and a token that is bound to this node",
            status.message
        ),
        kube::Error::Api(status) if status.is_not_found() => {
            format!(
                "the API server does not know node {node} or resource.k8s.io/v1: {}",
                status.message
            )
        }
        kube::Error::Api(status) => format!("the API server refused: {}", status.message),
        other => format!("the API server cannot be reached: {other}"),
    }
}

#[cfg(test)]
mod tests;
