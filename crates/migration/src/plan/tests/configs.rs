use serde_json::{Value, json};

use super::fixtures::{commands, config_map, gpu_operator, node, planned};
use crate::plan::{ConfigForm, ConfigPlan, Served};

const PLUGIN: &str = "
version: v1
flags: {migStrategy: mixed, failOnInitError: true, mpsRoot: /run/nvidia/mps, gfd: {oneshot: false, noTimestamp: true}}
resources: {gpus: [{pattern: '*', name: nvidia.com/gpu}]}
sharing:
  timeSlicing: {resources: [{name: nvidia.com/gpu, rename: x, replicas: 4}]}
mine: 1
";
const MPS: &str =
    "{version: v1, sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}}";
const MIG: &str = "
version: v1
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  mine: [{devices: [0], mig-enabled: true, mig-devices: {1g.10gb: 7}}]
  parts: [{devices: all, mig-enabled: true, mig-devices: {1c.2g.20gb: 1}}]
";

/// A cluster with the GPU Operator and a `ConfigMap` of its device plugin, on two nodes of which one has a label.
fn objects(content: &str) -> Vec<Value> {
    let mut objects = gpu_operator(&["a", "b"]);
    objects[0]["spec"]["devicePlugin"]["config"] =
        json!({"name": "plugin-config", "default": "base"});
    let gpus = json!({"nvidia.com/gpu": "8"});
    objects.push(node("a", json!({"nvidia.com/device-plugin.config": "special"}), gpus.clone()));
    objects.push(node("b", json!({}), gpus));
    let mut map = config_map("plugin-config", "base", "version: v1");
    map["data"]["special"] = content.into();
    objects.push(map);
    objects
}

fn of(objects: &[Value], file: &str) -> ConfigPlan {
    let plan = planned(objects);
    plan.configs.iter().find(|config| config.source.ends_with(file)).unwrap().clone()
}

fn served(config: &ConfigPlan, field: &str) -> Served {
    config
        .fields
        .iter()
        .find(|found| found.field == field)
        .unwrap_or_else(|| panic!("{field}: {config:?}"))
        .served
}

#[test]
fn each_field_is_served_or_has_a_reason() {
    let config = of(&objects(PLUGIN), "special");
    assert_eq!(
        (config.form, config.used_by.as_slice()),
        (ConfigForm::DevicePlugin, &["a".to_owned()][..])
    );
    for (field, expected) in [
        ("flags.migStrategy", Served::Same),
        ("flags.gfd.noTimestamp", Served::Same),
        ("sharing.timeSlicing.resources", Served::Better),
        ("sharing.timeSlicing.resources[0].rename", Served::NoEffect),
        ("flags.failOnInitError", Served::NoEffect),
        ("flags.mpsRoot", Served::NoEffect),
        ("resources", Served::NoEffect),
        ("mine", Served::NoEffect),
    ] {
        assert_eq!(served(&config, field), expected, "{field}");
    }
    assert!(config.fields.iter().all(|field| !field.reason.is_empty()), "{config:?}");
    assert_eq!(of(&objects(PLUGIN), "base").used_by, ["b"]);
    let variables = of(&objects(PLUGIN), "nvidia-device-plugin-daemonset");
    assert_eq!(served(&variables, "flags.plugin.deviceListStrategy"), Served::Same);
    assert_eq!(served(&variables, "flags.plugin.passDeviceSpecs"), Served::Same);
    let plan = planned(&objects(PLUGIN));
    let lost = |node: &str, part: &str| {
        super::fixtures::node_plan(&plan, node).changes.iter().any(|line| line.contains(part))
    };
    assert!(lost("a", "time slices are not in effect") && !lost("b", "time slices"), "{plan:?}");
}

#[test]
fn every_setting_of_the_device_plugin_is_in_the_table() {
    let known = |field: &str, text: &str| {
        let setting = octavo_api::plugin_config::SETTINGS
            .iter()
            .find(|setting| setting.field == field)
            .unwrap();
        let variables = [(setting.variables[0].to_owned(), text.to_owned())].into();
        let overrides = octavo_api::plugin_config::Overrides { variables, ..Default::default() };
        let fields = crate::plan::fields::of_plugin(None, &overrides);
        assert_eq!(fields.len(), 1, "{field}: {fields:?}");
        assert_eq!(fields[0].field, field);
        assert_ne!(fields[0].served, Served::NotServed, "{fields:?}");
    };
    for setting in octavo_api::plugin_config::SETTINGS {
        let text = match setting.field {
            "flags.migStrategy" => "single",
            "flags.plugin.deviceListStrategy" => "cdi-cri,envvar",
            "flags.plugin.deviceIDStrategy" => "index",
            "flags.plugin.sharedDevicesAllocationPolicy" => "packed",
            "flags.gfd.sleepInterval" => "60s",
            "imex.channelIDs" => "0",
            _ if setting.kind == octavo_api::plugin_config::SettingKind::Bool => "true",
            _ => "/a",
        };
        known(setting.field, text);
    }
}

#[test]
fn mps_needs_a_value_of_the_chart_where_a_node_has_it() {
    let pod = || super::fixtures::pod("train", "a", json!({"nvidia.com/gpu": 1}));
    let value = "--set 'agent.mps.enabled=true'";
    let mut used = objects(MPS);
    used.push(pod());
    let plan = planned(&used);
    assert!(plan.is_clear(), "{:?}", plan.obstacles);
    assert!(commands(&plan.steps).contains(value), "{:?}", plan.steps);
    let mut unused = objects(PLUGIN);
    unused.push(pod());
    assert!(!commands(&planned(&unused).steps).contains(value));
}

#[test]
fn files_that_cannot_be_used_stand_in_the_way() {
    for (content, part) in [
        ("{version: v2}", "version is not served: it cannot be used"),
        ("{flags: {migStrategy: many}}", "flags.migStrategy is not served: it cannot be used"),
        ("a: [", "(file) is not served: it is no YAML"),
    ] {
        let plan = planned(&objects(content));
        assert!(plan.obstacles[0].contains(part), "{:?}", plan.obstacles);
    }
}

#[test]
fn configs_are_copied_to_octavos_namespace() {
    let mut objects = objects(PLUGIN);
    objects.push(super::fixtures::pod("train", "a", json!({"nvidia.com/gpu": 1})));
    let steps = commands(&planned(&objects).steps);
    assert!(
        steps.contains("kubectl get configmap plugin-config --namespace gpu-operator -o json"),
        "{steps}"
    );
    assert!(steps.contains("--set 'agent.devicePlugin.config.name=plugin-config'"), "{steps}");
    assert!(steps.contains("--set 'agent.devicePlugin.config.default=base'"), "{steps}");
}

#[test]
fn a_layout_that_is_refused_spoils_its_file() {
    let mut objects = gpu_operator(&["a"]);
    // As the operator fills in its DaemonSet.
    let manager = objects
        .iter_mut()
        .find(|object| object["metadata"]["name"] == "nvidia-mig-manager")
        .unwrap();
    let spec = &mut manager["spec"]["template"]["spec"];
    spec["containers"][0]["volumeMounts"] =
        json!([{"name": "mig-parted-config", "mountPath": "/mig-parted-config"}]);
    spec["volumes"] = json!([{"name": "mig-parted-config", "configMap": {"name": "layouts"}}]);
    objects.push(config_map("layouts", "config.yaml", MIG));
    objects.push(node(
        "a",
        json!({"nvidia.com/mig.config": "mine"}),
        json!({"nvidia.com/gpu": "8"}),
    ));
    let config = of(&objects, "config.yaml");
    assert_eq!(served(&config, "mig-configs.mine"), Served::Better);
    assert_eq!(served(&config, "mig-configs.all-disabled"), Served::Better);
    let plan = planned(&objects);
    assert_eq!(plan.obstacles.len(), 1, "{:?}", plan.obstacles);
    assert!(plan.obstacles[0].contains("1c.2g.20gb") && plan.obstacles[0].contains("take it out"));
    let cluster = super::fixtures::cluster(&objects);
    let wanted: Vec<String> =
        cluster.config_maps_wanted().iter().map(ToString::to_string).collect();
    assert_eq!(wanted, ["gpu-operator/layouts"]);
}
