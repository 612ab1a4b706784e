//! Interruptions.

use serde_json::json;

use super::*;

#[tokio::test(start_paused = true)]
async fn the_end_of_a_watch_is_routine_and_loses_nothing() {
    let server = FakeApi::default();
    let first = server.put(PODS, pod("a"));
    let (mut watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    for name in ["b", "c"] {
        server.end_watches(PODS);
        server.put(PODS, pod(name));
        assert_eq!(watched.delivered().await, format!("set {name}"));
    }
    let health = watched.pods();
    assert_eq!((health.lists, health.failures, health.problem), (1, 0, None));
    let watches = server.queries(PODS, true);
    assert!(watches[0].contains(&format!("resourceVersion={first}")), "{watches:?}");
}

#[tokio::test(start_paused = true)]
async fn a_truncated_line_is_delivered_by_the_next_watch() {
    let server = FakeApi::default();
    let (mut watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    watched.until(|_| server.watchers(PODS) == 1).await;
    server.say(
        PODS,
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"9\"",
    );
    server.end_watches(PODS);
    server.put(PODS, pod("a"));
    assert_eq!(watched.delivered().await, "set a");
    assert_eq!(watched.pods().failures, 0);
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_moves_on_where_the_next_watch_begins() {
    let server = FakeApi::default();
    let (watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    watched.until(|_| server.watchers(PODS) == 1).await;
    let before = watched.pods().last_contact.unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    let bookmark = json!({"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1",
        "metadata": {"resourceVersion": "77", "creationTimestamp": null},
        "spec": {"containers": null}, "status": {}}});
    server.say(PODS, &format!("{bookmark}\n"));
    watched.until(|health| health.kinds()[&Kind::new("v1", "Pod")].version == "77").await;
    assert!(watched.pods().last_contact.unwrap() > before, "a quiet watch is not a stale one");
    assert_eq!(watched.pods().changes, 0);
    server.end_watches(PODS);
    let again = || server.queries(PODS, true).iter().any(|one| one.contains("resourceVersion=77"));
    watched.until(|_| again()).await;
}

#[tokio::test(start_paused = true)]
async fn what_went_in_a_gap_is_missing_in_the_list_that_follows() {
    let server = FakeApi::default();
    server.put(PODS, pod("stays"));
    server.put(PODS, pod("goes"));
    let (mut watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    watched.until(|_| server.watchers(PODS) == 1).await;
    server.end_watches(PODS);
    server.delete(PODS, "team", "goes");
    server.put(PODS, pod("comes"));
    server.compact(PODS);
    assert_eq!(watched.delivered().await, "all v1 Pod: comes stays");
    server.put(PODS, pod("later"));
    assert_eq!(watched.delivered().await, "set later");
    let health = watched.pods();
    assert_eq!((health.lists, health.failures, health.problem), (2, 0, None));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_expires_in_the_middle_of_a_watch_leads_to_a_list() {
    let server = FakeApi::default();
    server.put(PODS, pod("a"));
    let (mut watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    watched.until(|_| server.watchers(PODS) == 1).await;
    let error = json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1",
        "metadata": {}, "status": "Failure", "message": "too old resource version: 1 (2)",
        "reason": "Expired", "code": 410}});
    server.say(PODS, &format!("{error}\n"));
    assert_eq!(watched.delivered().await, "all v1 Pod: a");
    assert_eq!(watched.pods().failures, 0);
}

#[tokio::test(start_paused = true)]
async fn another_error_of_the_server_is_counted_and_the_watch_goes_on() {
    let server = FakeApi::default();
    let (mut watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    watched.until(|_| server.watchers(PODS) == 1).await;
    let error = json!({"type": "ERROR", "object": {"status": "Failure", "message": "etcd is away",
        "reason": "InternalError", "code": 500}});
    server.say(PODS, &format!("{error}\n"));
    watched.until(|health| health.kinds()[&Kind::new("v1", "Pod")].failures == 1).await;
    let problem = watched.pods().problem;
    assert!(problem.as_ref().is_none_or(|text| text.contains("etcd is away")), "{problem:?}");
    server.put(PODS, pod("a"));
    assert_eq!(watched.delivered().await, "set a");
    assert_eq!((watched.pods().lists, watched.pods().problem), (1, None));
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_restarted() {
    let server = FakeApi::default();
    let (watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    watched.until(|_| server.queries(PODS, true).len() >= 3).await;
    assert_eq!(watched.pods().lists, 1);
}

#[tokio::test(start_paused = true)]
async fn a_list_in_pages_is_delivered_as_one() {
    let server = FakeApi::default();
    for number in 0..7 {
        server.put(PODS, pod(&number.to_string()));
    }
    server.expire_page(PODS);
    let options = WatchOptions { page: 3, ..WatchOptions::default() };
    let (_watched, delivered) = Watched::begin(&server, options).await;
    assert_eq!(delivered, ["all v1 Pod: 0 1 2 3 4 5 6"]);
    // One page before the expiry, then three pages.
    assert_eq!(server.queries(PODS, false).len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_asked_again() {
    let server = FakeApi::default();
    server.put(PODS, pod("a"));
    server.fail(&http::Method::GET, &[500; 40]);
    let (watched, delivered) = Watched::begin(&server, WatchOptions::default()).await;
    assert_eq!(delivered, ["all v1 Pod: a"]);
    let failures: u64 = watched.health.kinds().values().map(|kind| kind.failures).sum();
    assert_eq!(failures, 40);
    assert_eq!(watched.health.problems(), []);
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_named_and_all_goes_on_once_it_is_there() {
    let server = FakeApi::default();
    server.forbid(SLICES, true);
    server.put(PODS, pod("a"));
    let mut watched = Watched::new(&server, WatchOptions::default());
    let kind = Kind::new("resource.k8s.io/v1", "ResourceSlice");
    watched.until(|health| health.kinds()[&kind].is_forbidden).await;
    let (of, problem) = watched.health.problems().pop().unwrap();
    assert_eq!(of, kind);
    for word in ["list", "watch", "\"resourceslices\"", "\"resource.k8s.io\"", "grant"] {
        assert!(problem.contains(word), "{problem}");
    }
    assert!(!watched.health.is_synced());
    server.forbid(SLICES, false);
    while !matches!(watched.next().await, WatchEvent::Synced) {}
    assert_eq!(watched.health.problems(), []);
}

#[tokio::test(start_paused = true)]
async fn a_missing_kind_is_empty_and_reported() {
    let server = FakeApi::default();
    server.remove_collection(SLICES, true);
    let (watched, _) = Watched::begin(&server, WatchOptions::default()).await;
    let (_, problem) = watched.health.problems().pop().unwrap();
    assert!(problem.contains("does not serve resource.k8s.io/v1 ResourceSlice"), "{problem}");
    assert!(watched.health.staleness(tokio::time::Instant::now()).is_some());
    server.remove_collection(SLICES, false);
    watched.until(|health| health.problems().is_empty()).await;
}
