//! Lists on demand.

use tokio::time::{Instant, sleep};

use super::*;

const CLAIMS: &str = "/apis/resource.k8s.io/v1/resourceclaims";
const NODES: &str = "/api/v1/nodes";

impl Watched {
    /// The events of pods until pods and claims are fresh as of an instant.
    async fn events_until_fresh(&mut self, at: Instant) -> Vec<String> {
        let mut delivered = Vec::new();
        let freshness = async {
            loop {
                match self.next().await {
                    WatchEvent::FreshAsOf(freshness) if freshness >= at => return,
                    WatchEvent::Change(change) => delivered.extend(words(&change)),
                    WatchEvent::FreshAsOf(_) | WatchEvent::Synced => {}
                }
            }
        };
        timeout(Duration::from_hours(1), freshness).await.expect("it should be listed again");
        delivered
    }
}

fn lists(server: &FakeApi) -> [usize; 3] {
    [PODS, CLAIMS, NODES].map(|collection| server.queries(collection, false).len())
}

#[tokio::test(start_paused = true)]
async fn freshness_is_sent_before_synced() {
    let server = FakeApi::default();
    server.put(PODS, pod("a"));
    sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    server.forbid(PODS, true);
    let mut watched = Watched::new(&server, WatchOptions::default());
    // Pods are listed last.
    sleep(Duration::from_mins(1)).await;
    server.forbid(PODS, false);
    let mut delivered = Vec::new();
    let freshness = loop {
        match watched.next().await {
            WatchEvent::FreshAsOf(at) => break at,
            WatchEvent::Change(change) => delivered.extend(words(&change)),
            WatchEvent::Synced => {
                panic!("who is delivered that all is there must know how new it is")
            }
        }
    };
    assert_eq!((freshness, delivered), (begun, vec!["all v1 Pod: a".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_requested_list_delivers_what_a_lagging_watch_missed() {
    let server = FakeApi::default();
    server.put(PODS, pod("a"));
    let (mut watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    watched.until(|_| server.watchers(PODS) == 1 && server.watchers(CLAIMS) == 1).await;
    server.withhold(PODS, true);
    server.put(PODS, pod("b"));
    sleep(Duration::from_secs(1)).await;
    let at = Instant::now();
    watched.relist.not_older_than(at);
    assert_eq!(watched.events_until_fresh(at).await, ["all v1 Pod: a b"]);
    assert_eq!(lists(&server), [2, 2, 1], "only what can be relist_requests for is listed again");
    // The watch starts there.
    server.withhold(PODS, false);
    watched.until(|_| server.watchers(PODS) == 1).await;
    server.put(PODS, pod("c"));
    while watched.delivered().await != "set c" {}
    assert_eq!((lists(&server), watched.pods().failures), ([2, 2, 1], 0));
}

#[tokio::test(start_paused = true)]
async fn a_satisfied_or_repeated_request_lists_nothing() {
    let server = FakeApi::default();
    let before = Instant::now();
    let (mut watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    watched.relist.not_older_than(before);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(lists(&server), [1, 1, 1]);
    let at = Instant::now();
    watched.relist.not_older_than(at);
    watched.events_until_fresh(at).await;
    watched.relist.not_older_than(at);
    watched.relist.not_older_than(before);
    sleep(Duration::from_mins(1)).await;
    assert_eq!((lists(&server), watched.relist.requested()), ([2, 2, 1], Some(at)));
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_in_the_middle_of_a_pause_is_listed_at_once() {
    let server = FakeApi::default();
    let (mut watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    // The backoff after these failures is seconds.
    server.forbid(PODS, true);
    server.end_watches(PODS);
    watched.until(|health| health.kinds()[&Kind::new("v1", "Pod")].failures == 20).await;
    server.put(PODS, pod("a"));
    server.forbid(PODS, false);
    let at = Instant::now();
    watched.relist.not_older_than(at);
    assert_eq!(watched.events_until_fresh(at).await, ["all v1 Pod: a"]);
    assert!(at.elapsed() < Duration::from_millis(50), "{:?}", at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_not_had_again_at_once_because_it_is_asked_for() {
    let server = FakeApi::default();
    let (mut watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    watched.until(|_| server.watchers(PODS) == 1).await;
    server.forbid(PODS, true);
    sleep(Duration::from_secs(1)).await;
    let at = Instant::now();
    watched.relist.not_older_than(at);
    sleep(Duration::from_mins(1)).await;
    let tries = lists(&server)[0];
    assert!((10..40).contains(&tries), "{tries} lists in a minute");
    server.put(PODS, pod("a"));
    server.forbid(PODS, false);
    assert_eq!(watched.events_until_fresh(at).await, ["all v1 Pod: a"]);
}

#[tokio::test(start_paused = true)]
async fn unserved_claims_do_not_delay_freshness() {
    let server = FakeApi::default();
    server.remove_collection(CLAIMS, true);
    let (mut watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    sleep(Duration::from_secs(1)).await;
    let at = Instant::now();
    watched.relist.not_older_than(at);
    assert_eq!(watched.events_until_fresh(at).await, ["all v1 Pod:"]);
    // Before the next rediscovery, but after the pause that followed the discovery.
    assert!(at.elapsed() < Duration::from_secs(10), "{:?}", at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_moment_that_lies_ahead_is_waited_for() {
    let server = FakeApi::default();
    let (mut watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    let at = Instant::now() + Duration::from_secs(10);
    watched.relist.not_older_than(at);
    watched.events_until_fresh(at).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(lists(&server), [2, 2, 1]);
}
