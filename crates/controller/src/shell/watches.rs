//! Watches of all kinds, as changes of the store.

mod gangs;

use std::fmt::Debug;

use futures::{Stream, StreamExt};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use octavo_api::names::LABEL_COMPUTE_DOMAIN;
use octavo_api::{ComputeDomain, ComputeDomainClique};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::store::{self, Change, Kind, Observed, SeenNode};

/// Changes that wait for the loop.
const CAPACITY: usize = 1024;

/// Large objects of a page of a list. All of a page are in memory at once, with the managed fields of each.
pub(super) const PAGE: u32 = 50;

/// Watches all kinds until `stop`. An object becomes facts at once and is dropped. Others may send changes, too.
pub(super) fn watch(
    client: &Client,
    config: &Config,
    stop: &CancellationToken,
) -> (mpsc::Sender<Change>, mpsc::Receiver<Change>) {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    let namespace = &config.namespace;
    let all = watcher::Config::default;
    let labelled = || all().labels(LABEL_COMPUTE_DOMAIN);
    let start = Start { sender: sender.clone(), stop };
    let domains: Api<ComputeDomain> = Api::all(client.clone());
    start.kind(Kind::Domain, watcher(domains, all()), store::domain);
    let claims: Api<ResourceClaim> = Api::all(client.clone());
    start.kind(Kind::Claim, watcher(claims, all()), |claim| store::claim(&claim));
    let nodes: Api<SeenNode> = Api::all(client.clone());
    let nodes = watcher(nodes, all().page_size(PAGE));
    start.kind(Kind::Node, nodes, |node| store::node(&node));
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    start.kind(Kind::Pod, watcher(pods, labelled()), |pod| store::pod(&pod));
    // All of them: one without labels is labelled.
    let cliques: Api<ComputeDomainClique> = Api::namespaced(client.clone(), namespace);
    start.kind(Kind::Clique, watcher(cliques, all()), store::clique);
    // All of them: a template of another owner may have the name of a domain's, and leave it.
    let templates: Api<PartialObjectMeta<ResourceClaimTemplate>> = Api::all(client.clone());
    start.kind(Kind::Template, watcher(templates, all()), |object| store::template(&object));
    let sets: Api<PartialObjectMeta<DaemonSet>> = Api::namespaced(client.clone(), namespace);
    start.kind(Kind::DaemonSet, watcher(sets, labelled()), |object| store::daemon_set(&object));
    if config.imex.encryption {
        // Names and labels of all of them, without their content: one of another owner may have the name of a domain's.
        let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), namespace);
        start.kind(Kind::Secret, watcher(secrets, all()), |object| store::secret(&object));
    } else {
        // There is no right to read them. The channel has room.
        let _ = sender.try_send(Change::End(Kind::Secret));
    }
    tokio::spawn(gangs::watch(client.clone(), sender.clone(), stop.clone()));
    (sender, receiver)
}

struct Start<'a> {
    sender: mpsc::Sender<Change>,
    stop: &'a CancellationToken,
}

impl Start<'_> {
    fn kind<K: Debug + Send + 'static>(
        &self,
        kind: Kind,
        events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
        fact: impl Fn(K) -> Observed + Send + 'static,
    ) {
        let change = move |event: watcher::Result<Event<K>>| Some(change(kind, event.ok()?, &fact));
        forward(kind, events, change, self.sender.clone(), self.stop);
    }
}

/// Sends what a watch sees as changes until `stop`. The watch is tried on whatever fails. `change` may make a change of an error, too.
pub(super) fn forward<K: Debug + Send + 'static, C: Send + 'static>(
    kind: impl Debug + Send + 'static,
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    change: impl Fn(watcher::Result<Event<K>>) -> Option<C> + Send + 'static,
    sender: mpsc::Sender<C>,
    stop: &CancellationToken,
) {
    let stop = stop.clone();
    let forward = async move {
        let mut events = std::pin::pin!(events.default_backoff());
        let mut problem = None;
        while let Some(event) = events.next().await {
            match &event {
                Ok(_) => problem = None,
                Err(error) => report(&kind, error, &mut problem),
            }
            let Some(change) = change(event) else { continue };
            if sender.send(change).await.is_err() {
                return;
            }
        }
    };
    tokio::spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = forward => {}
        }
    });
}

fn change<K>(kind: Kind, event: Event<K>, fact: impl Fn(K) -> Observed) -> Change {
    match event {
        Event::Init => Change::Begin(kind),
        Event::InitDone => Change::End(kind),
        Event::Apply(object) | Event::InitApply(object) => Change::Put(fact(object)),
        Event::Delete(object) => Change::Gone(fact(object)),
    }
}

/// Logs a problem once.
fn report(kind: &impl Debug, error: &watcher::Error, problem: &mut Option<String>) {
    let text = error.to_string();
    if problem.as_ref() != Some(&text) {
        tracing::warn!(?kind, error = %text, "cannot watch; it is tried again");
        *problem = Some(text);
    }
}
