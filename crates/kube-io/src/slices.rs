//! A node's `ResourceSlices`: published, and kept as they should be.
//!
//! [`Publisher`] watches the slices of one driver on one node, and nothing else. It writes when
//! what the API has differs from what is wanted: when devices or their health change, and when
//! somebody deletes or edits a slice (the kubelet deletes them when a driver was away for long). A
//! start that finds what it wants writes nothing.
//!
//! Older API servers drop fields without a word. What they keep is asked before devices are offered
//! that depend on it, and read back after every write; see [`Feature`].

mod convert;
#[cfg(test)]
mod fake_api;
mod features;
mod plan;
mod probe;
mod reconcile;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Backoff;
use features::Features;
use plan::{ObservedSlice, ServerMutations};

pub use features::Feature;

pub use convert::{SliceError, from_api, node_selector_from_api, node_selector_to_api, to_api};

/// After how long without one a contest over the slices is over.
const CONTEST_RESET_DELAY: Duration = Duration::from_mins(1);
/// How often an API server that drops fields is asked whether it keeps them now.
const FEATURE_RECHECK_INTERVAL: Duration = Duration::from_hours(1);

/// The devices that a driver has on a node. Its slices are cut and numbered by the publisher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Name of the pool: the node's, for devices that are part of a node.
    pub name: String,
    /// Counter sets that the devices draw from.
    pub counters: Vec<octavo_dra::CounterSet>,
    /// The devices, in the order in which an allocator should try them.
    pub devices: Vec<octavo_dra::Device>,
    /// What is published instead where the API server keeps no counters: devices that need none to
    /// exclude one another. Not looked at if nothing takes counters.
    pub plain: Vec<octavo_dra::Device>,
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
        /// What the API server drops of it, so that less is offered than there is.
        missing: BTreeSet<Feature>,
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
    found: BTreeMap<String, ObservedSlice>,
    relisted: Option<BTreeMap<String, ObservedSlice>>,
    /// Names that slices of others have.
    taken: BTreeSet<String>,
    is_listed: bool,
    owner: Option<OwnerReference>,
    server_mutations: ServerMutations,
    features: Features,
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
            taken: BTreeSet::new(),
            is_listed: false,
            owner: None,
            server_mutations: ServerMutations::default(),
            features: Features::default(),
            writes: 0,
        }
    }

    /// Publishes until `stop`, which leaves the slices as they are: a restart of the program is no
    /// loss of devices. `wanted` is `None` until the devices are known; `state` hears what happens.
    pub async fn run(
        mut self,
        mut wanted: watch::Receiver<Option<Arc<Pool>>>,
        state: watch::Sender<PublishState>,
        stop: CancellationToken,
    ) {
        let mut events = Box::pin(self.watch());
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
        // A server that has too much to do is left alone for longer, and above all not asked by all
        // agents of a cluster within the same tenth of a second.
        let mut overload_backoff = Backoff::new(Duration::from_secs(4), Duration::from_mins(1));
        let mut retry_at: Option<Instant> = None;
        let mut rechecks_features = false;
        // What we write is news as well: news that did not wait for this would have the slices
        // before a refused one written again and again.
        let mut failed_until: Option<Instant> = None;
        // Somebody who keeps undoing our writes, as another driver of this name would, is answered
        // ever more slowly.
        let mut contest_backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
        let mut contest_over_at = Instant::now();
        let mut has_new_input = true;
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
                    Ok(()) => (has_new_input, failed_until) = (true, None),
                    Err(_) => return,
                },
                event = events.next() => match event {
                    Some(Ok(event)) => {
                        self.apply(event);
                        let wait_until = failed_until.max((!has_new_input).then_some(contest_over_at));
                        if let Some(at) = wait_until.filter(|at| *at > Instant::now()) {
                            (retry_at, rechecks_features) = (Some(at), false);
                            continue;
                        }
                    }
                    Some(Err(error)) => {
                        self.watch_failed(&error, &state);
                        continue;
                    }
                    None => return,
                },
                () = retry => {
                    if rechecks_features {
                        self.features.forget_features();
                    }
                }
            }
            (retry_at, rechecks_features) = (None, false);
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
                    overload_backoff.reset();
                    failed_until = None;
                    if self.writes > writes && !has_new_input {
                        if contest_over_at.elapsed() > CONTEST_RESET_DELAY {
                            contest_backoff.reset();
                        }
                        contest_over_at = Instant::now() + contest_backoff.next_delay();
                    }
                    has_new_input = false;
                    let missing = self.features.missing(&pool);
                    if !missing.is_empty() {
                        (retry_at, rechecks_features) =
                            (Some(Instant::now() + FEATURE_RECHECK_INTERVAL), true);
                    }
                    set(&state, PublishState::Published { writes: self.writes, missing });
                }
                Err(error) => {
                    let mut delay = backoff.next_delay();
                    if is_overloaded(&error) {
                        delay = delay.max(overload_backoff.next_delay());
                    }
                    failed_until = Some(Instant::now() + delay);
                    retry_at = failed_until;
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

    fn apply(&mut self, event: Event<ResourceSlice>) {
        match event {
            Event::Init => self.relisted = Some(BTreeMap::new()),
            Event::InitApply(slice) => {
                self.relisted
                    .get_or_insert_default()
                    .insert(name(&slice), ObservedSlice::of(&slice));
            }
            Event::InitDone => {
                let relisted = self.relisted.take().unwrap_or_default();
                // Slices go with their node: the one that owns new ones may be another.
                if self.found.keys().any(|name| !relisted.contains_key(name)) {
                    self.owner = None;
                }
                self.found = relisted;
                // The server may have been another, or of another release, since it was asked.
                if self.is_listed {
                    self.features.forget_features();
                }
                self.is_listed = true;
            }
            Event::Apply(slice) => self.note(&slice),
            Event::Delete(slice) => {
                let (name, gone) = (name(&slice), ObservedSlice::of(&slice));
                if self.found.get(&name).is_some_and(|known| gone.version() >= known.version()) {
                    self.found.remove(&name);
                    self.owner = None;
                }
            }
        }
    }

    /// Takes note of a slice that is there. News that is older than our own last write would make us
    /// write again, in vain.
    fn note(&mut self, slice: &ResourceSlice) {
        let (name, new) = (name(slice), ObservedSlice::of(slice));
        if self.found.get(&name).is_none_or(|known| new.version() >= known.version()) {
            self.found.insert(name, new);
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
}

fn name(slice: &ResourceSlice) -> String {
    slice.metadata.name.clone().unwrap_or_default()
}

/// Tells only of changes, so that readers wake for something.
fn set(state: &watch::Sender<PublishState>, new: PublishState) {
    state.send_if_modified(|old| {
        let is_changed = *old != new;
        *old = new;
        is_changed
    });
}

/// Whether the server said that it has too much to do, or did not answer in time.
fn is_overloaded(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 429 | 503 | 504),
        kube::Error::Service(error) => error.is::<tower::timeout::error::Elapsed>(),
        _ => false,
    }
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
        other if is_overloaded(other) => {
            format!("the API server did not answer in time, as one with too much to do: {other}")
        }
        other => format!("the API server cannot be reached: {other}"),
    }
}

#[cfg(test)]
mod tests;
