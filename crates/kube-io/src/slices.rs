//! Publishes a node's `ResourceSlices` and reconciles them.
//!
//! [`Publisher`] watches only the slices of one driver on one node. It writes when they differ from
//! the wanted ones: when devices or their health change, and when others delete or edit a slice.
//! (The kubelet deletes slices of drivers that are absent for long.) A start that finds the wanted
//! slices writes nothing.
//!
//! API servers drop the fields of features that are off without an error. The publisher therefore
//! probes which fields the server keeps before it offers devices that depend on them, and reads
//! back every write; see [`Feature`].

mod convert;
mod features;
mod plan;
mod probe;
mod reconcile;
#[cfg(test)]
mod slice_api;

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

/// Time without foreign edits after which the backoff against them is reset.
const CONTEST_RESET_DELAY: Duration = Duration::from_mins(1);
/// How often an API server that drops fields is probed again.
const FEATURE_RECHECK_INTERVAL: Duration = Duration::from_hours(1);

/// The devices of a driver on a node. The publisher divides them into slices and numbers these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Name of the pool: the node's name for devices local to a node.
    pub name: String,
    /// Counter sets that the devices draw from.
    pub counters: Vec<octavo_dra::CounterSet>,
    /// The devices, in search order for allocators.
    pub devices: Vec<octavo_dra::Device>,
    /// The devices for API servers that drop counters. They exclude one another without counters.
    /// Ignored if no device takes counters.
    pub plain: Vec<octavo_dra::Device>,
}

/// State of publishing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishState {
    /// The wanted or the existing slices are not known yet.
    Waiting,
    /// The API has the wanted slices.
    Published {
        /// Number of writes since the start.
        writes: u64,
        /// Features that the API server drops, so that fewer devices or powers are offered.
        missing: BTreeSet<Feature>,
    },
    /// The last attempt failed; it is retried.
    Failing {
        /// The reason, for people.
        reason: String,
    },
}

/// Reconciles the slices of one driver on one node.
pub struct Publisher {
    client: Client,
    driver: String,
    node: String,
    found: BTreeMap<String, ObservedSlice>,
    relisted: Option<BTreeMap<String, ObservedSlice>>,
    /// Names of foreign slices.
    taken: BTreeSet<String>,
    is_listed: bool,
    owner: Option<OwnerReference>,
    server_mutations: ServerMutations,
    features: Features,
    writes: u64,
}

impl Publisher {
    /// A publisher for the slices of `driver` on `node`. It does nothing until it runs.
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

    /// Publishes until `stop`, which keeps the slices, so that a restart of the program loses no
    /// devices. `wanted` is `None` until the devices are known. `state` receives each change of
    /// state.
    pub async fn run(
        mut self,
        mut wanted: watch::Receiver<Option<Arc<Pool>>>,
        state: watch::Sender<PublishState>,
        stop: CancellationToken,
    ) {
        let mut events = Box::pin(self.watch());
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
        // An overloaded server gets longer pauses, and the jitter keeps the agents of a cluster
        // from retrying within the same tenth of a second.
        let mut overload_backoff = Backoff::new(Duration::from_secs(4), Duration::from_mins(1));
        let mut retry_at: Option<Instant> = None;
        let mut rechecks_features = false;
        // Our own writes cause watch events, too. Without this deadline an event would write the
        // slices before a rejected one again and again.
        let mut failed_until: Option<Instant> = None;
        // Repeated foreign edits, such as those of another driver with this name, are reverted with
        // growing backoff.
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
                // Slices are deleted with their node, so a new node may have to own new ones.
                if self.found.keys().any(|name| !relisted.contains_key(name)) {
                    self.owner = None;
                }
                self.found = relisted;
                // The API server may have changed or been upgraded since the last probe.
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

    /// Records a slice. Events older than our own last write are ignored; they would cause a
    /// needless write.
    fn note(&mut self, slice: &ResourceSlice) {
        let (name, new) = (name(slice), ObservedSlice::of(slice));
        if self.found.get(&name).is_none_or(|known| new.version() >= known.version()) {
            self.found.insert(name, new);
        }
    }

    fn watch_failed(&self, error: &watcher::Error, state: &watch::Sender<PublishState>) {
        // Watches end regularly and resume where they stopped.
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

/// Sends only changes, so that receivers do not wake in vain.
fn set(state: &watch::Sender<PublishState>, new: PublishState) {
    state.send_if_modified(|old| {
        let is_changed = *old != new;
        *old = new;
        is_changed
    });
}

/// Whether the server reported overload or did not answer in time.
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
        kube::Error::Api(status) => {
            format!("the API server rejected the request: {}", status.message)
        }
        other if is_overloaded(other) => {
            format!("the API server did not answer in time and may be overloaded: {other}")
        }
        other => format!("the API server cannot be reached: {other}"),
    }
}

#[cfg(test)]
mod tests;
