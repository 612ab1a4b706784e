//! Kinds that may or may not be served.

use super::*;

const GROUPS: &str = "/apis/scheduling.k8s.io/v1beta1/podgroups";
const OLD_GROUPS: &str = "/apis/scheduling.k8s.io/v1alpha2/podgroups";

fn options() -> WatchOptions {
    let kinds = ["v1alpha2", "v1beta1"];
    let kinds = kinds.map(|version| Kind::new(&format!("scheduling.k8s.io/{version}"), "PodGroup"));
    WatchOptions { kinds: kinds.to_vec(), ..WatchOptions::default() }
}

fn group(name: &str) -> serde_json::Value {
    json!({"metadata": {"namespace": "team", "name": name}, "spec": {"minCount": 2}})
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_counts_as_told_and_is_found_later() {
    let server = FakeServer::default();
    let (mut watched, told) = Watched::begin(&server, options()).await;
    assert_eq!(told, ["all v1 Pod:"]);
    server.serve("scheduling.k8s.io", "v1alpha2", &[("PodGroup", "podgroups")]);
    server.put(OLD_GROUPS, group("a"));
    let begun = tokio::time::Instant::now();
    assert_eq!(watched.told().await, "all scheduling.k8s.io/v1alpha2 PodGroup: a");
    assert!(begun.elapsed() <= Duration::from_secs(31), "{:?}", begun.elapsed());
    server.put(OLD_GROUPS, group("b"));
    assert_eq!(watched.told().await, "set b");
}

#[tokio::test(start_paused = true)]
async fn the_newest_served_version_is_watched_and_its_objects_say_what_they_are() {
    let server = FakeServer::default();
    server.serve("scheduling.k8s.io", "v1alpha2", &[("PodGroup", "podgroups")]);
    let kinds = [("Workload", "workloads"), ("PodGroup", "podgroups")];
    server.serve("scheduling.k8s.io", "v1beta1", &kinds);
    server.serve("scheduling.k8s.io", "v2", &kinds);
    server.put(GROUPS, group("a"));
    let mut watched = Watched::new(&server, options());
    loop {
        if let News::Change(Change::Object(Delta::All(kind, all))) = watched.next().await {
            assert_eq!(kind, Kind::new("scheduling.k8s.io/v1beta1", "PodGroup"));
            assert_eq!(Kind::new(&all[0].api_version, &all[0].kind), kind);
            assert_eq!(all[0].spec["minCount"], 2);
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_goes_leaves_an_empty_list_and_another_version_takes_over() {
    let server = FakeServer::default();
    server.serve("scheduling.k8s.io", "v1alpha2", &[("PodGroup", "podgroups")]);
    server.put(OLD_GROUPS, group("a"));
    let (mut watched, told) = Watched::begin(&server, options()).await;
    assert!(told.contains(&"all scheduling.k8s.io/v1alpha2 PodGroup: a".to_owned()), "{told:?}");
    server.serve("scheduling.k8s.io", "v1alpha2", &[]);
    server.remove_collection(OLD_GROUPS, true);
    server.serve("scheduling.k8s.io", "v1beta1", &[("PodGroup", "podgroups")]);
    server.put(GROUPS, group("b"));
    assert_eq!(watched.told().await, "all scheduling.k8s.io/v1alpha2 PodGroup:");
    assert_eq!(watched.told().await, "all scheduling.k8s.io/v1beta1 PodGroup: b");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_may_not_be_read_holds_up_nobody() {
    let server = FakeServer::default();
    server.serve("scheduling.k8s.io", "v1beta1", &[("PodGroup", "podgroups")]);
    server.forbid(GROUPS, true);
    server.put(GROUPS, group("a"));
    let (mut watched, told) = Watched::begin(&server, options()).await;
    assert_eq!(told, ["all v1 Pod:"]);
    let (_, problem) = watched.health.problems().pop().unwrap();
    assert!(problem.contains("may not list podgroups"), "{problem}");
    server.forbid(GROUPS, false);
    assert_eq!(watched.told().await, "all scheduling.k8s.io/v1beta1 PodGroup: a");
}

#[tokio::test(start_paused = true)]
async fn the_newest_version_is_the_stable_one() {
    let mut versions = ["v1alpha1", "v2beta1", "v1", "v1beta2"].map(str::to_owned).to_vec();
    super::super::discovery::newest_first(&mut versions);
    assert_eq!(versions, ["v1", "v2beta1", "v1beta2", "v1alpha1"]);
}
