//! All that a scheduler watches, as one bounded stream of [`Change`]s.
//!
//! Each kind has a task of its own: a list in pages, then a watch from where the list ended, for as
//! long as anybody receives. Ends of watches, bookmarks and versions that have expired (410) are
//! routine and said to nobody; what went while a watch was interrupted is told by the next list
//! ([`Delta::Replace`]). The order of changes of one object is that of the
//! server; **between kinds there is no order**: a pod may be told before the claim that it names, or a
//! binding before its node.
//!
//! Who receives too slowly holds up the reading, in the end the server ends the watch, and the list
//! that follows tells what was missed: memory stays bounded, and nothing is lost but steps in between.
//!
//! A watch cannot say that it lags. Who must know what others wrote before a moment asks for lists of
//! pods and claims that began no earlier ([`Relist`]), and waits for [`WatchEvent::FreshAsOf`].
//!
//! This does not stand on `kube::runtime::watcher`, for three reasons: there one object that cannot be
//! read keeps the whole list from being had; bookmarks cannot be seen, without which a quiet watch
//! looks like a dead one; and each object would be read into types that keep what nobody needs.

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

/// What is watched and how.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Kinds that may or may not be served: pod groups, workloads, policies.
    pub kinds: Vec<WantedKind>,
    /// How many news may wait before the reading stops. 1024 by default.
    pub capacity: usize,
    /// How many objects a page of a list has at most. 500 by default.
    pub page: u32,
    /// How often a kind that is not served is looked for. 30 s by default.
    pub rediscovery: Duration,
}

/// A kind that may or may not be served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedKind {
    /// API group; empty for the core.
    pub group: String,
    /// Versions, the best first: the first that is served is watched. Which one that is is asked anew
    /// when it can no longer be had.
    pub versions: Vec<String>,
    /// Kind.
    pub kind: String,
    /// Only objects that this label selector selects, if there is one.
    pub labels: Option<String>,
}

/// What the watches tell.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// Something has changed.
    Change(Change),
    /// Every kind has had its first list, and all of it was told before: told once. A kind that is not
    /// served has an empty list; so has one of [`WatchOptions::kinds`] that may not be read.
    Synced,
    /// All that was written of pods and claims before this moment was told: the oldest of their last lists
    /// began then. Told after each list of these kinds, and it stays true; an earlier moment may be told
    /// after a later one.
    FreshAsOf(Instant),
}

/// Watches that have begun.
#[derive(Debug)]
pub struct Watches {
    /// What they tell. They end when it is dropped.
    pub events: mpsc::Receiver<WatchEvent>,
    /// How they fare.
    pub health: WatchHealth,
    /// Asks for lists that are not older than a moment.
    pub relist: Relist,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { kinds: Vec::new(), capacity: 1024, page: 500, rediscovery: Duration::from_secs(30) }
    }
}

/// Begins to watch. It ends when the receiver of news is dropped.
///
/// Nothing that the server answers ends it: what cannot be had is asked for again, ever less often,
/// and [`WatchHealth`] and the log say what stands in the way. Must be called in a tokio runtime.
pub fn watch(client: &Client, options: WatchOptions) -> Watches {
    let (sender, receiver) = mpsc::channel(options.capacity.max(1));
    let first = Arc::new(PendingFirstLists::new(resource::ALWAYS_WATCHED + options.kinds.len()));
    let starter = Starter {
        client: client.clone(),
        sender,
        health: WatchHealth::default(),
        relist: Relist::default(),
        first,
        options,
    };
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
    starter.start("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", Change::Budget);
    for wanted in &starter.options.kinds {
        starter.spawn(Source::Wanted(wanted.clone()), Change::Object);
    }
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
