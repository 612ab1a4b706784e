use serde_json::{Value, json};

use super::fixtures::{commands, config_map, node, node_plan, operand, planned, pod};
use crate::plan::{MigrationPlan, Served};

const FLAG: &str = "agent.devicePlugin.flags.device-list-strategy";
const FIELD: &str = "flags.plugin.deviceListStrategy";

/// A cluster with a device plugin on two nodes, of which both have a pod.
fn objects(container: Value) -> Vec<Value> {
    let mut all = json!({"name": "nvidia-device-plugin", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"});
    all.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    let mut objects = operand("plugin", all, "ClusterPolicy", &["a", "b"]);
    for name in ["a", "b"] {
        objects.push(node(name, json!({}), json!({"nvidia.com/gpu": "8"})));
        objects.push(pod(&format!("train-{name}"), name, json!({"nvidia.com/gpu": 1})));
    }
    objects
}

fn with_variable(value: &str) -> Vec<Value> {
    objects(json!({"env": [{"name": "DEVICE_LIST_STRATEGY", "value": value}]}))
}

/// The same with a config file on the first node alone, or on both.
fn with_file(content: &str, is_on_both: bool) -> Vec<Value> {
    let mut objects = objects(json!({}));
    let mut config = json!({"name": "files"});
    if is_on_both {
        config["default"] = "special".into();
    }
    objects.push(json!({
        "kind": "ClusterPolicy", "metadata": {"name": "policy"}, "spec": {"devicePlugin": {"config": config}},
    }));
    let mut map = config_map("files", "special", content);
    map["data"]["other"] = "version: v1".into();
    objects.push(map);
    let first = objects.iter_mut().find(|it| it["kind"] == "Node").unwrap();
    first["metadata"]["labels"]["nvidia.com/device-plugin.config"] = "special".into();
    objects
}

/// The reason for the field among the settings of the plugin.
fn reason(plan: &MigrationPlan) -> Option<(Served, &str)> {
    let config = plan.configs.iter().find(|config| config.source.ends_with("gpu-operator/plugin"));
    let field = config?.fields.iter().find(|field| field.field == FIELD)?;
    Some((field.served, field.reason.as_str()))
}

const SEEN: &str = "pods see NVIDIA_VISIBLE_DEVICES, and NVIDIA's runtime gives them the devices";
const KEPT: &str = "agent.devicePlugin.flags.device-list-strategy=envvar keeps it; \
    Octavo's default is cdi-cri, by which pods get devices without NVIDIA's runtime";

#[test]
fn nvidias_default_is_carried_whether_it_is_set_or_not() {
    let begin = "it is not set, and NVIDIA's default is envvar; ";
    for (objects, begin) in [(with_variable("envvar"), ""), (objects(json!({})), begin)] {
        let plan = planned(&objects);
        assert_eq!(reason(&plan), Some((Served::Same, format!("{begin}{SEEN}; {KEPT}").as_str())));
        let steps = commands(&plan.steps);
        assert!(steps.contains(&format!(" --set '{FLAG}=envvar'")), "{steps}");
        let kept = format!("{SEEN} (device-list-strategy=envvar)");
        let node = node_plan(&plan, "a");
        assert!(node.taken_over.contains(&kept), "{node:?}");
        assert_eq!(node.changes, ["a GPU that is well again is offered again, without a restart"]);
    }
}

#[test]
fn another_value_and_a_flag_are_carried_too() {
    let by_flag = |args: Value| objects(json!({"command": ["nvidia-device-plugin"], "args": args}));
    for (objects, value) in [
        (with_variable("volume-mounts"), "volume-mounts"),
        (with_variable("cdi-cri,envvar"), "cdi-cri\\,envvar"),
        (by_flag(json!(["--device-list-strategy=cdi-annotations"])), "cdi-annotations"),
        (by_flag(json!(["-device-list-strategy", "envvar", "--mps-root", "/x"])), "envvar"),
        (
            by_flag(json!(["--device-list-strategy=cdi-cri", "--device-list-strategy=envvar"])),
            "cdi-cri\\,envvar",
        ),
    ] {
        let steps = commands(&planned(&objects).steps);
        assert!(steps.contains(&format!(" --set '{FLAG}={value}'")), "{value}: {steps}");
    }
    let plan = planned(&with_variable("volume-mounts"));
    assert_eq!(reason(&plan), Some((Served::Same, "as NVIDIA's device plugin")));
    let kept = "how pods get their devices (device-list-strategy=volume-mounts)".to_owned();
    assert!(node_plan(&plan, "b").taken_over.contains(&kept));
}

#[test]
fn other_flags_are_settings_too() {
    let shell = "cp a b; exec nvidia-device-plugin --mig-strategy mixed --pass-device-specs --device-id-strategy=$(ID)";
    let mut objects = objects(json!({"command": ["bash", "-c"], "args": [shell]}));
    objects[0]["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "MIG_STRATEGY", "value": "single"}, {"name": "GDS_ENABLED", "value": "true"}]);
    let plan = planned(&objects);
    let steps = commands(&plan.steps);
    let values = " --set 'agent.devicePlugin.flags.mig-strategy=mixed' --set 'agent.devicePlugin.flags.gds-enabled=true' \
                  --set 'agent.devicePlugin.flags.pass-device-specs=true' --set 'agent.devicePlugin.flags.device-list-strategy=envvar'\n";
    assert!(steps.contains(values), "{steps}");
    assert!(!steps.contains("device-id-strategy"), "{steps}");
    let source = "variables and flags of DaemonSet gpu-operator/plugin";
    assert!(plan.configs.iter().any(|config| config.source == source), "{:?}", plan.configs);
}

#[test]
fn a_file_that_says_it_counts_for_its_nodes() {
    let content = "{version: v1, flags: {plugin: {deviceListStrategy: volume-mounts}}}";
    let plan = planned(&with_file(content, true));
    assert_eq!(reason(&plan), None);
    assert!(!commands(&plan.steps).contains(FLAG), "a flag would come before the file");
    let changed = "pods get their devices by CDI (cdi-cri), and see NVIDIA_VISIBLE_DEVICES=void; \
                   deviceListStrategy: envvar in the node's config file keeps NVIDIA's default";
    let changes = |plan: &MigrationPlan, node: &str| {
        node_plan(plan, node).changes.iter().any(|line| line == changed)
    };
    assert!(!changes(&plan, "a") && !changes(&plan, "b"));
    let plan = planned(&with_file(content, false));
    assert!(!commands(&plan.steps).contains(FLAG));
    assert!(!changes(&plan, "a") && changes(&plan, "b"), "{:?}", plan.nodes);
    // A file without the field leaves it to the default.
    let plan = planned(&with_file("version: v1", true));
    assert!(commands(&plan.steps).contains(&format!("{FLAG}=envvar")));
}

#[test]
fn without_a_device_plugin_pods_see_no_list() {
    let mut objects = objects(json!({}));
    objects.retain(|object| object["metadata"]["namespace"] != "team-a");
    let plan = planned(&objects);
    assert!(!commands(&plan.steps).contains(FLAG), "no node is in that mode");
    let line = "pods get their devices by CDI, and see NVIDIA_VISIBLE_DEVICES=void".to_owned();
    assert!(node_plan(&plan, "a").changes.contains(&line), "{:?}", plan.nodes);
}
