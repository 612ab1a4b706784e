//! A quota of shares: a policy bounds what a claim of a class may ask for, and a `ResourceQuota` counts its devices.

use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate};
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::compute_domains::{control_plane, parsed};
use crate::testbed::{Testbed, eventually};

const CLASS: &str = "eighth.gpu.example.com";
const NAMESPACE: &str = "octavo-tour";
/// The class, the quota, and a pod with a share.
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/share-class.yaml");

fn spec(class: &str, requests: &Value) -> Value {
    json!({"devices": {"requests": [{
        "name": "gpu",
        "exactly": {"deviceClassName": class, "capacity": {"requests": requests}},
    }]}})
}

fn claims(testbed: &Testbed) -> Api<ResourceClaim> {
    Api::namespaced(testbed.client.clone(), NAMESPACE)
}

/// Creates a claim, or only asks whether it could be.
async fn create(testbed: &Testbed, name: &str, spec: &Value, dry_run: bool) -> Result<(), String> {
    let params = PostParams { dry_run, ..PostParams::default() };
    let claim = parsed(&json!({"metadata": {"name": name}, "spec": spec}));
    let created = claims(testbed).create(&params, &claim).await;
    created.map(drop).map_err(|error| error.to_string())
}

async fn used(testbed: &Testbed) -> Option<String> {
    let quotas: Api<ResourceQuota> = Api::namespaced(testbed.client.clone(), NAMESPACE);
    let used = quotas.get("shares").await.ok()?.status?.used?;
    used.get(&format!("{CLASS}.deviceclass.resource.k8s.io/devices")).map(|used| used.0.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_has_a_quota_of_memory_and_compute() {
    let testbed = control_plane().await;
    let namespaces: Api<Namespace> = Api::all(testbed.client.clone());
    let namespace = parsed(&json!({"metadata": {"name": NAMESPACE}}));
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    testbed.octavo_ok(&["lab", "kubectl", "apply", "-f", EXAMPLE]);
    let classes: Api<DeviceClass> = Api::all(testbed.client.clone());
    assert_eq!(classes.get(CLASS).await.unwrap().name_any(), CLASS);
    let large = spec(CLASS, &json!({"memory": "11Gi"}));
    eventually("the policy is in force", || async {
        create(&testbed, "large", &large, true).await.err()
    })
    .await;

    let refused = [
        (json!({"memory": "11Gi"}), "memory of at most 10Gi"),
        (json!({"gpu.nvidia.com/memory": "10241Mi"}), "memory of at most 10Gi"),
        (json!({"compute": "5"}), "it would get all memory of a GPU"),
        (json!({"memory": "1Gi", "compute": "12.501"}), "compute of at most 12.5"),
        (json!({"memory": "1Gi", "gpu.nvidia.com/compute": "25"}), "compute of at most 12.5"),
        (json!({"memory": "1Gi", "shares": "2"}), "shares of at most 1"),
    ];
    for (requests, words) in refused {
        let error = create(&testbed, "x", &spec(CLASS, &requests), true).await.unwrap_err();
        assert!(error.contains(words), "{requests}: {error}");
    }
    let alternatives = json!({"devices": {"requests": [{"name": "gpu", "firstAvailable": [
        {"name": "a", "deviceClassName": CLASS, "capacity": {"requests": {"memory": "1Gi"}}},
        {"name": "b", "deviceClassName": CLASS},
    ]}]}});
    let error = create(&testbed, "x", &alternatives, true).await.unwrap_err();
    assert!(error.contains("it would get all memory"), "{error}");
    let templates: Api<ResourceClaimTemplate> = Api::namespaced(testbed.client.clone(), NAMESPACE);
    let template = parsed(&json!({"metadata": {"name": "x"}, "spec": {"spec": large}}));
    let error = templates.create(&PostParams::default(), &template).await.unwrap_err();
    assert!(error.to_string().contains("memory of at most 10Gi"), "{error}");
    // Other classes and empty claims are none of its business.
    let whole = spec("mig.nvidia.com", &json!({"memory": "80Gi"}));
    for spec in [&whole, &json!({}), &json!({"devices": {}})] {
        create(&testbed, "other", spec, true).await.unwrap();
    }

    // The pod of the example has one share, and the quota has room for three more.
    eventually("the pod's claim counts", || async {
        (used(&testbed).await.as_deref() == Some("1")).then_some(())
    })
    .await;
    let eighth = spec(CLASS, &json!({"memory": "10Gi", "compute": "12.5"}));
    for name in ["one", "two", "three"] {
        create(&testbed, name, &eighth, false).await.unwrap();
    }
    let error = create(&testbed, "four", &eighth, false).await.unwrap_err();
    assert!(error.contains("exceeded quota: shares"), "{error}");
    let gpu = spec("gpu.nvidia.com", &json!({"memory": "1Gi"}));
    let error = create(&testbed, "gpu", &gpu, false).await.unwrap_err();
    assert!(error.contains("exceeded quota: shares"), "{error}");
}
