use octavo_api::checkpoint::CheckpointRequest;
use serde_json::{Value, json};

use super::*;

/// 1970-01-12T13:46:40Z.
const NOW: u64 = 1_000_000;

fn eviction(device: &str, urgency: Urgency) -> Eviction {
    Eviction {
        node: "n".to_owned(),
        device: device.to_owned(),
        taint: ("gpu.nvidia.com/xid", "48".to_owned()),
        reason: "the driver reported XID 48".to_owned(),
        since: NOW,
        urgency,
    }
}

/// Pods leave `gpu-1` now.
fn granted(urgency: Urgency) -> Departures {
    Departures { evictions: vec![eviction("gpu-1", urgency)], ..Departures::default() }
}

/// They leave it in its turn.
fn in_turn(urgency: Urgency) -> Departures {
    Departures { waiting: vec![eviction("gpu-1", urgency)], ..Departures::default() }
}

/// A pod of a Job.
fn pod(annotations: &Value) -> Pod {
    let owners = json!([
        {"apiVersion": "example.com/v1", "kind": "Queue", "name": "q", "uid": "queue"},
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job", "controller": true},
    ]);
    let pod = json!({
        "metadata": {
            "name": "train-0", "namespace": "team", "uid": "u",
            "annotations": annotations, "ownerReferences": owners,
        },
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.7"},
    });
    serde_json::from_value(pod).unwrap()
}

fn hooked() -> Pod {
    pod(&json!({"checkpoint.octavo.dev/http": ":80/save"}))
}

fn claim(device: &str, tolerations: &Value) -> ResourceClaim {
    let result = json!({"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": device, "tolerations": tolerations});
    let claim = json!({
        "metadata": {"name": "c"}, "spec": {},
        "status": {"allocation": {"devices": {"results": [result]}}},
    });
    serde_json::from_value(claim).unwrap()
}

/// The announcement of a pod with `gpu-1`.
fn of(pod: &Pod, wanted: &Departures) -> Option<Departing> {
    let claims = [claim("gpu-1", &json!(null))];
    departing(pod, &claims, wanted, Some(&HealthFacts::default()), NOW)
}

/// What it says after pod, device, node and reason.
fn outlook_of(pod: &Pod, wanted: &Departures) -> String {
    let note = of(pod, wanted).unwrap().announcement.note;
    let start = "pod train-0 is to leave gpu-1 of node n: the driver reported XID 48; ";
    note.strip_prefix(start).unwrap_or_else(|| panic!("{note}")).to_owned()
}

#[test]
fn controller_and_pod_get_an_event_that_names_pod_device_node_and_reason() {
    let found = of(&pod(&json!({})), &granted(Urgency::Evicted)).unwrap();
    assert_eq!((&*found.uid, found.urgency), ("u", Urgency::Evicted));
    let Announcement { to, reason, note, is_warning } = found.announcement;
    assert_eq!((reason, is_warning), ("EvictionPlanned", true));
    let to = to.iter().map(|it| {
        assert_eq!(it.namespace.as_deref(), Some("team"));
        let text = |part: &Option<String>| part.clone().unwrap();
        [text(&it.api_version), text(&it.kind), text(&it.name), text(&it.uid)].join(" ")
    });
    assert_eq!(to.collect::<Vec<_>>(), ["batch/v1 Job train job", "v1 Pod train-0 u"]);
    let expected = "pod train-0 is to leave gpu-1 of node n: the driver reported XID 48; \
        now it is evicted under its disruption budgets";
    assert_eq!(note, expected);
    let mut alone = pod(&json!({}));
    alone.metadata.owner_references = None;
    let found = of(&alone, &granted(Urgency::Evicted)).unwrap().announcement.to;
    assert_eq!(found.iter().map(|it| it.kind.as_deref()).collect::<Vec<_>>(), [Some("Pod")]);
}

#[test]
fn an_event_says_what_happens_when() {
    let plain = pod(&json!({}));
    let turn = "in its turn, within the budget of evictions, it is";
    assert_eq!(
        outlook_of(&plain, &in_turn(Urgency::Evicted)),
        format!("{turn} evicted under its disruption budgets")
    );
    let is_deleted = "deleted, since no process can use the GPU";
    assert_eq!(outlook_of(&plain, &in_turn(Urgency::Deleted)), format!("{turn} {is_deleted}"));
    let dead = granted(Urgency::Deleted);
    assert_eq!(outlook_of(&hooked(), &dead), format!("now it is {is_deleted}"));
    let saves = "it is asked to save its work, and is evicted";
    assert_eq!(
        outlook_of(&hooked(), &granted(Urgency::Evicted)),
        format!("now {saves} under its disruption budgets once it has, or after 60 s")
    );
    assert_eq!(
        outlook_of(&hooked(), &granted(Urgency::AtCheckpoint)),
        format!("now {saves} once it has")
    );
    let wrong = pod(&json!({"checkpoint.octavo.dev/http": "no port"}));
    let evicted = "now it is evicted under its disruption budgets";
    assert_eq!(outlook_of(&wrong, &granted(Urgency::Evicted)), evicted);
}

#[test]
fn a_pod_that_was_asked_has_its_deadline_in_the_event() {
    let requests = vec![CheckpointRequest {
        uid: "u".to_owned(),
        since: date(NOW - 10),
        deadline_seconds: 60,
        ..CheckpointRequest::default()
    }];
    let health = HealthFacts { requests, ..HealthFacts::default() };
    let claims = [claim("gpu-1", &json!(null))];
    let found = departing(&hooked(), &claims, &granted(Urgency::Evicted), Some(&health), NOW);
    let note = found.unwrap().announcement.note;
    let end = "now it saves its work until 1970-01-12T13:48:00Z, and is then evicted under its disruption budgets";
    assert!(note.ends_with(end), "{note}");
}

#[test]
fn pods_that_stay_or_leave_already_are_not_announced() {
    let evicted = granted(Urgency::Evicted);
    let of_claims = |claims: &[ResourceClaim]| {
        let health = HealthFacts::default();
        departing(&pod(&json!({})), claims, &evicted, Some(&health), NOW)
    };
    assert_eq!(of_claims(&[]), None);
    assert_eq!(of_claims(&[claim("gpu-0", &json!(null))]), None);
    let tolerates = |seconds: Value| json!([{"key": "gpu.nvidia.com/xid", "operator": "Exists", "tolerationSeconds": seconds}]);
    assert_eq!(of_claims(&[claim("gpu-1", &tolerates(json!(null)))]), None, "it stays for ever");
    let later = of_claims(&[claim("gpu-1", &tolerates(json!(300)))]).unwrap().announcement.note;
    let end = "at 1970-01-12T13:51:40Z, when its claim no longer tolerates that, \
        it is evicted under its disruption budgets";
    assert!(later.ends_with(end), "{later}");
    let mut leaving = pod(&json!({}));
    let time = jiff::Timestamp::from_second(1_000_030).unwrap();
    leaving.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time));
    assert_eq!(of(&leaving, &evicted), None);
    let at_checkpoint = granted(Urgency::AtCheckpoint);
    assert_eq!(of(&pod(&json!({})), &at_checkpoint), None, "it runs to its end");
    assert_eq!(of(&hooked(), &Departures::default()), None);
}

#[test]
fn of_several_devices_of_a_pod_the_most_urgent_and_soonest_is_named() {
    let claims = ["gpu-0", "gpu-1", "gpu-2", "gpu-3"].map(|gpu| claim(gpu, &json!(null)));
    let wanted = Departures {
        evictions: vec![
            eviction("gpu-0", Urgency::AtCheckpoint),
            eviction("gpu-2", Urgency::Evicted),
            eviction("gpu-3", Urgency::Evicted),
        ],
        waiting: vec![eviction("gpu-1", Urgency::Evicted)],
        ..Departures::default()
    };
    let health = HealthFacts::default();
    let found = departing(&hooked(), &claims, &wanted, Some(&health), NOW).unwrap();
    let note = found.announcement.note;
    assert!(note.starts_with("pod train-0 is to leave gpu-2 of node n"), "{note}");
}

#[test]
fn a_pod_is_announced_once_for_an_eviction_and_again_for_the_next() {
    let mut announced = Announced::default();
    let none = BTreeSet::new();
    let found = |urgency| Vec::from_iter(of(&hooked(), &granted(urgency)));
    let mut round = |found: Vec<Departing>, unread: &BTreeSet<String>| {
        let open = announced.open("n", found, unread);
        for pod in &open {
            announced.note("n", pod);
        }
        open.len()
    };
    let waiting = Vec::from_iter(of(&hooked(), &in_turn(Urgency::Evicted)));
    assert_eq!(round(waiting, &none), 1);
    for _ in 0..3 {
        assert_eq!(round(found(Urgency::Evicted), &none), 0, "its turn is no other eviction");
    }
    // A look at which the claim cannot be read ends nothing.
    assert_eq!(round(Vec::new(), &["u".to_owned()].into()), 0);
    assert_eq!(round(found(Urgency::Evicted), &none), 0);
    // The device returns, and fails again.
    assert_eq!(round(Vec::new(), &none), 0);
    assert_eq!(round(found(Urgency::AtCheckpoint), &none), 1);
    assert_eq!(round(found(Urgency::Evicted), &none), 1, "a fence does not wait for its work");
    assert_eq!(round(found(Urgency::AtCheckpoint), &none), 0);
    announced.retain(|node| node != "n");
    assert_eq!(announced.open("n", found(Urgency::Evicted), &none).len(), 1);
    let other = announced.open("other", found(Urgency::Evicted), &none);
    assert_eq!(other.len(), 1, "nodes are apart");
}
