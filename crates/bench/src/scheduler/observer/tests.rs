use super::*;

fn pod(name: &str, uid: &str, node: Option<&str>) -> Pod {
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": name, "uid": uid}, "spec": {"nodeName": node},
    }))
    .unwrap()
}

#[test]
fn bound_pods_of_a_set_are_counted_once_and_removed() {
    let mut seen = ObservedState::default();
    seen.pod(Change::Replace(vec![pod("a-0", "1", None), pod("b-0", "2", Some("n"))]));
    seen.pod(Change::Upsert(pod("a-0", "1", Some("n"))));
    seen.pod(Change::Upsert(pod("a-0", "1", Some("n"))));
    assert_eq!((seen.bound("a"), seen.bound("b"), seen.bound("c")), (1, 1, 0));
    seen.pod(Change::Delete(pod("a-0", "1", Some("n"))));
    assert_eq!(seen.bound("a"), 0);
    assert_eq!(seen.gone.len(), 1);
    seen.pod(Change::Replace(Vec::new()));
    assert_eq!((seen.bound("b"), seen.gone.len()), (0, 2));
}

#[test]
fn a_name_that_is_used_again_is_another_pod() {
    let mut seen = ObservedState::default();
    seen.pod(Change::Upsert(pod("a-0", "1", Some("n"))));
    seen.pod(Change::Upsert(pod("a-0", "2", None)));
    assert_eq!((seen.bound("a"), seen.gone.len()), (0, 1));
    assert_eq!(seen.pods["a-0"].uid, "2");
}

#[test]
fn first_waiting_reason_is_kept() {
    let mut seen = ObservedState::default();
    let waiting = |reason: &str| -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "a-0", "uid": "1"},
            "status": {"conditions": [
                {"type": "PodScheduled", "status": "False", "reason": reason, "message": "m"},
            ]},
        }))
        .unwrap()
    };
    seen.pod(Change::Upsert(waiting("Unschedulable")));
    seen.pod(Change::Upsert(waiting("Other")));
    assert_eq!(seen.pods["a-0"].waiting.as_ref().unwrap().reason, "Unschedulable");
    let group = |phase: &str, reason: &str| -> Group {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "g"},
            "status": {"phase": phase, "conditions": [{"type": "Scheduled", "status": "False", "reason": reason}]},
        }))
        .unwrap()
    };
    seen.group(Change::Upsert(group("Gathering", "PodsMissing")));
    assert!(seen.groups.is_empty());
    seen.group(Change::Upsert(group("Waiting", "NoPlace")));
    assert_eq!(seen.groups["g"].reason, "NoPlace");
}
