//! Lists that somebody asks for.

use tokio::time::{Instant, sleep};

use super::*;

const CLAIMS: &str = "/apis/resource.k8s.io/v1/resourceclaims";
const NODES: &str = "/api/v1/nodes";

impl Watched {
    /// What is told of pods until pods and claims are not older than that.
    async fn told_until_fresh(&mut self, at: Instant) -> Vec<String> {
        let mut told = Vec::new();
        let fresh = async {
            loop {
                match self.next().await {
                    News::Fresh(fresh) if fresh >= at => return,
                    News::Change(change) => told.extend(words(&change)),
                    News::Fresh(_) | News::Synced => {}
                }
            }
        };
        timeout(Duration::from_hours(1), fresh).await.expect("it should be read anew");
        told
    }
}

fn lists(server: &FakeServer) -> [usize; 3] {
    [PODS, CLAIMS, NODES].map(|collection| server.queries(collection, false).len())
}

#[tokio::test(start_paused = true)]
async fn the_first_lists_are_said_to_be_as_new_as_the_oldest_before_all_is_said_to_be_there() {
    let server = FakeServer::default();
    server.put(PODS, pod("a"));
    sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    server.forbid(PODS, true);
    let mut watched = Watched::new(&server, WatchOptions::default());
    // Pods are the last that are listed.
    sleep(Duration::from_mins(1)).await;
    server.forbid(PODS, false);
    let mut told = Vec::new();
    let fresh = loop {
        match watched.next().await {
            News::Fresh(at) => break at,
            News::Change(change) => told.extend(words(&change)),
            News::Synced => panic!("who is told that all is there must know how new it is"),
        }
    };
    assert_eq!((fresh, told), (begun, vec!["all v1 Pod: a".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn what_a_watch_that_lags_does_not_tell_is_told_by_the_list_that_is_asked_for() {
    let server = FakeServer::default();
    server.put(PODS, pod("a"));
    let (mut watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    watched.until(|_| server.watchers(PODS) == 1 && server.watchers(CLAIMS) == 1).await;
    server.withhold(PODS, true);
    server.put(PODS, pod("b"));
    sleep(Duration::from_secs(1)).await;
    let at = Instant::now();
    watched.anew.not_older_than(at);
    assert_eq!(watched.told_until_fresh(at).await, ["all v1 Pod: a b"]);
    assert_eq!(lists(&server), [2, 2, 1], "only what can be asked for is listed again");
    // It is watched from there on.
    server.withhold(PODS, false);
    watched.until(|_| server.watchers(PODS) == 1).await;
    server.put(PODS, pod("c"));
    while watched.told().await != "set c" {}
    assert_eq!((lists(&server), watched.pods().failures), ([2, 2, 1], 0));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_listed_for_what_was_told_already_or_asked_for_twice() {
    let server = FakeServer::default();
    let before = Instant::now();
    let (mut watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    watched.anew.not_older_than(before);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(lists(&server), [1, 1, 1]);
    let at = Instant::now();
    watched.anew.not_older_than(at);
    watched.told_until_fresh(at).await;
    watched.anew.not_older_than(at);
    watched.anew.not_older_than(before);
    sleep(Duration::from_mins(1)).await;
    assert_eq!((lists(&server), watched.anew.wanted()), ([2, 2, 1], Some(at)));
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_in_the_middle_of_a_pause_is_listed_at_once() {
    let server = FakeServer::default();
    let (mut watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    // The server says for how long it pauses after so many failures: seconds.
    server.forbid(PODS, true);
    server.end_watches(PODS);
    watched.until(|health| health.kinds()[&Kind::new("v1", "Pod")].failures == 20).await;
    server.put(PODS, pod("a"));
    server.forbid(PODS, false);
    let at = Instant::now();
    watched.anew.not_older_than(at);
    assert_eq!(watched.told_until_fresh(at).await, ["all v1 Pod: a"]);
    assert!(at.elapsed() < Duration::from_millis(50), "{:?}", at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_not_had_again_at_once_because_it_is_asked_for() {
    let server = FakeServer::default();
    let (mut watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    watched.until(|_| server.watchers(PODS) == 1).await;
    server.forbid(PODS, true);
    sleep(Duration::from_secs(1)).await;
    let at = Instant::now();
    watched.anew.not_older_than(at);
    sleep(Duration::from_mins(1)).await;
    let tries = lists(&server)[0];
    assert!((10..40).contains(&tries), "{tries} lists in a minute");
    server.put(PODS, pod("a"));
    server.forbid(PODS, false);
    assert_eq!(watched.told_until_fresh(at).await, ["all v1 Pod: a"]);
}

#[tokio::test(start_paused = true)]
async fn claims_that_the_server_does_not_serve_keep_nobody_waiting() {
    let server = FakeServer::default();
    server.remove_collection(CLAIMS, true);
    let (mut watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    sleep(Duration::from_secs(1)).await;
    let at = Instant::now();
    watched.anew.not_older_than(at);
    assert_eq!(watched.told_until_fresh(at).await, ["all v1 Pod:"]);
    // Not before it would be looked for anyhow, but for the pause after it was found missing.
    assert!(at.elapsed() < Duration::from_secs(10), "{:?}", at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_moment_that_lies_ahead_is_waited_for() {
    let server = FakeServer::default();
    let (mut watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    let at = Instant::now() + Duration::from_secs(10);
    watched.anew.not_older_than(at);
    watched.told_until_fresh(at).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(lists(&server), [2, 2, 1]);
}
