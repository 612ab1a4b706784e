//! Watches of policies, nodes and their health.

use std::fmt::Debug;

use futures::Stream;
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use octavo_api::{HealthPolicy, Maintenance};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::health::facts::{self, Change, Fact, Kind, SeenHealth};
use crate::shell::watches::{PAGE, forward};
use crate::store::SeenNode;

/// Changes that wait for a round.
const CAPACITY: usize = 1024;

/// Watches all kinds until `stop`. An object becomes facts at once and is dropped.
pub(super) fn watch(client: &Client, stop: &CancellationToken) -> mpsc::Receiver<Change> {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    // Read as they are: an object that this version cannot read stops no watch.
    let policies: Api<DynamicObject> =
        Api::all_with(client.clone(), &ApiResource::erase::<HealthPolicy>(&()));
    let healths: Api<SeenHealth> = Api::all(client.clone());
    let maintenances: Api<DynamicObject> =
        Api::all_with(client.clone(), &ApiResource::erase::<Maintenance>(&()));
    let nodes: Api<SeenNode> = Api::all(client.clone());
    let all = || watcher::Config::default().page_size(PAGE);
    let policies = watcher(policies, all());
    start(Kind::Policy, policies, |object| facts::policy(&object), &sender, stop);
    let nodes = watcher(nodes, all());
    start(Kind::Node, nodes, |object| facts::node(&object), &sender, stop);
    start(Kind::Health, watcher(healths, all()), facts::health, &sender, stop);
    let maintenances = watcher(maintenances, all());
    start(Kind::Maintenance, maintenances, |object| facts::maintenance(&object), &sender, stop);
    receiver
}

fn start<K: Resource + Debug + Send + 'static>(
    kind: Kind,
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    fact: impl Fn(K) -> Fact + Send + 'static,
    sender: &mpsc::Sender<Change>,
    stop: &CancellationToken,
) {
    let change = move |event: watcher::Result<Event<K>>| {
        Some(match event {
            Ok(Event::Init) => Change::Begin(kind),
            Ok(Event::InitDone) => Change::End(kind),
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                Change::Put(object.name_any(), fact(object))
            }
            Ok(Event::Delete(object)) => Change::Gone(kind, object.name_any()),
            // It is listed again before anything else comes, so this ends.
            Err(watcher::Error::InitialListFailed(kube::Error::Api(status)))
                if matches!(status.code, 403 | 404) =>
            {
                Change::Unserved(kind)
            }
            Err(_) => return None,
        })
    };
    forward(kind, events, change, sender.clone(), stop);
}
