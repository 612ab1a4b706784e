use serde_json::{Value, json};

use super::fixtures::options;
use crate::{Outcome, translate_document};

/// A pod template of HAMi.
fn template() -> Value {
    json!({"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpumem": 1000}}}]}})
}

/// A document with a template at a path; `N` is the first element of a list.
fn document(version: &str, kind: &str, path: &str) -> Value {
    let mut value = template();
    for key in path.split('.').rev().filter(|key| !key.is_empty()) {
        value = if key == "N" { json!([value]) } else { json!({ key: value }) };
    }
    value["apiVersion"] = version.into();
    value["kind"] = kind.into();
    value["metadata"] = json!({"name": "train", "namespace": "team"});
    value
}

#[test]
fn pods_are_found_in_every_workload() {
    for (version, kind, path) in [
        ("v1", "Pod", ""),
        ("v1", "PodTemplate", "template"),
        ("v1", "ReplicationController", "spec.template"),
        ("apps/v1", "Deployment", "spec.template"),
        ("apps/v1", "StatefulSet", "spec.template"),
        ("apps/v1", "DaemonSet", "spec.template"),
        ("apps/v1", "ReplicaSet", "spec.template"),
        ("batch/v1", "Job", "spec.template"),
        ("batch/v1", "CronJob", "spec.jobTemplate.spec.template"),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", "spec.replicatedJobs.N.template.spec.template"),
        (
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            "spec.leaderWorkerTemplate.workerTemplate",
        ),
        ("kubeflow.org/v1", "PyTorchJob", "spec.pytorchReplicaSpecs.Worker.template"),
        ("kubeflow.org/v1", "MPIJob", "spec.mpiReplicaSpecs.Worker.template"),
        ("kubeflow.org/v2beta1", "MPIJob", "spec.mpiReplicaSpecs.Worker.template"),
        ("kubeflow.org/v1", "TFJob", "spec.tfReplicaSpecs.PS.template"),
        ("kubeflow.org/v1", "XGBoostJob", "spec.xgbReplicaSpecs.Master.template"),
        ("kubeflow.org/v1", "PaddleJob", "spec.paddleReplicaSpecs.Worker.template"),
        ("kubeflow.org/v1", "JAXJob", "spec.jaxReplicaSpecs.Worker.template"),
        ("ray.io/v1", "RayCluster", "spec.workerGroupSpecs.N.template"),
        ("ray.io/v1", "RayJob", "spec.rayClusterSpec.headGroupSpec.template"),
        ("ray.io/v1", "RayService", "spec.rayClusterConfig.workerGroupSpecs.N.template"),
    ] {
        let translated = translate_document(&document(version, kind, path), &options());
        assert_eq!(translated.templates.len(), 1, "{kind}");
        assert_eq!(translated.templates[0]["metadata"]["namespace"], "team");
        assert!(!translated.document.to_string().contains("gpumem"), "{kind}");
        assert_eq!(translated.entries[0].object, format!("{kind} team/train"));
    }
}

#[test]
fn a_workload_is_refused_as_a_whole() {
    let mut document =
        document("kubeflow.org/v1", "PyTorchJob", "spec.pytorchReplicaSpecs.Worker.template");
    document["spec"]["pytorchReplicaSpecs"]["Master"]["template"] = template();
    document["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["metadata"] =
        json!({"annotations": {"nvidia.com/vgpu-mode": "mig"}});
    let translated = translate_document(&document, &options());
    assert_eq!(translated.document, document);
    assert!(translated.templates.is_empty());
    assert!(
        matches!(translated.entries.as_slice(), [entry] if matches!(entry.outcome, Outcome::Refused(_)))
    );
}

#[test]
fn labels_of_workloads_are_translated_with_their_pods() {
    let mut document = document("batch/v1", "CronJob", "spec.jobTemplate.spec.template");
    document["metadata"]["labels"] =
        json!({"kai.scheduler/queue": "a", "priorityClassName": "train", "app": "x"});
    document["spec"]["jobTemplate"]["metadata"] = json!({"labels": {"kai.scheduler/queue": "a"}});
    let pod = json!({"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]});
    document["spec"]["jobTemplate"]["spec"]["template"]["spec"] = pod;
    let translated = translate_document(&document, &options());
    let job = &translated.document["spec"]["jobTemplate"];
    assert_eq!(translated.document["metadata"]["labels"], json!({"app": "x"}));
    assert_eq!(job["metadata"], json!({}));
    assert_eq!(
        job["spec"]["template"]["spec"],
        json!({"priorityClassName": "train", "containers": [{"name": "main"}]})
    );
}

#[test]
fn lists_have_templates_before_their_users() {
    let deployment = document("apps/v1", "Deployment", "spec.template");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [{"kind": "ConfigMap"}, deployment, deployment]});
    let translated = translate_document(&list, &options());
    let kinds: Vec<&str> = translated.document["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["ConfigMap", "ResourceClaimTemplate", "Deployment", "Deployment"]);
    let mut item = deployment;
    item.as_object_mut().unwrap().retain(|key, _| key != "kind" && key != "apiVersion");
    let list = json!({"apiVersion": "apps/v1", "kind": "DeploymentList", "items": [item]});
    let translated = translate_document(&list, &options());
    assert_eq!(translated.templates.len(), 1);
    assert_eq!(translated.document["items"].as_array().unwrap().len(), 1);
}

#[test]
fn what_is_not_known_is_refused_only_where_it_has_keys() {
    let outcome = |document: Value| {
        let translated = translate_document(&document, &options());
        assert_eq!(translated.document, document);
        translated.entries.into_iter().next().map(|entry| match entry.outcome {
            Outcome::Changed(change) => change.to_string(),
            Outcome::Refused(refusal) => refusal.reason.as_str().to_owned(),
            Outcome::Left(left) => left,
        })
    };
    let service = json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": []}});
    assert_eq!(outcome(service), None);
    let notebook = document("kubeflow.org/v1", "Notebook", "spec.template");
    assert_eq!(outcome(notebook).as_deref(), Some("UnknownKind"));
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"limits.nvidia.com/gpumem": 1}}});
    assert_eq!(outcome(quota).as_deref(), Some("UnknownKind"));
    let queue = json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"labels": {"kai.scheduler/x": "y"}}});
    assert_eq!(outcome(queue).as_deref(), Some("left as it is, Octavo does not read it"));
}
