//! What the API server's admission and the webhook make of a pod, without a node.

use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::{create, dry_run, hami, kai, pod, template_of};
use crate::testbed::{Testbed, eventually};

/// The API server has the priority and the overhead of a pod's classes before it asks the webhook, which changes the classes.
pub(super) async fn results_of_admission_follow(testbed: &Testbed) {
    let priorities: Api<PriorityClass> = Api::all(testbed.client.clone());
    for class in [
        json!({"metadata": {"name": "train"}, "value": 50, "preemptionPolicy": "Never"}),
        json!({"metadata": {"name": "usual"}, "value": 7, "globalDefault": true}),
    ] {
        let class = serde_json::from_value(class).unwrap();
        priorities.create(&PostParams::default(), &class).await.unwrap();
    }
    let class = json!({"metadata": {"name": "nvidia"}, "handler": "nvidia", "overhead": {"podFixed": {"memory": "1Mi"}}});
    let classes: Api<RuntimeClass> = Api::all(testbed.client.clone());
    classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    let mut pod = kai("classes", "0.1");
    pod["metadata"]["labels"]["priorityClassName"] = "train".into();
    pod["spec"]["runtimeClassName"] = "nvidia".into();
    let pod = eventually("the API server knows the classes", || async {
        dry_run(testbed, &pod).await.ok()
    })
    .await;
    let spec = pod.spec.unwrap();
    assert_eq!((spec.priority, spec.preemption_policy.as_deref()), (Some(50), Some("Never")));
    assert_eq!(
        (spec.priority_class_name.as_deref(), spec.runtime_class_name),
        (Some("train"), None)
    );
    assert_eq!(spec.overhead, None);
    priorities.delete("usual", &DeleteParams::default()).await.unwrap();
}

/// What has no equal, and a name that is another's.
pub(super) async fn refused_by_name(testbed: &Testbed) {
    let gpumem = |mib: u32| json!({"nvidia.com/gpumem": mib});
    let mps = json!({"gpu-fraction": "0.5", "mps": "true"});
    for (pod, parts) in [
        (
            kai("zero", "0"),
            ["annotation gpu-fraction: 0 is refused because a fraction is above 0", "(OutOfRange)"],
        ),
        (
            kai("large", "1.5"),
            [
                "annotation gpu-fraction: 1.5 is refused because a fraction is below 1",
                "(OutOfRange)",
            ],
        ),
        (
            hami("above", &gpumem(23035), &json!({})),
            [
                "nvidia.com/gpumem: 23035 of container main",
                "the largest known GPU has 23034Mi (NVIDIA L4)",
            ],
        ),
        (
            pod("mps", &mps, &json!({}), None),
            ["annotation mps: true is refused", "remove it and the volume"],
        ),
    ] {
        let error = create(&testbed.pods(), &pod, &PostParams::default()).await.unwrap_err();
        assert!(error.contains("pods.octavo.dev"), "{error}");
        for part in parts {
            assert!(error.contains(part), "{part} is not in {error}");
        }
    }
    // A template of another owner has the name.
    let name = template_of(&dry_run(testbed, &kai("taken", "0.3")).await.unwrap());
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}});
    let taken = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    });
    testbed.create::<ResourceClaimTemplate>(taken).await;
    let pod = kai("taken", "0.3");
    let error = create(&testbed.pods(), &pod, &PostParams::default()).await.unwrap_err();
    let part =
        format!("ResourceClaimTemplate default/{name}, and one of that name is another owner's");
    assert!(error.contains(&part), "{error}");
}

/// Namespaces and pods with a label, and the namespaces of the cluster's and KAI's own pods, are not asked about.
pub(super) async fn opted_out(testbed: &Testbed) {
    for (label, value) in [("octavo.dev/translate", "false"), ("hami.io/webhook", "ignore")] {
        let mut left = kai("left", "0.5");
        left["metadata"]["labels"][label] = value.into();
        let left = dry_run(testbed, &left).await.unwrap();
        assert_eq!(left.annotations()["gpu-fraction"], "0.5");
    }
    let namespaces: Api<Namespace> = Api::all(testbed.client.clone());
    for (name, labels) in
        [("kai", json!({"octavo.dev/translate": "false"})), ("kai-resource-reservation", json!({}))]
    {
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        let namespace = serde_json::from_value(namespace).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }
    let account = "default";
    for name in ["kai", "kai-resource-reservation", "kube-system"] {
        let accounts: Api<ServiceAccount> = Api::namespaced(testbed.client.clone(), name);
        eventually("the namespace has its account", || async { accounts.get(account).await.ok() })
            .await;
        let pods: Api<Pod> = Api::namespaced(testbed.client.clone(), name);
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let left = create(&pods, &kai("left", "0.5"), &params).await.unwrap();
        assert_eq!(left.annotations()["gpu-fraction"], "0.5");
    }
}
