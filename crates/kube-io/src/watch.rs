//! The watches of a scheduler as one bounded stream of [`Change`]s.
//!
//! Each kind has its own task. It lists in pages, then watches from the version of the list, until
//! the receiver is dropped. Ends of watches, bookmarks and expired versions (410) are routine and
//! not reported. The next list ([`Delta::Replace`]) contains what an interrupted watch missed.
//! Changes of one object arrive in the server's order. **Between kinds there is no order**: a pod
//! may arrive before the claim that it names, or a binding before its node.
//!
//! A slow receiver delays the reading until the server ends the watch. The list that follows
//! delivers the current state, so memory stays bounded and only intermediate states are lost.
//!
//! A watch cannot tell that it lags. A caller that needs all writes before some moment requests
//! lists of pods and claims that started no earlier ([`Relist`]), and waits for
//! [`WatchEvent::FreshAsOf`].
//!
//! `kube::runtime::watcher` does not serve here for these reasons:
//!
//! - It hides bookmarks. Without them a quiet watch cannot be told from a dead one.
//! - It lists again only after an error, not on request.
//! - Its types must hold an `ObjectMeta`. The trimmed types here drop most of it, `managedFields`
//!   above all, while reading.
//!
//! One unreadable object would not be a reason: `kube::core::DeserializeGuard` keeps it from
//! failing the whole list.

mod discovery;
mod health;
mod list_watch;
mod read;
mod relist;
mod resource;
mod sender;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::objects::{Change, Delta, WatchedType};
pub use health::{KindHealth, WatchHealth};
use list_watch::{Source, run_list_watch};
pub use relist::Relist;
use resource::Resource;
use sender::{KindSender, PendingFirstLists};

/// The watched kinds and the limits of the stream.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Kinds that a server may not serve: pod groups, workloads, policies.
    pub kinds: Vec<WantedKind>,
    /// Capacity of the stream in events; reading pauses when it is full. 1024 by default.
    pub capacity: usize,
    /// Limit of objects in a page of a list. 500 by default.
    pub page: u32,
    /// How often a kind that is not served is looked up again. 30 s by default.
    pub rediscovery: Duration,
}

/// A kind that a server may not serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedKind {
    /// API group; empty for the core.
    pub group: String,
    /// Versions in order of preference. The first served one is watched; the choice is made again
    /// when it disappears.
    pub versions: Vec<String>,
    /// Kind.
    pub kind: String,
    /// Label selector of the watched objects, if any.
    pub labels: Option<String>,
}

/// An event of the watches.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// An object changed, or a list arrived.
    Change(Change),
    /// The first lists of all kinds have been sent. Sent once. A kind that is not served has an
    /// empty list, and so does one of [`WatchOptions::kinds`] that is forbidden.
    Synced,
    /// All writes of pods and claims before this instant have been sent: the oldest of their last
    /// lists started then. Sent after each list of these kinds. It stays true, and an earlier
    /// instant may follow a later one.
    FreshAsOf(Instant),
}

/// Running watches.
#[derive(Debug)]
pub struct Watches {
    /// Their events. The watches end when it is dropped.
    pub events: mpsc::Receiver<WatchEvent>,
    /// Their health.
    pub health: WatchHealth,
    /// Requests lists of pods and claims on demand.
    pub relist: Relist,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { kinds: Vec::new(), capacity: 1024, page: 500, rediscovery: Duration::from_secs(30) }
    }
}

/// Starts the watches. They end when the receiver of events is dropped.
///
/// No answer of the server ends them: failed requests are retried with backoff, and [`WatchHealth`]
/// and the log name the problem. Must be called in a tokio runtime.
pub fn watch(client: &Client, options: WatchOptions) -> Watches {
    let (starter, receiver) = Starter::new(client, options, resource::ALWAYS_WATCHED);
    starter.start("", "v1", "Pod", "pods", Change::Pod);
    starter.start("", "v1", "Node", "nodes", Change::Node);
    starter.start("", "v1", "Namespace", "namespaces", Change::Namespace);
    starter.start("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", Change::VolumeClaim);
    starter.start("", "v1", "PersistentVolume", "persistentvolumes", Change::Volume);
    let dra = "resource.k8s.io";
    starter.start(dra, "v1", "ResourceSlice", "resourceslices", Change::Slice);
    starter.start(dra, "v1", "ResourceClaim", "resourceclaims", Change::Claim);
    starter.start(dra, "v1", "DeviceClass", "deviceclasses", Change::Class);
    let storage = "storage.k8s.io";
    starter.start(storage, "v1", "StorageClass", "storageclasses", Change::StorageClass);
    starter.start(storage, "v1", "CSINode", "csinodes", Change::CsiNode);
    starter.start(storage, "v1", "CSIDriver", "csidrivers", Change::CsiDriver);
    let capacities = "csistoragecapacities";
    starter.start(storage, "v1", "CSIStorageCapacity", capacities, Change::CsiCapacity);
    starter.start("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", Change::Budget);
    starter.start_wanted();
    Watches { events: receiver, health: starter.health, relist: starter.relist }
}

/// Starts watches of [`WatchOptions::kinds`] alone: for programs that need no more.
pub fn watch_wanted(client: &Client, options: WatchOptions) -> Watches {
    let (starter, receiver) = Starter::new(client, options, 0);
    starter.start_wanted();
    Watches { events: receiver, health: starter.health, relist: starter.relist }
}

struct Starter {
    client: Client,
    sender: mpsc::Sender<WatchEvent>,
    health: WatchHealth,
    relist: Relist,
    first: Arc<PendingFirstLists>,
    options: WatchOptions,
}

impl Starter {
    /// For the wanted kinds and some that are always watched.
    fn new(
        client: &Client,
        options: WatchOptions,
        always: usize,
    ) -> (Self, mpsc::Receiver<WatchEvent>) {
        let (sender, receiver) = mpsc::channel(options.capacity.max(1));
        let starter = Self {
            client: client.clone(),
            sender,
            health: WatchHealth::default(),
            relist: Relist::default(),
            first: Arc::new(PendingFirstLists::new(always + options.kinds.len())),
            options,
        };
        (starter, receiver)
    }

    fn start_wanted(&self) {
        for wanted in &self.options.kinds {
            self.spawn(Source::Wanted(wanted.clone()), Change::Object);
        }
    }

    fn start<T: WatchedType>(
        &self,
        group: &str,
        version: &str,
        kind: &str,
        plural: &str,
        wrap: fn(Delta<T>) -> Change,
    ) {
        self.spawn(Source::Fixed(Resource::new(group, version, kind, plural)), wrap);
    }

    fn spawn<T: WatchedType>(&self, source: Source, wrap: fn(Delta<T>) -> Change) {
        let health = self.health.of(&source.kind());
        let (relist_requests, freshness) = match &source {
            Source::Fixed(resource) => self.relist.for_kind(&resource.kind),
            Source::Wanted(_) => Relist::for_other_kinds(),
        };
        let kind_sender =
            KindSender::new(self.sender.clone(), wrap, health, Arc::clone(&self.first), freshness);
        let (client, options) = (self.client.clone(), self.options.clone());
        let sender = self.sender.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = sender.closed() => {}
                () = run_list_watch(client, source, kind_sender, relist_requests, options) => {}
            }
        });
    }
}
