use std::time::Duration;

use octavo_api::names::OCTAVO_API_VERSION;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::bind::tests::fake_api::{FakeApi, InjectedFault};
use crate::bind::{Leadership, Load};
use crate::metrics::Metrics;

const POD: &str = "/api/v1/namespaces/team/pods/p";
const GROUP: &str = "/apis/octavo.dev/v1alpha1/namespaces/team/podgroups/g";
const NATIVE: &str = "/apis/scheduling.k8s.io/v1alpha2/namespaces/team/podgroups/g";
const POLICY: &str = "/apis/octavo.dev/v1alpha1/placementpolicies/dense";

struct Harness {
    api: FakeApi,
    writer: StatusWriter,
    load: Load,
    stop: CancellationToken,
}

impl Harness {
    fn new() -> Self {
        Self::with_options(StatusOptions::new("octavo", "octavo-0"))
    }

    fn with_options(options: StatusOptions) -> Self {
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
            options,
            Leadership::new(move || lease.lease()),
            load.clone(),
            metrics,
            stop.clone(),
        );
        Self { api, writer, load, stop }
    }

    fn send(&self, report: StatusUpdate) {
        self.writer.sender.send(report);
    }

    /// Waits until nothing runs. Time is paused, so this is immediate.
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

fn waits(reason: &'static str, message: &str, seen: Option<ScheduledCondition>) -> StatusUpdate {
    let status_text = StatusText { reason, message: message.to_owned() };
    StatusUpdate::PodUnschedulable { pod: pod(), status_text, seen }
}

fn seen(reason: &str, message: &str) -> ScheduledCondition {
    let (reason, message) = (reason.to_owned(), message.to_owned());
    ScheduledCondition { is_true: false, reason, message }
}

fn group(api_version: &str, phase: GroupPhase, bound: u32) -> StatusUpdate {
    StatusUpdate::Group(GroupStatus {
        kind: Kind::new(api_version, "PodGroup"),
        name: ObjectName::new("team", "g"),
        uid: "uid-g".into(),
        generation: 3,
        phase,
        status_text: StatusText { reason: phase.name(), message: format!("{bound} of 4") },
        present: [("".into(), 4)].into(),
        bound: [("".into(), bound)].into(),
        domain: (bound > 0).then(|| "rack r1".to_owned()),
    })
}

#[tokio::test(start_paused = true)]
async fn unschedulable_pod_is_reported_once() {
    let harness = Harness::new();
    harness.send(waits("Unschedulable", "no node has 8 GPUs", None));
    harness.settle().await;
    let condition = harness.condition(POD);
    assert_eq!(condition["type"], "PodScheduled");
    assert_eq!(condition["status"], "False");
    assert_eq!(condition["reason"], "Unschedulable");
    let since = condition["lastTransitionTime"].clone();
    assert!(since.as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    // The condition is as observed: nothing is written.
    harness.send(waits(
        "Unschedulable",
        "no node has 8 GPUs",
        Some(seen("Unschedulable", "no node has 8 GPUs")),
    ));
    harness.settle().await;
    assert_eq!(harness.writes_to(POD), 1);
    // The message changed, but status and reason did not: the time stays, and there is no event.
    harness.send(waits(
        "Unschedulable",
        "no node is up",
        Some(seen("Unschedulable", "no node has 8 GPUs")),
    ));
    harness.settle().await;
    assert_eq!(harness.writes_to(POD), 2);
    assert_eq!(harness.condition(POD)["message"], "no node is up");
    assert_eq!(harness.condition(POD)["lastTransitionTime"], since);
    let events = harness.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["reason"], "FailedScheduling");
    assert_eq!(events[0]["type"], "Warning");
    assert_eq!(events[0]["regarding"]["uid"], "uid-p");
    assert_eq!(events[0]["reportingController"], "octavo");
}

#[tokio::test(start_paused = true)]
async fn superseded_updates_are_never_written() {
    let harness = Harness::new();
    harness.load.set(1);
    for number in 0..500 {
        harness.send(waits("Unschedulable", &format!("{number} nodes"), None));
    }
    harness.settle().await;
    assert_eq!(harness.writes_to(POD), 1);
    assert_eq!(harness.condition(POD)["message"], "499 nodes");
    harness.send(waits("Unschedulable", "soon bound", None));
    harness.send(StatusUpdate::PodBound { pod: pod(), node: "node-1".into(), loan: None });
    harness.settle().await;
    assert_eq!(harness.writes_to(POD), 1, "a bound pod is not reported as unschedulable");
}

#[tokio::test(start_paused = true)]
async fn gang_status_is_written_once_a_second_with_the_newest_state() {
    let harness = Harness::new();
    let begun = Instant::now();
    for bound in 0..=4 {
        let phase = if bound == 4 { GroupPhase::Scheduled } else { GroupPhase::Binding };
        for _ in 0..40 {
            harness.send(group(OCTAVO_API_VERSION, phase, bound));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
    harness.settle().await;
    let writes = harness.writes_to(GROUP);
    assert!((2..=4).contains(&writes), "{writes} in two seconds");
    let status = harness.api.object(GROUP).unwrap()["status"].clone();
    assert_eq!(status["phase"], "Scheduled");
    assert_eq!(
        (&status["min"], &status["present"], &status["bound"]),
        (&json!(4), &json!(4), &json!(4))
    );
    assert_eq!(status["observedGeneration"], 3);
    assert_eq!(status["domain"], "rack r1");
    assert_eq!(status["conditions"][0]["type"], "Scheduled");
    assert_eq!(status["conditions"][0]["status"], "True");
    // An unchanged status is read, but not written.
    harness.send(group(OCTAVO_API_VERSION, GroupPhase::Scheduled, 4));
    harness.settle().await;
    assert_eq!(harness.writes_to(GROUP), writes);
    // Fields without a value are removed.
    harness.send(group(OCTAVO_API_VERSION, GroupPhase::Waiting, 0));
    harness.settle().await;
    let status = harness.api.object(GROUP).unwrap()["status"].clone();
    assert!(status["domain"].is_null(), "{status}");
    assert_eq!(status["conditions"][0]["status"], "False");
}

#[tokio::test(start_paused = true)]
async fn native_pod_group_keeps_a_true_condition() {
    const VERSION: &str = "scheduling.k8s.io/v1alpha2";
    let harness = Harness::new();
    harness.send(group(VERSION, GroupPhase::Waiting, 0));
    harness.settle().await;
    let condition = harness.condition(NATIVE);
    assert_eq!(condition["type"], "PodGroupScheduled");
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("Unschedulable"))
    );
    harness.send(group(VERSION, GroupPhase::Scheduled, 4));
    harness.settle().await;
    assert_eq!(harness.condition(NATIVE)["status"], "True");
    assert_eq!(harness.condition(NATIVE)["reason"], "Scheduled");
    harness.send(group(VERSION, GroupPhase::Repairing, 3));
    harness.settle().await;
    assert_eq!(harness.condition(NATIVE)["status"], "True");
    assert_eq!(harness.writes_to(NATIVE), 2);
    assert_eq!(harness.writes_to(GROUP), 0);
}

#[tokio::test(start_paused = true)]
async fn workloads_without_our_status_get_events_only() {
    let harness = Harness::new();
    let mut report = group("jobset.x-k8s.io/v1alpha2", GroupPhase::Waiting, 0);
    if let StatusUpdate::Group(group) = &mut report {
        group.kind.kind = "JobSet".to_owned();
    }
    for _ in 0..3 {
        harness.send(report.clone());
        harness.settle().await;
    }
    assert_eq!(harness.events().len(), 1, "repeated within minutes: one event");
    assert_eq!(harness.events()[0]["regarding"]["kind"], "JobSet");
    assert_eq!(harness.api.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_policy_says_whether_it_is_used() {
    let harness = Harness::new();
    let error = StatusText { reason: "UnknownUnit", message: "steps[0] names parsecs".to_owned() };
    let policy = |error| StatusUpdate::Policy { name: "dense".into(), generation: 3, error };
    harness.send(policy(Some(error)));
    harness.settle().await;
    assert_eq!(harness.condition(POLICY)["type"], "Accepted");
    assert_eq!(harness.condition(POLICY)["status"], "False");
    assert_eq!(harness.condition(POLICY)["reason"], "UnknownUnit");
    assert_eq!(harness.events()[0]["metadata"]["namespace"], "default");
    harness.send(policy(None));
    harness.settle().await;
    assert_eq!(harness.condition(POLICY)["status"], "True");
    harness.send(policy(None));
    harness.settle().await;
    assert_eq!(harness.writes_to(POLICY), 2);
}

#[tokio::test(start_paused = true)]
async fn statuses_are_rate_limited_and_yield_to_bindings() {
    let harness = Harness::new();
    for number in 0..2000 {
        let name = ObjectName::new("team", format!("p{number}"));
        let pod = PodRef { name, uid: format!("uid-{number}").into() };
        let status_text = StatusText { reason: "Unschedulable", message: String::new() };
        harness.send(StatusUpdate::PodUnschedulable { pod, status_text, seen: None });
    }
    // Rejected writes count too: these pods do not exist.
    let count = |harness: &Harness| harness.api.count();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let idle = count(&harness);
    assert!((490..=515).contains(&idle), "{idle} in ten seconds");
    harness.load.set(64);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let busy = count(&harness) - idle;
    assert!((90..=112).contains(&busy), "{busy} in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn overload_delays_a_status_and_a_lost_lease_drops_it() {
    let harness = Harness::new();
    harness.api.inject(0, InjectedFault::Status(429));
    harness.api.inject(1, InjectedFault::LostBefore);
    harness.send(waits("Unschedulable", "first", None));
    harness.settle().await;
    assert_eq!(harness.condition(POD)["message"], "first");
    let writes = harness.api.writes().len();
    harness.api.inject_from(0, InjectedFault::NotLeader);
    harness.send(waits("Unschedulable", "second", Some(seen("Unschedulable", "first"))));
    harness.settle().await;
    harness.api.clear_faults();
    harness.settle().await;
    assert_eq!(harness.api.writes().len(), writes);
    harness.stop.cancel();
    harness.writer.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn events_of_bound_pods_are_limited() {
    let harness = Harness::new();
    for number in 0..5000 {
        let name = ObjectName::new("team", format!("p{number}"));
        let pod = PodRef { name, uid: format!("uid-{number}").into() };
        harness.send(StatusUpdate::PodBound { pod, node: "node-1".into(), loan: None });
    }
    harness.settle().await;
    let events = harness.events();
    assert_eq!(events.len(), 64);
    let base = events[0]["metadata"]["generateName"].as_str().unwrap();
    assert!(base.ends_with('-'), "the API server refuses {base:?}");
    assert_eq!(events[0]["reason"], "Scheduled");
    assert_eq!(events[0]["type"], "Normal");
}

#[tokio::test(start_paused = true)]
async fn every_bound_pod_gets_an_event_if_asked_for_even_under_load() {
    let options = StatusOptions::new("octavo", "octavo-0");
    let harness = Harness::with_options(options.with_scheduled_events(ScheduledEvents::All));
    harness.load.set(64);
    for number in 0..5000 {
        let name = ObjectName::new("team", format!("p{number}"));
        let pod = PodRef { name, uid: format!("uid-{number}").into() };
        harness.send(StatusUpdate::PodBound { pod, node: "node-1".into(), loan: None });
    }
    harness.settle().await;
    assert_eq!(harness.events().len(), 5000);
}

#[tokio::test(start_paused = true)]
async fn denied_status_is_retried_while_the_server_starts() {
    let harness = Harness::new();
    harness.api.inject_from(0, InjectedFault::Forbidden);
    harness.send(waits("Unschedulable", "no room", None));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(harness.writes_to(POD), 0);
    harness.api.clear_faults();
    harness.settle().await;
    assert_eq!(harness.condition(POD)["message"], "no room");
}

#[tokio::test(start_paused = true)]
async fn permanently_denied_status_is_not_retried() {
    let harness = Harness::new();
    harness.api.inject_from(0, InjectedFault::Forbidden);
    harness.send(waits("Unschedulable", "no room", None));
    harness.settle().await;
    let asked = harness.api.count();
    harness.settle().await;
    assert_eq!(harness.api.count(), asked, "the first was given up");
    harness.send(waits("Unschedulable", "still no room", None));
    harness.settle().await;
    let each = harness.api.count() - asked;
    assert!(each <= 2, "the condition and its event, once each at most: {each}");
}

fn waits_as(name: &str, message: &str, seen: Option<ScheduledCondition>) -> StatusUpdate {
    let pod = PodRef { name: ObjectName::new("team", name), uid: format!("uid-{name}").into() };
    let status_text = StatusText { reason: "Unschedulable", message: message.to_owned() };
    StatusUpdate::PodUnschedulable { pod, status_text, seen }
}

fn path(pod: &str) -> String {
    format!("/api/v1/namespaces/team/pods/{pod}")
}

#[tokio::test(start_paused = true)]
async fn first_condition_of_a_new_pod_does_not_wait_for_a_backlog() {
    let harness = Harness::new();
    for number in 0..2000 {
        let name = format!("old-{number}");
        harness
            .api
            .put(&path(&name), json!({"metadata": {"name": name, "uid": format!("uid-{name}")}}));
        harness.send(waits_as(&name, "no node has 8 GPUs", None));
    }
    // Bindings come first, so few statuses are written.
    harness.load.set(1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    harness.send(waits("Unschedulable", "no node has 8 GPUs", None));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(harness.writes_to(POD), 1);
    assert_eq!(harness.writes_to(&path("old-0")), 1, "the oldest are written, too");
}

#[tokio::test(start_paused = true)]
async fn a_text_is_written_once_a_minute_and_last_of_all() {
    let harness = Harness::new();
    harness.send(waits("Unschedulable", "at most 3 of 8", None));
    tokio::time::sleep(Duration::from_secs(5)).await;
    for number in 0..50 {
        let observed = seen("Unschedulable", "at most 3 of 8");
        harness.send(waits("Unschedulable", &format!("at most {number} of 80"), Some(observed)));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(harness.writes_to(POD), 1, "the first only");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(harness.writes_to(POD), 2);
    assert_eq!(harness.condition(POD)["message"], "at most 49 of 80", "the newest text");
    // A condition with another reason is written at once.
    let observed = seen("Unschedulable", "at most 49 of 80");
    harness.send(waits("WaitingForClaims", "claim c is not there", Some(observed)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(harness.condition(POD)["reason"], "WaitingForClaims");
}
