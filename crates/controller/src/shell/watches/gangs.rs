//! The watch of objects that announce gangs. A kind that the server does not serve, or that may not be read, has none.

use std::collections::BTreeMap;

use kube::Client;
use octavo_kube_io::objects::{Change as ObjectChange, Delta, WatchedObject};
use octavo_kube_io::watch::{WatchEvent, WatchOptions, watch_wanted};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::gangs::{GangKind, kinds};
use crate::store::{self, Change, Key, Kind, Observed};

/// Gangs that were seen, by what announces them.
type Seen = BTreeMap<GangKind, BTreeMap<Key, Observed>>;

/// Sends changes until `stop`.
pub(super) async fn watch(client: Client, sender: mpsc::Sender<Change>, stop: CancellationToken) {
    let forward = async {
        let options = WatchOptions { kinds: kinds(), ..WatchOptions::default() };
        let mut watches = watch_wanted(&client, options);
        let mut seen = Seen::new();
        while let Some(event) = watches.events.recv().await {
            let changes = match event {
                WatchEvent::Change(ObjectChange::Object(delta)) => changes(&mut seen, delta),
                // The lists of all kinds have been sent: what an earlier process knew is not here.
                WatchEvent::Synced => vec![Change::End(Kind::Gang)],
                WatchEvent::Change(_) | WatchEvent::FreshAsOf(_) => Vec::new(),
            };
            for change in changes {
                if sender.send(change).await.is_err() {
                    return;
                }
            }
        }
    };
    stop.run_until_cancelled(forward).await;
}

fn changes(seen: &mut Seen, delta: Delta<WatchedObject>) -> Vec<Change> {
    match delta {
        Delta::Upsert(object) => put(seen, &object).into_iter().collect(),
        Delta::Delete(object) => {
            let observed = store::gang(&object);
            let observed = observed.inspect(|observed| {
                for of_kind in seen.values_mut() {
                    of_kind.remove(&observed.key);
                }
            });
            observed.map(Change::Gone).into_iter().collect()
        }
        Delta::Replace(kind, objects) => {
            let Some(kind) = GangKind::of(&kind.api_version, &kind.kind) else {
                return Vec::new();
            };
            let mut before = seen.remove(&kind).unwrap_or_default();
            let mut changes: Vec<Change> =
                objects.iter().filter_map(|object| put(seen, object)).collect();
            for key in seen.get(&kind).into_iter().flat_map(BTreeMap::keys) {
                before.remove(key);
            }
            changes.extend(before.into_values().map(Change::Gone));
            changes
        }
    }
}

fn put(seen: &mut Seen, object: &WatchedObject) -> Option<Change> {
    let observed = store::gang(object)?;
    let kind = GangKind::of(&object.api_version, &object.kind)?;
    seen.entry(kind).or_default().insert(observed.key.clone(), observed.clone());
    Some(Change::Put(observed))
}
