//! Optional kinds.

use super::*;
use crate::watch::WantedKind;

const GROUPS: &str = "/apis/scheduling.k8s.io/v1beta1/podgroups";
const OLD_GROUPS: &str = "/apis/scheduling.k8s.io/v1alpha2/podgroups";

fn options() -> WatchOptions {
    let wanted = WantedKind {
        group: "scheduling.k8s.io".to_owned(),
        versions: vec!["v1beta1".to_owned(), "v1alpha2".to_owned()],
        kind: "PodGroup".to_owned(),
        labels: None,
    };
    WatchOptions { kinds: vec![wanted], ..WatchOptions::default() }
}

fn group(name: &str) -> serde_json::Value {
    json!({"metadata": {"namespace": "team", "name": name}, "spec": {"minCount": 2}})
}

#[tokio::test(start_paused = true)]
async fn an_unserved_kind_counts_as_synced_and_is_found_later() {
    let server = FakeApi::default();
    let (mut watched, delivered) = Watched::begin(&server, options()).await;
    assert_eq!(delivered, ["all v1 Pod:"]);
    server.serve("scheduling.k8s.io", "v1alpha2", &[("PodGroup", "podgroups")]);
    server.put(OLD_GROUPS, group("a"));
    let begun = tokio::time::Instant::now();
    assert_eq!(watched.delivered().await, "all scheduling.k8s.io/v1alpha2 PodGroup: a");
    assert!(begun.elapsed() <= Duration::from_secs(31), "{:?}", begun.elapsed());
    server.put(OLD_GROUPS, group("b"));
    assert_eq!(watched.delivered().await, "set b");
}

#[tokio::test(start_paused = true)]
async fn the_best_served_version_is_watched() {
    let server = FakeApi::default();
    server.serve("scheduling.k8s.io", "v1alpha2", &[("PodGroup", "podgroups")]);
    let kinds = [("Workload", "workloads"), ("PodGroup", "podgroups")];
    server.serve("scheduling.k8s.io", "v1beta1", &kinds);
    server.serve("scheduling.k8s.io", "v2", &kinds);
    server.put(GROUPS, group("a"));
    let mut watched = Watched::new(&server, options());
    loop {
        if let WatchEvent::Change(Change::Object(Delta::Replace(kind, all))) = watched.next().await
        {
            assert_eq!(kind, Kind::new("scheduling.k8s.io/v1beta1", "PodGroup"));
            assert_eq!(Kind::new(&all[0].api_version, &all[0].kind), kind);
            assert_eq!(all[0].spec["minCount"], 2);
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_disappears_is_replaced_by_an_empty_list() {
    let server = FakeApi::default();
    server.serve("scheduling.k8s.io", "v1alpha2", &[("PodGroup", "podgroups")]);
    server.put(OLD_GROUPS, group("a"));
    let (mut watched, delivered) = Watched::begin(&server, options()).await;
    assert!(
        delivered.contains(&"all scheduling.k8s.io/v1alpha2 PodGroup: a".to_owned()),
        "{delivered:?}"
    );
    server.serve("scheduling.k8s.io", "v1alpha2", &[]);
    server.remove_collection(OLD_GROUPS, true);
    server.serve("scheduling.k8s.io", "v1beta1", &[("PodGroup", "podgroups")]);
    server.put(GROUPS, group("b"));
    assert_eq!(watched.delivered().await, "all scheduling.k8s.io/v1alpha2 PodGroup:");
    assert_eq!(watched.delivered().await, "all scheduling.k8s.io/v1beta1 PodGroup: b");
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_kind_delays_no_other() {
    let server = FakeApi::default();
    server.serve("scheduling.k8s.io", "v1beta1", &[("PodGroup", "podgroups")]);
    server.forbid(GROUPS, true);
    server.put(GROUPS, group("a"));
    let (mut watched, delivered) = Watched::begin(&server, options()).await;
    assert_eq!(delivered, ["all v1 Pod:"]);
    let (_, problem) = watched.health.problems().pop().unwrap();
    assert!(problem.contains("may not list podgroups"), "{problem}");
    server.forbid(GROUPS, false);
    assert_eq!(watched.delivered().await, "all scheduling.k8s.io/v1beta1 PodGroup: a");
}

#[tokio::test(start_paused = true)]
async fn only_objects_that_a_selector_selects_are_asked_for() {
    let server = FakeApi::default();
    server.serve("scheduling.k8s.io", "v1beta1", &[("PodGroup", "podgroups")]);
    let mut options = options();
    options.kinds[0].labels = Some("octavo.dev/gang".to_owned());
    let (watched, _) = Watched::begin(&server, options).await;
    watched.until(|_| server.watchers(GROUPS) == 1).await;
    for is_watch in [false, true] {
        let queries = server.queries(GROUPS, is_watch);
        assert!(queries[0].contains("labelSelector=octavo.dev%2Fgang"), "{queries:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_built_in_kind_keeps_its_objects() {
    let server = FakeApi::default();
    server.put(PODS, pod("a"));
    let (mut watched, delivered) = Watched::begin(&server, WatchOptions::default()).await;
    assert_eq!(delivered, ["all v1 Pod: a"]);
    server.remove_collection(PODS, true);
    let begun = tokio::time::Instant::now();
    watched.relist.not_older_than(begun);
    tokio::time::sleep(Duration::from_mins(5)).await;
    let (kind, problem) = watched.health.problems().pop().unwrap();
    assert_eq!(kind.kind, "Pod");
    assert!(problem.contains("does not serve"), "{problem}");
    // The next event comes from the server that serves the kind.
    server.remove_collection(PODS, false);
    server.put(PODS, pod("b"));
    assert_eq!(watched.delivered().await, "all v1 Pod: b");
}
