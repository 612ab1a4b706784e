//! Changes that change nothing requeue nothing.

use std::sync::Arc;

use octavo_kube_io::objects::{
    Budget, Change, CsiNode, Delta, DeviceClass, Kind, Meta, PersistentVolume, StorageClass,
    VolumeClaim, WatchedObject,
};
use serde_json::{Value, json};

use super::claims::slice;
use super::fixtures::{Testbed, budget, node, pod, with};

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}"),
        "resourceVersion": "1"}})
}

/// An object of each kind in two versions each, as an update and as a list.
fn unchanged() -> Vec<(&'static str, [Change; 4])> {
    macro_rules! of {
        ($change:ident, $kind:ident, $object:expr) => {{
            let read = |version: &str| {
                let object = with($object, "/metadata/resourceVersion", json!(version));
                Arc::new($kind::from_value(object).expect("an object"))
            };
            let kind = || Kind::new("octavo.dev/v1alpha1", "PlacementPolicy");
            let all = |version: &str| Change::$change(Delta::Replace(kind(), vec![read(version)]));
            let set = |version: &str| Change::$change(Delta::Upsert(read(version)));
            (stringify!($change), [set("1"), set("2"), all("3"), all("4")])
        }};
    }
    let policy = json!({"apiVersion": "octavo.dev/v1alpha1", "kind": "PlacementPolicy",
        "metadata": {"name": "p", "uid": "uid-p", "generation": 1}, "spec": {}});
    let claim = with(named("claim"), "/spec", json!({"volumeName": "volume"}));
    let claim = with(claim, "/status/phase", json!("Bound"));
    let drivers = json!({"drivers": [{"name": "csi", "allocatable": {"count": 3}}]});
    let volume = json!({"csi": {"driver": "csi", "volumeHandle": "h"}});
    vec![
        of!(Budget, Budget, budget("web", json!({"app": "web"}), 0)),
        of!(VolumeClaim, VolumeClaim, claim.clone()),
        of!(Volume, PersistentVolume, with(named("volume"), "/spec", volume.clone())),
        of!(StorageClass, StorageClass, named("class")),
        of!(CsiNode, CsiNode, with(named("a"), "/spec", drivers.clone())),
        of!(Namespace, Meta, named("team")),
        of!(Class, DeviceClass, named("gpu")),
        of!(Object, WatchedObject, policy.clone()),
    ]
}

#[test]
fn unchanged_objects_requeue_nothing() {
    for (kind, [first, again, all, all_again]) in unchanged() {
        let mut testbed = Testbed::new();
        testbed.node(&node("a", 1));
        // One pod with volumes, and one without.
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]);
        testbed.pod(&with(pod("p", "2"), "/spec/volumes", volumes));
        testbed.pod(&pod("q", "2"));
        testbed.scheduler.apply(&first);
        assert_eq!(testbed.ops(), []);
        assert_eq!(
            (testbed.scheduler.counts().waiting, testbed.scheduler.counts().ready),
            (2, 0),
            "{kind}"
        );
        for change in [again, all, all_again] {
            testbed.scheduler.apply(&change);
            assert!(!testbed.scheduler.cache.has_changes(), "{kind}: {change:?}");
        }
    }
}

#[test]
fn a_claim_list_requeues_only_if_a_claim_was_deallocated() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 1));
    testbed.slice(&slice("a", 1));
    testbed.pod(&pod("p", "2"));
    let claim = json!({
        "metadata": {"name": "c", "namespace": "team", "uid": "uid-c", "resourceVersion": "1"},
        "spec": {},
        "status": {"allocation": {"devices": {"results": [{
            "request": "gpu", "driver": "gpu.nvidia.com", "pool": "a", "device": "gpu-0",
        }]}}},
    });
    testbed.claim(&claim);
    assert_eq!(testbed.ops(), []);
    testbed.all_claims(std::slice::from_ref(&claim));
    assert!(!testbed.scheduler.cache.has_changes());
    testbed.all_claims(&[with(claim.clone(), "/status", json!({}))]);
    assert!(testbed.scheduler.cache.has_changes());
    assert_eq!(testbed.ops(), []);
    testbed.claim(&claim);
    assert_eq!(testbed.ops(), []);
    testbed.all_claims(&[]);
    assert!(testbed.scheduler.cache.has_changes());
}
