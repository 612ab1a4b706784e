//! `octavo migrate plan` against a real API server, with the objects of an imagined installation of NVIDIA's GPU Operator.

use std::path::PathBuf;
use std::process::Output;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, Kubeconfig};
use kube::{Api, ResourceExt};
use octavo_lab::UpOptions;
use serde_json::{Value, json};

use crate::testbed::{Testbed, eventually};

const NODE: &str = "gpu-1";
const OPERATOR: &str = "gpu-operator";
const FUTURE: &str = "{version: v2}";
const SLICED: &str = "
version: v1
flags: {migStrategy: mixed, failOnInitError: true}
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}
";

/// The kind of an object, and its API.
fn api(testbed: &Testbed, object: &Value) -> Api<DynamicObject> {
    let version = object["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let gvk = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
    let resource = ApiResource::from_gvk(&gvk);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(testbed.client.clone(), namespace, &resource),
        None => Api::all_with(testbed.client.clone(), &resource),
    }
}

/// Makes an object. A definition that was just made is served soon.
async fn create(testbed: &Testbed, object: Value) -> DynamicObject {
    let api = api(testbed, &object);
    let made: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    eventually(&format!("{} is made", object["kind"]), || async {
        match api.create(&PostParams::default(), &made).await {
            Ok(made) => Some(made),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{object}: {error}"),
        }
    })
    .await
}

fn daemon_set(name: &str, container: &str, owner: &DynamicObject) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": name,
            "namespace": OPERATOR,
            "labels": labels,
            "ownerReferences": [{
                "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "controller": true,
                "name": owner.name_any(), "uid": owner.uid(),
            }],
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {"nvidia.com/gpu.present": "true"},
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": container, "image": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"}],
                },
            },
        },
    })
}

/// The objects of the installation.
async fn install(testbed: &Testbed) {
    for namespace in [OPERATOR, "team-a"] {
        let metadata = json!({"name": namespace});
        create(testbed, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
            .await;
    }
    create(testbed, json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterpolicies.nvidia.com"},
        "spec": {
            "group": "nvidia.com", "scope": "Cluster",
            "names": {"kind": "ClusterPolicy", "plural": "clusterpolicies", "singular": "clusterpolicy"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    }))
    .await;
    let policy = create(testbed, json!({
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {
            "name": "cluster-policy",
            "annotations": {"meta.helm.sh/release-name": "gpu-operator", "meta.helm.sh/release-namespace": OPERATOR},
        },
        "spec": {"driver": {"enabled": true}, "devicePlugin": {"config": {"name": "plugin-config", "default": "base"}}},
    }))
    .await;
    create(
        testbed,
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "plugin-config", "namespace": OPERATOR},
            "data": {"base": "version: v1", "sliced": SLICED},
        }),
    )
    .await;
    let labels = json!({
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.deploy.device-plugin": "true",
        "nvidia.com/device-plugin.config": "sliced",
    });
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}});
    create(testbed, node.clone()).await;
    let amounts = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "32"});
    let conditions =
        json!([{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}]);
    let status =
        json!({"status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions}});
    api(testbed, &node)
        .patch_status(NODE, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
    let plugin = daemon_set("nvidia-device-plugin-daemonset", "nvidia-device-plugin", &policy);
    create(testbed, plugin.clone()).await;
    create(testbed, daemon_set("gpu-feature-discovery", "gpu-feature-discovery", &policy)).await;
    create(testbed, json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "train", "namespace": "team-a"},
        "spec": {
            "nodeName": NODE,
            "containers": [{
                "name": "main", "image": "ubuntu:24.04", "resources": {"limits": {"nvidia.com/gpu": 1}},
            }],
        },
    }))
    .await;
    create(testbed, json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "infer", "namespace": "team-a"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "infer"}},
            "template": {
                "metadata": {"labels": {"app": "infer"}},
                "spec": {
                    "schedulerName": "hami-scheduler",
                    "containers": [{
                        "name": "main", "image": "ubuntu:24.04",
                        "resources": {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000}},
                    }],
                },
            },
        },
    }))
    .await;
    let parameters = json!({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"});
    create(testbed, json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "turns", "namespace": "team-a"},
        "spec": {"spec": {"devices": {
            "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}],
            "config": [{"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}],
        }}},
    }))
    .await;
    let pods = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": OPERATOR}});
    let pods = api(testbed, &pods);
    eventually("the operands have their pods on the node", || async {
        let found = pods.list(&kube::api::ListParams::default()).await.ok()?.items;
        let bound = found.iter().filter(|pod| pod.data["spec"]["nodeName"] == NODE);
        (bound.count() == 2).then_some(())
    })
    .await;
}

/// A kubeconfig of an account that may read, and not definitions of custom resources.
async fn viewer(testbed: &Testbed) -> PathBuf {
    create(testbed, json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer", "namespace": "team-a"},
    }))
    .await;
    let groups = ["", "apps", "batch", "nvidia.com", "resource.k8s.io"];
    create(testbed, json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "viewer"},
        "rules": [{"apiGroups": groups, "resources": ["*"], "verbs": ["get", "list"]}],
    }))
    .await;
    create(testbed, json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "viewer"},
        "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": "team-a"}],
    }))
    .await;
    let accounts: Api<ServiceAccount> = Api::namespaced(testbed.client.clone(), "team-a");
    let request =
        TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
    let made =
        accounts.create_token_request("viewer", &PostParams::default(), &request).await.unwrap();
    let mut config = Kubeconfig::read_from(testbed.lab.kubeconfig()).unwrap();
    for user in &mut config.auth_infos {
        let token = made.status.clone().unwrap().token.map(Into::into);
        user.auth_info = Some(AuthInfo { token, ..AuthInfo::default() });
    }
    let path = testbed.lab.layout().kubeconfig().with_file_name("viewer.json");
    std::fs::write(&path, serde_json::to_string(&config).unwrap()).unwrap();
    path
}

fn report(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_says_what_moving_from_the_gpu_operator_will_do() {
    let testbed =
        Testbed::up_with(|state| UpOptions::control_plane_only(state, crate::testbed::OCTAVO))
            .await;
    install(&testbed).await;

    let output = testbed.octavo(&["migrate", "plan", "-o", "json"]);
    let plan = report(&output);
    assert_eq!(
        (&plan["kind"], output.status.code()),
        (&json!("MigrationPlan"), Some(0)),
        "{plan:#}"
    );
    assert_eq!(plan["unread"], json!([]));
    let node = &plan["nodes"][0];
    assert_eq!((&node["name"], &node["mode"]), (&json!(NODE), &json!("device-plugin")));
    assert_eq!(node["pluginPods"], json!({"names": ["team-a/train"], "count": 1}));
    assert_eq!(node["mustEnd"]["count"], 0);
    assert_eq!(node["labels"]["nvidia.com/gpu.deploy.device-plugin"], "true");
    assert_eq!(node["offers"][0]["by"], "NVIDIA's device plugin");
    assert_eq!(node["offers"][0]["resources"], json!({"nvidia.com/gpu": "32"}));
    assert_eq!(node["ends"], json!(["devicePlugin", "featureDiscovery"]));
    let is_used = |it: &&Value| it["form"] == "devicePlugin" && it["usedBy"] == json!([NODE]);
    let config = plan["configs"].as_array().unwrap().iter().find(is_used).unwrap();
    assert_eq!(config["source"], "ConfigMap gpu-operator/plugin-config, file sliced");
    assert!(config["fields"].as_array().unwrap().iter().any(|field| {
        field["field"] == "sharing.timeSlicing.resources" && field["served"] == "better"
    }));
    assert_eq!(plan["workloads"][0]["object"], "Deployment team-a/infer");
    assert_eq!(plan["workloads"][0]["webhook"], "translates");
    assert_eq!(plan["claims"][0]["configs"][0]["served"], "same");
    let commands: Vec<&str> = plan["steps"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|step| step["commands"].as_array().unwrap())
        .map(|command| command.as_str().unwrap())
        .collect();
    let commands = commands.join("\n");
    assert!(commands.contains("nvidia.com/gpu.deploy.device-plugin=false"), "{commands}");
    assert!(commands.contains("agent.devicePlugin.config.name=plugin-config"), "{commands}");
    assert!(commands.contains("flags.device-list-strategy=envvar"), "{commands}");
    assert_eq!(plan["wayBack"][1]["commands"], json!(["octavo uninstall"]));
    let text = testbed.octavo_ok(&["migrate", "plan"]);
    assert!(text.contains("gpu-1: mode device-plugin, because pods have devices"), "{text}");
    assert!(text.contains("nothing stands in the way"), "{text}");
    let yaml = testbed.octavo_ok(&["migrate", "plan", "-o", "yaml"]);
    assert!(yaml.contains("kind: MigrationPlan"), "{yaml}");

    // Reading suffices. What may not be read is named.
    let kubeconfig = viewer(&testbed).await;
    let kubeconfig = kubeconfig.to_str().unwrap();
    let output = testbed.octavo(&["migrate", "plan", "-o", "json", "--kubeconfig", kubeconfig]);
    let less = report(&output);
    assert_eq!(output.status.code(), Some(3), "{less:#}");
    assert_eq!(less["unread"][0]["what"], "customresourcedefinitions");
    assert_eq!(less["nodes"], plan["nodes"]);

    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plugin-config", "namespace": OPERATOR},
        "data": {"sliced": FUTURE},
    });
    api(&testbed, &map)
        .patch("plugin-config", &PatchParams::default(), &Patch::Merge(&map))
        .await
        .unwrap();
    let output = testbed.octavo(&["migrate", "plan"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("file sliced: version is not served: "), "{text}");

    let output = testbed.octavo(&["migrate", "plan", "--context", "nowhere"]);
    assert_eq!(output.status.code(), Some(1));
}
