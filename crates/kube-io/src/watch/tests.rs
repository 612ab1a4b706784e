//! Lists and watches with a server in memory.

mod dynamic;
mod gaps;
mod relist;

use std::sync::Arc;
use std::time::Duration;

use octavo_testkit::{FakeApi, eventually};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Relist, WatchEvent, WatchHealth, WatchOptions, Watches, watch};
use crate::objects::{Change, Delta, Kind, Pod};

const PODS: &str = "/api/v1/pods";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// A watch under test. The clock stops while a task can run.
struct Watched {
    events: mpsc::Receiver<WatchEvent>,
    health: WatchHealth,
    relist: Relist,
}

impl Watched {
    fn new(server: &FakeApi, options: WatchOptions) -> Self {
        let Watches { events, health, relist } = watch(&server.client(), options);
        Self { events, health, relist }
    }

    /// Starts the watches and reads until all first lists have arrived; returns the events of pods.
    async fn begin(server: &FakeApi, options: WatchOptions) -> (Self, Vec<String>) {
        let mut watched = Self::new(server, options);
        let mut delivered = Vec::new();
        loop {
            match watched.next().await {
                WatchEvent::Synced => return (watched, delivered),
                WatchEvent::Change(change) => delivered.extend(words(&change)),
                WatchEvent::FreshAsOf(_) => {}
            }
        }
    }

    async fn next(&mut self) -> WatchEvent {
        let next = timeout(Duration::from_hours(1), self.events.recv()).await;
        next.expect("something should be delivered").expect("it should not end")
    }

    /// The next event of pods and of objects of unknown kinds, as text.
    async fn delivered(&mut self) -> String {
        loop {
            if let WatchEvent::Change(change) = self.next().await
                && let Some(words) = words(&change)
            {
                return words;
            }
        }
    }

    /// Waits for a condition.
    async fn until(&self, what: impl Fn(&WatchHealth) -> bool) {
        eventually("health", || what(&self.health)).await;
    }

    fn pods(&self) -> super::KindHealth {
        self.health.kinds()[&Kind::new("v1", "Pod")].clone()
    }
}

fn words(change: &Change) -> Option<String> {
    fn of<T>(delta: &Delta<T>, name: impl Fn(&T) -> String) -> String {
        match delta {
            Delta::Upsert(one) => format!("set {}", name(one)),
            Delta::Delete(one) => format!("gone {}", name(one)),
            Delta::Replace(kind, all) => {
                let names: Vec<_> = all.iter().map(|one| name(one)).collect();
                format!("all {kind}: {}", names.join(" ")).trim_end().to_owned()
            }
        }
    }
    match change {
        Change::Pod(delta) => Some(of(delta, |pod: &Pod| pod.meta.name.name.to_string())),
        Change::Object(delta) => Some(of(delta, |object| object.meta.name.name.to_string())),
        _ => None,
    }
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"namespace": "team", "name": name, "uid": name}, "spec": {"containers": []}})
}

#[tokio::test(start_paused = true)]
async fn every_kind_is_listed_before_synced() {
    let server = FakeApi::default();
    server.put(PODS, pod("a"));
    server.put(PODS, pod("b"));
    let (mut watched, delivered) = Watched::begin(&server, WatchOptions::default()).await;
    assert_eq!(delivered, ["all v1 Pod: a b"]);
    assert!(watched.health.is_synced());
    assert_eq!(watched.health.kinds().len(), super::resource::ALWAYS_WATCHED);
    server.put(PODS, pod("c"));
    server.put(PODS, pod("a"));
    server.delete(PODS, "team", "b");
    assert_eq!(watched.delivered().await, "set c");
    assert_eq!(watched.delivered().await, "set a");
    assert_eq!(watched.delivered().await, "gone b");
    let health = watched.pods();
    assert_eq!((health.version.as_str(), health.lists, health.changes), ("5", 1, 3));
    assert_eq!(watched.health.problems(), []);
}

#[tokio::test(start_paused = true)]
async fn a_slow_receiver_holds_up_the_watch_and_loses_nothing() {
    let server = FakeApi::default();
    let options = WatchOptions { capacity: 1, ..WatchOptions::default() };
    let (mut watched, _) = Watched::begin(&server, options).await;
    for number in 0..100 {
        server.put(PODS, pod(&number.to_string()));
    }
    for number in 0..100 {
        assert_eq!(watched.delivered().await, format!("set {number}"));
    }
}

#[tokio::test(start_paused = true)]
async fn watches_end_with_their_receiver() {
    let server = FakeApi::default();
    let (watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    let watches = async {
        while server.watchers(PODS) != 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_hours(1), watches).await.expect("it should watch");
    drop(watched.events);
    let ended = async {
        while server.watchers(PODS) + server.watchers(SLICES) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_mins(1), ended).await.expect("it should stop");
    let requests = server.requests().len();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(server.requests().len(), requests);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_passed_over_and_counted() {
    let server = FakeApi::default();
    server.put(PODS, pod("good"));
    let mut bad = pod("bad");
    bad["spec"]["containers"] = json!("none");
    server.put(PODS, bad.clone());
    let (mut watched, delivered) = Watched::begin(&server, WatchOptions::default()).await;
    assert_eq!(delivered, ["all v1 Pod: good"]);
    assert_eq!(watched.pods().skipped, 1);
    bad["metadata"]["name"] = "worse".into();
    server.put(PODS, bad);
    server.put(PODS, pod("better"));
    assert_eq!(watched.delivered().await, "set better");
    assert_eq!(watched.pods().skipped, 2);
    // The deletion is delivered although the object was never delivered.
    server.delete(PODS, "team", "worse");
    assert_eq!(watched.delivered().await, "gone worse");
    assert_eq!(watched.pods().lists, 1);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_field_is_counted_and_the_object_delivered() {
    let server = FakeApi::default();
    let mut odd = pod("odd");
    odd["spec"]["overhead"] = json!({"cpu": "lots"});
    server.put(PODS, odd);
    let (watched, delivered) = Watched::begin(&server, WatchOptions::default()).await;
    assert_eq!(delivered, ["all v1 Pod: odd"]);
    assert_eq!((watched.pods().faults, watched.pods().skipped), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_slice_without_meaning_is_as_if_it_were_not_there() {
    let server = FakeApi::default();
    let slice = |memory: &str| {
        json!({"metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "capacity": {"memory": {"value": memory}}}]}})
    };
    server.put(SLICES, slice("80Gi"));
    let mut watched = Watched::new(&server, WatchOptions::default());
    let mut of_slices = async || {
        loop {
            if let WatchEvent::Change(Change::Slice(delta)) = watched.next().await {
                return delta;
            }
        }
    };
    let Delta::Replace(_, all) = of_slices().await else { panic!("a list comes first") };
    assert_eq!(all[0].slice.devices.len(), 1);
    server.put(SLICES, slice("much"));
    let Delta::Delete(gone) = of_slices().await else { panic!("it is gone") };
    assert_eq!(&*gone.meta.name.name, "s");
    server.put(SLICES, slice("81Gi"));
    let Delta::Upsert(back) = of_slices().await else { panic!("it is back") };
    assert_eq!(Arc::strong_count(&back), 1, "nothing keeps what was delivered");
}
