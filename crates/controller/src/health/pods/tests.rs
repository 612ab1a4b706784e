use serde_json::{Value, json};

use super::*;
use crate::health::lost_nodes::LostNode;

const SINCE: u64 = 1_000;

fn eviction(device: &str, urgency: Urgency) -> Eviction {
    Eviction {
        node: "n".to_owned(),
        device: device.to_owned(),
        taint: ("gpu.nvidia.com/xid", "48".to_owned()),
        reason: "the driver reported XID 48".to_owned(),
        since: SINCE,
        urgency,
    }
}

fn pod(status: &Value) -> Pod {
    let pod = json!({
        "metadata": {"name": "p", "namespace": "team", "uid": "u"},
        "spec": {"containers": [], "resourceClaims": [{"name": "a", "resourceClaimName": "shared"}, {"name": "b", "resourceClaimTemplateName": "t"}]},
        "status": status,
    });
    serde_json::from_value(pod).unwrap()
}

fn claim(driver: &str, pool: &str, device: &str, tolerations: &Value) -> ResourceClaim {
    let result = json!({"request": "gpu", "driver": driver, "pool": pool, "device": device, "tolerations": tolerations});
    let claim = json!({
        "metadata": {"name": "c"}, "spec": {},
        "status": {"allocation": {"devices": {"results": [result]}}},
    });
    serde_json::from_value(claim).unwrap()
}

fn leaves(claim: ResourceClaim, now: u64) -> bool {
    victim(&pod(&json!({})), &[claim], &[eviction("gpu-1", Urgency::Evicted)], now).is_some()
}

#[test]
fn a_pod_has_named_claims_those_made_for_it_and_that_of_its_extended_resources() {
    let status = json!({
        "phase": "Running",
        "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-x1"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "p-extended", "requestMappings": []},
    });
    assert_eq!(held_by(&pod(&status)), ["shared", "p-b-x1", "p-extended"]);
    assert!(held_by(&pod(&json!({"phase": "Succeeded"}))).is_empty());
    let mut leaving = pod(&status);
    let time: jiff::Timestamp = "2028-01-01T00:00:00Z".parse().unwrap();
    leaving.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time));
    let claims = [claim("gpu.nvidia.com", "n", "gpu-1", &json!(null))];
    let evictions = [eviction("gpu-1", Urgency::Deleted)];
    assert_eq!(victim(&leaving, &claims, &evictions, SINCE), None, "it leaves already");
}

#[test]
fn shares_and_mig_instances_leave_with_their_gpu_and_nothing_else_does() {
    let none = json!(null);
    for device in ["gpu-1", "gpu-1-mig-1g.10gb-19-0"] {
        assert!(leaves(claim("gpu.nvidia.com", "n", device, &none), SINCE), "{device}");
        assert!(leaves(claim("gpu.nvidia.com", "n/mig", device, &none), SINCE), "{device}");
    }
    for (driver, pool, device) in [
        ("gpu.nvidia.com", "n", "gpu-10"),
        ("gpu.nvidia.com", "n", "gpu-0-mig-1g.10gb-19-0"),
        ("gpu.nvidia.com", "n2", "gpu-1"),
        ("compute-domain.nvidia.com", "n", "gpu-1"),
    ] {
        assert!(!leaves(claim(driver, pool, device, &none), SINCE), "{driver} {pool} {device}");
    }
    assert_eq!(victim(&pod(&json!({})), &[], &[eviction("gpu-1", Urgency::Evicted)], SINCE), None);
}

#[test]
fn a_pod_says_why_and_is_deleted_from_a_dead_gpu() {
    let claims = [claim("gpu.nvidia.com", "n", "gpu-1", &json!(null))];
    let found =
        victim(&pod(&json!({})), &claims, &[eviction("gpu-1", Urgency::Deleted)], SINCE).unwrap();
    assert_eq!((&*found.namespace, &*found.name, &*found.uid), ("team", "p", "u"));
    assert_eq!(found.note, "gpu-1 of node n is out of service: the driver reported XID 48");
    assert_eq!(found.urgency, Urgency::Deleted);
    let found =
        victim(&pod(&json!({})), &claims, &[eviction("gpu-1", Urgency::Evicted)], SINCE).unwrap();
    assert_eq!(found.urgency, Urgency::Evicted);
}

#[test]
fn tolerations_of_the_taint_are_respected() {
    let last = |tolerations: Value| {
        let at = |now| leaves(claim("gpu.nvidia.com", "n", "gpu-1", &tolerations), now);
        [SINCE, SINCE + 299, SINCE + 300, u64::MAX].map(at)
    };
    let key = "gpu.nvidia.com/xid";
    let of_key = |more: Value| {
        let mut toleration = json!({"key": key, "operator": "Exists"});
        toleration.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        toleration
    };
    assert_eq!(last(json!([of_key(json!({}))])), [false; 4]);
    assert_eq!(last(json!([{"operator": "Exists", "effect": "NoExecute"}])), [false; 4]);
    let timed = of_key(json!({"effect": "NoExecute", "tolerationSeconds": 300}));
    assert_eq!(last(json!([timed])), [false, false, true, true]);
    let both = json!([timed, of_key(json!({}))]);
    assert_eq!(last(both), [false, false, true, true], "the shortest counts");
    for other in [
        json!({"key": "other", "operator": "Exists"}),
        of_key(json!({"effect": "NoSchedule"})),
        json!({"key": key, "operator": "Equal", "value": "79"}),
        json!({"key": key}),
        json!({"key": "octavo.dev/health", "operator": "Exists"}),
        json!({"key": key, "operator": "Near", "value": "48"}),
    ] {
        assert_eq!(last(json!([other])), [true; 4], "{other}");
    }
    for same in [
        json!({"key": key, "operator": "Equal", "value": "48"}),
        json!({"key": key, "value": "48", "effect": ""}),
    ] {
        assert_eq!(last(json!([same])), [false; 4], "{same}");
    }
}

#[test]
fn access_for_administrators_is_no_reason_to_leave() {
    for (admin, is_left) in [(json!(true), false), (json!(false), true), (json!(null), true)] {
        let mut claim = claim("gpu.nvidia.com", "n", "gpu-1", &json!(null));
        let allocation = claim.status.as_mut().unwrap().allocation.as_mut().unwrap();
        let results = allocation.devices.as_mut().unwrap().results.as_mut().unwrap();
        results[0].admin_access = admin.as_bool();
        assert_eq!(leaves(claim, SINCE), is_left, "{admin}");
    }
}

#[test]
fn of_several_devices_of_a_pod_the_most_urgent_counts() {
    let claims =
        ["gpu-0", "gpu-1", "gpu-2"].map(|gpu| claim("gpu.nvidia.com", "n", gpu, &json!(null)));
    let evictions = [
        eviction("gpu-0", Urgency::AtCheckpoint),
        eviction("gpu-1", Urgency::Evicted),
        eviction("gpu-2", Urgency::Evicted),
    ];
    let found = victim(&pod(&json!({})), &claims, &evictions, SINCE).unwrap();
    assert_eq!(found.urgency, Urgency::Evicted);
    assert!(found.note.starts_with("gpu-1"), "{}", found.note);
}

#[test]
fn a_pod_leaves_a_suspect_device_only_with_its_work_saved() {
    let claims = [claim("gpu.nvidia.com", "n", "gpu-1", &json!(null))];
    let at = |urgency| {
        let evictions = [eviction("gpu-1", urgency)];
        victim(&pod(&json!({})), &claims, &evictions, SINCE).unwrap()
    };
    let failed = || Progress::NotSaved("answer 500".to_owned());
    for (urgency, leaves) in [(Urgency::AtCheckpoint, false), (Urgency::Evicted, true)] {
        assert!(at(urgency).after(&Progress::Saved).is_some());
        assert_eq!(at(urgency).after(&Progress::NoHook).is_some(), leaves);
        assert_eq!(at(urgency).after(&failed()).is_some(), leaves);
    }
    let note = at(Urgency::Evicted).after(&failed()).unwrap().note;
    assert!(note.ends_with("48; the work of the pod is not saved: answer 500"), "{note}");
}

#[test]
fn zero_gpus_are_no_gpu() {
    let has_gpus = |count: &str| {
        let limits =
            json!([{"name": "c", "resources": {"limits": {"nvidia.com/gpu": count, "cpu": "1"}}}]);
        let pod = json!({"metadata": {"name": "p", "namespace": "team", "uid": "u"}, "spec": {"containers": limits}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert_eq!(pod_with_gpus(&pod, &[], "").is_some(), owner(&pod).is_some());
        pod_with_gpus(&pod, &[], "").is_some()
    };
    assert_eq!(
        ["0", "0.0", "0k", "1", "10", "1k"].map(has_gpus),
        [false, false, false, true, true, true]
    );
}

#[test]
fn members_of_gangs_leave_a_lost_node_after_the_longer_of_setting_and_tolerations() {
    let lost =
        LostNode { since: SINCE, after: 60, scheduler: "octavo".to_owned(), is_evicted: false };
    let pod = |labels: Value, more: Value| -> Pod {
        let mut spec = json!({"containers": [], "schedulerName": "octavo"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let pod = json!({"metadata": {"name": "p", "namespace": "team", "uid": "u", "labels": labels}, "spec": spec});
        serde_json::from_value(pod).unwrap()
    };
    let gang = || json!({"octavo.dev/pod-group": "g"});
    let tolerates = |seconds: Value| {
        json!({"tolerations": [{"key": "node.kubernetes.io/unreachable", "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": seconds}]})
    };
    let due = |pod: &Pod, lost: &LostNode| match member(pod, "n", lost, SINCE) {
        Some(GangMember::Waits(until)) => Some(until - SINCE),
        Some(GangMember::Due(_)) => Some(0),
        found => panic!("{found:?}"),
    };
    assert_eq!(due(&pod(gang(), json!({})), &lost), Some(60));
    assert_eq!(due(&pod(gang(), tolerates(json!(300))), &lost), Some(300));
    assert_eq!(due(&pod(gang(), tolerates(json!(1))), &lost), Some(60));
    assert_eq!(due(&pod(gang(), tolerates(json!(null))), &lost), Some(u64::MAX - SINCE), "never");
    let shut_down = LostNode { after: 0, ..lost.clone() };
    assert_eq!(due(&pod(gang(), tolerates(json!(300))), &shut_down), Some(0));
    let found = member(&pod(gang(), json!({})), "n", &lost, SINCE + 60);
    let Some(GangMember::Due(victim)) = found else { panic!("{found:?}") };
    assert_eq!((victim.reason, victim.urgency), ("NodeLost", Urgency::Deleted));
    assert_eq!(victim.note, "node n is lost; the gang gets a new member on another node");
    assert_eq!(member(&pod(json!({}), json!({})), "n", &lost, SINCE), None, "no gang");
    let other = pod(gang(), json!({"schedulerName": "default-scheduler"}));
    assert_eq!(member(&other, "n", &lost, SINCE), None);
    let mut leaving = pod(gang(), json!({}));
    let time = jiff::Timestamp::from_second(1_030).unwrap();
    leaving.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time));
    leaving.metadata.deletion_grace_period_seconds = Some(30);
    assert_eq!(member(&leaving, "n", &lost, SINCE), Some(GangMember::Leaves(1_000)));
}
