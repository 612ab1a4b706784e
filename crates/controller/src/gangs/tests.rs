use serde_json::json;

use super::*;

fn pod(labels: &Value, group: Option<&str>, job: Option<&str>) -> Option<PodGang> {
    let owner = job.map(|name| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "j", "controller": true})
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "team", "name": "p", "uid": "u", "resourceVersion": "1", "labels": labels,
            "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
        },
        "spec": {"containers": [], "schedulingGroup": {"podGroupName": group}},
    });
    gang_of(&Pod::from_value(pod).unwrap())
}

fn gang(kind: GangKind, name: &str, minimum: Option<u32>) -> PodGang {
    let name = GangName { kind, namespace: "team".to_owned(), name: name.to_owned() };
    PodGang { name, minimum }
}

fn minimum(api_version: &str, kind: &str, spec: Value) -> u32 {
    let object = WatchedObject {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        spec,
        ..WatchedObject::default()
    };
    announced(&object).unwrap().1
}

#[test]
fn a_pods_gang_is_that_of_its_labels_its_group_or_its_job() {
    let labels = json!({"octavo.dev/pod-group": "g", "octavo.dev/gang": "4"});
    assert_eq!(pod(&labels, Some("n"), Some("j")), Some(gang(GangKind::PodGroup, "g", None)));
    assert_eq!(pod(&json!({}), Some("n"), None), Some(gang(GangKind::NativePodGroup, "n", None)));
    let labels = |value: &str| json!({"octavo.dev/gang": value});
    assert_eq!(pod(&labels("4"), None, Some("j")), Some(gang(GangKind::Job, "j", Some(4))));
    assert_eq!(pod(&labels("true"), None, Some("j")), Some(gang(GangKind::Job, "j", None)));
    assert_eq!(pod(&labels("false"), Some("n"), Some("j")), None);
    assert_eq!(pod(&labels("many"), None, Some("j")), None);
    assert_eq!(pod(&labels("4"), None, None), None);
    assert_eq!(pod(&json!({}), None, Some("j")), None);
}

#[test]
fn minimums_are_those_that_the_scheduler_takes() {
    let group = |spec| minimum("octavo.dev/v1alpha1", "PodGroup", spec);
    assert_eq!(group(json!({"minMember": 8})), 8);
    assert_eq!(group(json!({})), 1);
    let parts = json!([{"name": "a", "minMember": 2}, {"name": "b", "minMember": 6}]);
    assert_eq!(group(json!({"subGroups": parts})), 8);
    let native = |spec| minimum("scheduling.k8s.io/v1alpha2", "PodGroup", spec);
    assert_eq!(native(json!({"schedulingPolicy": {"gang": {"minCount": 5}}})), 5);
    assert_eq!(native(json!({"schedulingPolicy": {"basic": {}}})), 0);
    let job = |spec| minimum("batch/v1", "Job", spec);
    assert_eq!(job(json!({"parallelism": 4})), 4);
    assert_eq!(job(json!({"parallelism": 4, "completions": 3})), 3);
    assert!(announced(&WatchedObject::default()).is_none());
}
