use serde_json::{Value, json};

use super::fixtures::{cluster, commands, gpu_operator, node, node_plan, planned, pod};
use crate::plan::{Fate, Mode, plan};
use crate::{GpuModel, Models, Options};

/// HAMi's chart with its device plugin on a node.
fn hami(node: &str) -> Vec<Value> {
    let annotations = json!({"meta.helm.sh/release-name": "hami", "meta.helm.sh/release-namespace": "kube-system"});
    let container = json!({"name": "device-plugin", "image": "projecthami/hami:v2.10", "command": ["nvidia-device-plugin"]});
    let object = |kind: &str, name: &str, component: &str, spec: Value| {
        json!({
            "kind": kind,
            "metadata": {
                "name": name, "namespace": "kube-system", "annotations": annotations,
                "labels": {"app.kubernetes.io/component": component},
            },
            "spec": spec,
        })
    };
    let template = |container: &Value| json!({"template": {"spec": {"containers": [container]}}});
    let scheduler = json!({"name": "vgpu-scheduler-extender", "image": "projecthami/hami:v2.10"});
    vec![
        object("DaemonSet", "hami-device-plugin", "hami-device-plugin", template(&container)),
        object("Deployment", "hami-scheduler", "hami-scheduler", template(&scheduler)),
        object(
            "Pod",
            "hami-device-plugin-x",
            "hami-device-plugin",
            json!({"nodeName": node, "containers": [container]}),
        ),
    ]
}

fn deployment(name: &str, template: Value) -> Value {
    json!({
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"template": template},
        "status": {"replicas": 1},
    })
}

fn shared(limits: Value) -> Value {
    json!({
        "metadata": {"labels": {"app": "x"}},
        "spec": {
            "schedulerName": "hami-scheduler",
            "containers": [{"name": "main", "resources": {"limits": limits}}],
        },
    })
}

#[test]
fn pods_with_shares_of_hami_must_end_and_are_translated() {
    let mut objects = hami("a");
    objects.push(node("a", json!({"gpu": "on"}), json!({"nvidia.com/gpu": "80"})));
    let mut user = pod("infer-1", "a", json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}));
    user["metadata"]["ownerReferences"] =
        json!([{"kind": "ReplicaSet", "name": "infer-1", "controller": true}]);
    objects.push(user);
    objects
        .push(deployment("infer", shared(json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}))));
    objects.push(deployment("bad", shared(json!({"nvidia.com/gpumem": "much"}))));
    objects.push(deployment("web", json!({"spec": {"containers": [{"name": "gpu-free"}]}})));
    let plan = planned(&objects);
    let node = node_plan(&plan, "a");
    assert_eq!(
        (node.mode, node.must_end.names.as_slice()),
        (Mode::Dra, &["team-a/infer-1".to_owned()][..])
    );
    assert_eq!(node.offers[0].by, "HAMi's device plugin");
    let found: Vec<&str> = plan.workloads.iter().map(|workload| workload.object.as_str()).collect();
    assert_eq!(found, ["Deployment team-a/bad", "Deployment team-a/infer"]);
    assert!(plan.workloads[1].refusals.is_empty() && !plan.workloads[1].changes.is_empty());
    let refusal = &plan.workloads[0].refusals[0];
    assert!(
        refusal.contains("is refused because it is no quantity")
            && refusal.ends_with("(NotANumber)"),
        "{refusal}"
    );
    assert_eq!(plan.obstacles.len(), 2, "{:?}", plan.obstacles);
    let steps = commands(&plan.steps);
    let off = steps.find("kubectl label node a gpu-\n").unwrap();
    let uninstall = steps.find("helm uninstall hami --namespace kube-system").unwrap();
    assert!(off < uninstall, "{steps}");
    assert_eq!(steps.matches("helm uninstall hami").count(), 1);
    assert!(commands(&plan.way_back).contains("kubectl label node a gpu=on"));
    let scheduler = plan.found.iter().find(|found| found.what == "HAMi's scheduler").unwrap();
    assert_eq!(scheduler.fate, Fate::NotNeeded);
}

#[test]
fn pods_stand_for_owners_that_are_not_read() {
    let of_job = |name: &str| {
        json!({
            "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "team-a", "annotations": {"gpu-fraction": "0.5"},
                "ownerReferences": [{"kind": "PyTorchJob", "name": "train", "controller": true}],
            },
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]},
        })
    };
    let bare = json!({
        "kind": "Pod",
        "metadata": {"name": "notebook", "namespace": "team-b", "annotations": {"gpu-fraction": "2"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]},
    });
    let objects = [of_job("train-0"), of_job("train-1"), bare];
    let models =
        Models::new([GpuModel { product_name: "L4".to_owned(), memory_mib: 23034 }]).unwrap();
    let options =
        Options { models, scheduler_name: Some("octavo".to_owned()), ..Options::default() };
    let found = plan(&cluster(&objects), &options).workloads;
    let names: Vec<(&str, usize)> =
        found.iter().map(|found| (found.object.as_str(), found.pods)).collect();
    assert_eq!(names, [("Pod team-b/notebook", 0), ("PyTorchJob team-a/train", 2)]);
    assert!(found[0].refusals[0].contains("a fraction is below 1"), "{:?}", found[0]);
    assert!(found[1].changes.iter().any(|change| change.ends_with("-> octavo")), "{:?}", found[1]);
}

#[test]
fn kai_goes_on_where_its_pods_have_plugin_devices() {
    let mut objects = gpu_operator(&["a"]);
    objects.push(node("a", json!({}), json!({"nvidia.com/gpu": "8"})));
    objects.push(pod("gpu-reservation-a", "a", json!({"nvidia.com/gpu": 1})));
    objects.push(deployment(
        "infer",
        json!({
            "metadata": {"annotations": {"gpu-memory": "2000"}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]},
        }),
    ));
    let container =
        json!({"name": "scheduler", "image": "ghcr.io/nvidia/kai-scheduler/scheduler:v0.13"});
    objects.push(json!({
        "kind": "Deployment",
        "metadata": {"name": "kai-scheduler-default", "namespace": "kai-scheduler"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }));
    let plan = planned(&objects);
    assert!(plan.is_clear(), "{:?}", plan.obstacles);
    assert_eq!(plan.nodes[0].mode, Mode::DevicePlugin);
    let last: Vec<&str> = plan.steps.iter().map(|step| step.what.as_str()).collect();
    assert!(
        last.iter().any(|what| what.contains("Their shares need nodes in the mode dra")),
        "{last:?}"
    );
    assert!(
        commands(&plan.steps)
            .contains("kubectl delete deployment kai-scheduler-default --namespace kai-scheduler")
    );
}
