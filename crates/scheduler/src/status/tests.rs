use std::time::Duration;

use octavo_api::names::OCTAVO_API_VERSION;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::bind::tests::fake_api::{FakeApi, Trouble};
use crate::bind::{Leadership, Load};
use crate::metrics::Metrics;

const POD: &str = "/api/v1/namespaces/team/pods/p";
const GROUP: &str = "/apis/octavo.dev/v1alpha1/namespaces/team/podgroups/g";
const NATIVE: &str = "/apis/scheduling.k8s.io/v1alpha2/namespaces/team/podgroups/g";
const POLICY: &str = "/apis/octavo.dev/v1alpha1/placementpolicies/dense";

struct Bench {
    api: FakeApi,
    writer: StatusWriter,
    load: Load,
    stop: CancellationToken,
}

impl Bench {
    fn new() -> Self {
        let api = FakeApi::default();
        for (path, name) in [(POD, "p"), (GROUP, "g"), (NATIVE, "g"), (POLICY, "dense")] {
            let object = json!({"metadata": {"name": name, "uid": format!("uid-{name}"),
                "generation": 3}, "spec": {"minMember": 4}});
            api.put(path, object);
        }
        let metrics = Metrics::new(&mut Registry::default());
        let (load, stop, lease) = (Load::default(), CancellationToken::new(), api.clone());
        let writer = StatusWriter::start(
            api.client(),
            StatusOptions::new("octavo", "octavo-0"),
            Leadership::new(move || lease.lease()),
            load.clone(),
            metrics,
            stop.clone(),
        );
        Self { api, writer, load, stop }
    }

    fn send(&self, report: Report) {
        self.writer.reports.send(report);
    }

    /// Until nothing moves for a while; time is paused, so this costs none.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_mins(1)).await;
    }

    fn writes_to(&self, path: &str) -> usize {
        let path = format!("PATCH {path}/status");
        self.api.writes().iter().filter(|write| **write == path).count()
    }

    fn events(&self) -> Vec<Value> {
        let seen = self.api.seen().into_iter().filter(|seen| seen.path.ends_with("/events"));
        seen.map(|seen| serde_json::from_str(&seen.body).unwrap()).collect()
    }

    fn condition(&self, path: &str) -> Value {
        self.api.object(path).unwrap()["status"]["conditions"][0].clone()
    }
}

fn pod() -> PodRef {
    PodRef { name: ObjectName::new("team", "p"), uid: "uid-p".into() }
}

fn waits(reason: &'static str, message: &str, seen: Option<ScheduledCondition>) -> Report {
    let statement = Statement { reason, message: message.to_owned() };
    Report::PodWaits { pod: pod(), statement, seen }
}

fn seen(reason: &str, message: &str) -> ScheduledCondition {
    let (reason, message) = (reason.to_owned(), message.to_owned());
    ScheduledCondition { is_true: false, reason, message }
}

fn group(api_version: &str, phase: GroupPhase, bound: u32) -> Report {
    Report::Group(GroupReport {
        kind: Kind::new(api_version, "PodGroup"),
        name: ObjectName::new("team", "g"),
        uid: "uid-g".into(),
        generation: 3,
        phase,
        statement: Statement { reason: phase.name(), message: format!("{bound} of 4") },
        present: [("".into(), 4)].into(),
        bound: [("".into(), bound)].into(),
        domain: (bound > 0).then(|| "rack r1".to_owned()),
    })
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_is_told_why_once() {
    let bench = Bench::new();
    bench.send(waits("Unschedulable", "no node has 8 GPUs", None));
    bench.settle().await;
    let condition = bench.condition(POD);
    assert_eq!(condition["type"], "PodScheduled");
    assert_eq!(condition["status"], "False");
    assert_eq!(condition["reason"], "Unschedulable");
    let since = condition["lastTransitionTime"].clone();
    assert!(since.as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    // As the watch has it now: nothing is written.
    bench.send(waits(
        "Unschedulable",
        "no node has 8 GPUs",
        Some(seen("Unschedulable", "no node has 8 GPUs")),
    ));
    bench.settle().await;
    assert_eq!(bench.writes_to(POD), 1);
    // Another message: the time stays, since the status does; no event, since the reason does.
    bench.send(waits(
        "Unschedulable",
        "no node is up",
        Some(seen("Unschedulable", "no node has 8 GPUs")),
    ));
    bench.settle().await;
    assert_eq!(bench.writes_to(POD), 2);
    assert_eq!(bench.condition(POD)["message"], "no node is up");
    assert_eq!(bench.condition(POD)["lastTransitionTime"], since);
    let events = bench.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["reason"], "FailedScheduling");
    assert_eq!(events[0]["type"], "Warning");
    assert_eq!(events[0]["regarding"]["uid"], "uid-p");
    assert_eq!(events[0]["reportingController"], "octavo");
}

#[tokio::test(start_paused = true)]
async fn what_is_superseded_is_never_written() {
    let bench = Bench::new();
    bench.load.set(1);
    for number in 0..500 {
        bench.send(waits("Unschedulable", &format!("{number} nodes"), None));
    }
    bench.settle().await;
    assert_eq!(bench.writes_to(POD), 1);
    assert_eq!(bench.condition(POD)["message"], "499 nodes");
    bench.send(waits("Unschedulable", "soon bound", None));
    bench.send(Report::PodBound { pod: pod(), node: "node-1".into() });
    bench.settle().await;
    assert_eq!(bench.writes_to(POD), 1, "a bound pod is not told that it waits");
}

#[tokio::test(start_paused = true)]
async fn a_gang_is_told_once_a_second_and_the_newest_wins() {
    let bench = Bench::new();
    let begun = Instant::now();
    for bound in 0..=4 {
        let phase = if bound == 4 { GroupPhase::Scheduled } else { GroupPhase::Binding };
        for _ in 0..40 {
            bench.send(group(OCTAVO_API_VERSION, phase, bound));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
    bench.settle().await;
    let writes = bench.writes_to(GROUP);
    assert!((2..=4).contains(&writes), "{writes} in two seconds");
    let status = bench.api.object(GROUP).unwrap()["status"].clone();
    assert_eq!(status["phase"], "Scheduled");
    assert_eq!(
        (&status["min"], &status["present"], &status["bound"]),
        (&json!(4), &json!(4), &json!(4))
    );
    assert_eq!(status["observedGeneration"], 3);
    assert_eq!(status["domain"], "rack r1");
    assert_eq!(status["conditions"][0]["type"], "Scheduled");
    assert_eq!(status["conditions"][0]["status"], "True");
    // The same again: read, and not written.
    bench.send(group(OCTAVO_API_VERSION, GroupPhase::Scheduled, 4));
    bench.settle().await;
    assert_eq!(bench.writes_to(GROUP), writes);
    // What is no more is taken away.
    bench.send(group(OCTAVO_API_VERSION, GroupPhase::Waiting, 0));
    bench.settle().await;
    let status = bench.api.object(GROUP).unwrap()["status"].clone();
    assert!(status["domain"].is_null(), "{status}");
    assert_eq!(status["conditions"][0]["status"], "False");
}

#[tokio::test(start_paused = true)]
async fn a_native_gang_gets_the_condition_of_its_api_and_keeps_it() {
    const VERSION: &str = "scheduling.k8s.io/v1alpha2";
    let bench = Bench::new();
    bench.send(group(VERSION, GroupPhase::Waiting, 0));
    bench.settle().await;
    let condition = bench.condition(NATIVE);
    assert_eq!(condition["type"], "PodGroupScheduled");
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("Unschedulable"))
    );
    bench.send(group(VERSION, GroupPhase::Scheduled, 4));
    bench.settle().await;
    assert_eq!(bench.condition(NATIVE)["status"], "True");
    assert_eq!(bench.condition(NATIVE)["reason"], "Scheduled");
    bench.send(group(VERSION, GroupPhase::Repairing, 3));
    bench.settle().await;
    assert_eq!(bench.condition(NATIVE)["status"], "True");
    assert_eq!(bench.writes_to(NATIVE), 2);
    assert_eq!(bench.writes_to(GROUP), 0);
}

#[tokio::test(start_paused = true)]
async fn workloads_without_a_status_of_ours_get_events_alone() {
    let bench = Bench::new();
    let mut report = group("jobset.x-k8s.io/v1alpha2", GroupPhase::Waiting, 0);
    if let Report::Group(group) = &mut report {
        group.kind.kind = "JobSet".to_owned();
    }
    for _ in 0..3 {
        bench.send(report.clone());
        bench.settle().await;
    }
    assert_eq!(bench.events().len(), 1, "repeated within minutes: one event");
    assert_eq!(bench.events()[0]["regarding"]["kind"], "JobSet");
    assert_eq!(bench.api.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_policy_says_whether_it_is_used() {
    let bench = Bench::new();
    let error = Statement { reason: "UnknownUnit", message: "steps[0] names parsecs".to_owned() };
    let policy = |error| Report::Policy { name: "dense".into(), generation: 3, error };
    bench.send(policy(Some(error)));
    bench.settle().await;
    assert_eq!(bench.condition(POLICY)["type"], "Accepted");
    assert_eq!(bench.condition(POLICY)["status"], "False");
    assert_eq!(bench.condition(POLICY)["reason"], "UnknownUnit");
    assert_eq!(bench.events()[0]["metadata"]["namespace"], "default");
    bench.send(policy(None));
    bench.settle().await;
    assert_eq!(bench.condition(POLICY)["status"], "True");
    bench.send(policy(None));
    bench.settle().await;
    assert_eq!(bench.writes_to(POLICY), 2);
}

#[tokio::test(start_paused = true)]
async fn statuses_keep_their_pace_and_give_way_to_bindings() {
    let bench = Bench::new();
    for number in 0..2000 {
        let name = ObjectName::new("team", format!("p{number}"));
        let pod = PodRef { name, uid: format!("uid-{number}").into() };
        let statement = Statement { reason: "Unschedulable", message: String::new() };
        bench.send(Report::PodWaits { pod, statement, seen: None });
    }
    // Refused ones (there are no such pods) cost a turn, too.
    let count = |bench: &Bench| bench.api.count();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let idle = count(&bench);
    assert!((490..=515).contains(&idle), "{idle} in ten seconds");
    bench.load.set(64);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let busy = count(&bench) - idle;
    assert!((90..=112).contains(&busy), "{busy} in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_server_gets_it_later_and_a_lost_lease_never() {
    let bench = Bench::new();
    bench.api.trouble(0, Trouble::Answer(429));
    bench.api.trouble(1, Trouble::LostBefore);
    bench.send(waits("Unschedulable", "first", None));
    bench.settle().await;
    assert_eq!(bench.condition(POD)["message"], "first");
    let writes = bench.api.writes().len();
    bench.api.trouble_from(0, Trouble::NotLeader);
    bench.send(waits("Unschedulable", "second", Some(seen("Unschedulable", "first"))));
    bench.settle().await;
    bench.api.calm();
    bench.settle().await;
    assert_eq!(bench.api.writes().len(), writes);
    bench.stop.cancel();
    bench.writer.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_bound_pods_does_not_become_a_storm_of_events() {
    let bench = Bench::new();
    for number in 0..5000 {
        let name = ObjectName::new("team", format!("p{number}"));
        let pod = PodRef { name, uid: format!("uid-{number}").into() };
        bench.send(Report::PodBound { pod, node: "node-1".into() });
    }
    bench.settle().await;
    let events = bench.events();
    assert_eq!(events.len(), 64);
    let base = events[0]["metadata"]["generateName"].as_str().unwrap();
    assert!(base.ends_with('-'), "the API server refuses {base:?}");
    assert_eq!(events[0]["reason"], "Scheduled");
    assert_eq!(events[0]["type"], "Normal");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_know_who_asks_yet_gets_it_when_it_does() {
    let bench = Bench::new();
    bench.api.trouble_from(0, Trouble::Forbidden);
    bench.send(waits("Unschedulable", "no room", None));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(bench.writes_to(POD), 0);
    bench.api.calm();
    bench.settle().await;
    assert_eq!(bench.condition(POD)["message"], "no room");
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_for_good_is_not_asked_for_again_and_again() {
    let bench = Bench::new();
    bench.api.trouble_from(0, Trouble::Forbidden);
    bench.send(waits("Unschedulable", "no room", None));
    bench.settle().await;
    let asked = bench.api.count();
    bench.settle().await;
    assert_eq!(bench.api.count(), asked, "the first was given up");
    bench.send(waits("Unschedulable", "still no room", None));
    bench.settle().await;
    let each = bench.api.count() - asked;
    assert!(each <= 2, "the condition and its event, once each at most: {each}");
}
