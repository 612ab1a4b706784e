//! Config files of NVIDIA's device plugin and MIG manager: where they are, which nodes they are for, and their fields.

use std::collections::BTreeSet;

use octavo_api::names::{LABEL_MIG_CONFIG, LABEL_PLUGIN_CONFIG};
use octavo_api::plugin_config::Overrides;
use serde::Serialize;
use serde_json::Value;

use super::cluster::{Cluster, ConfigMapName};
use super::components::{Component, component};
use super::device_list::{self, DeviceList};
pub use super::fields::{FieldPlan, Served};
use super::fields::{of_mig, of_plugin};
use super::nodes::gpu_nodes;
use super::object::{containers, full_name, label, name, namespace, node_of, pod_spec, variables};
use super::settings::settings;
use crate::json::{array, object, text};

/// Where config files are mounted: those of the device plugin, and those of the MIG manager.
const MOUNTS: [(&str, ConfigForm); 2] = [
    ("/available-configs", ConfigForm::DevicePlugin),
    ("/mig-parted-config", ConfigForm::MigManager),
];
/// The variable with the name of the file for nodes without a label.
const DEFAULT_CONFIG: &str = "DEFAULT_CONFIG";
/// The key of the MIG manager's file.
const MIG_FILE: &str = "config.yaml";
/// Parts that read the files of the device plugin.
const PLUGIN_PARTS: [Component; 2] = [Component::DevicePlugin, Component::FeatureDiscovery];
/// Namespace of the GPU Operator, where nothing else says so.
const OPERATOR_NAMESPACE: &str = "gpu-operator";

/// The form of a config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ConfigForm {
    /// A file of the device plugin, `version: v1`.
    DevicePlugin,
    /// Variables and flags of the device plugin's container.
    Environment,
    /// A file of mig-parted.
    MigManager,
}

/// A config, and what becomes of its fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigPlan {
    /// Where it is: `ConfigMap gpu-operator/plugin-config, file default`.
    pub source: String,
    /// Its form.
    pub form: ConfigForm,
    /// Nodes that have it now.
    pub used_by: Vec<String>,
    /// Its fields; of a file of mig-parted, its layouts.
    pub fields: Vec<FieldPlan>,
}

/// A `ConfigMap` that operands name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wanted {
    pub(super) form: ConfigForm,
    pub(super) name: ConfigMapName,
    pub(super) default: Option<String>,
}

impl ConfigPlan {
    /// Whether a node has it.
    pub fn is_used(&self) -> bool {
        !self.used_by.is_empty()
    }

    /// Whether it is for the device plugin.
    pub(super) fn is_of_plugin(&self) -> bool {
        self.form != ConfigForm::MigManager
    }
}

/// The `ConfigMaps` that `DaemonSets` mount, and those that the GPU Operator's settings name.
pub(super) fn wanted(cluster: &Cluster) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for (_, object) in cluster.components() {
        let Some(spec) = pod_spec(object) else { continue };
        for (mount, form) in MOUNTS {
            let Some(name) = mounted(spec, mount) else { continue };
            let default = containers(spec)
                .flat_map(variables)
                .find(|(name, _)| *name == DEFAULT_CONFIG)
                .map(|(_, value)| value.to_owned());
            let name = ConfigMapName { namespace: namespace(object).to_owned(), name };
            wanted.push(Wanted { form, name, default });
        }
    }
    let operator = cluster.components().find(|(component, _)| {
        [Component::GpuOperator, Component::DevicePlugin, Component::MigManager].contains(component)
    });
    let operator = operator.map_or(OPERATOR_NAMESPACE, |(_, object)| namespace(object));
    for policy in &cluster.operators {
        for (part, form) in
            [("devicePlugin", ConfigForm::DevicePlugin), ("migManager", ConfigForm::MigManager)]
        {
            let config = policy.get("spec").and_then(|spec| spec.get(part)?.get("config"));
            let field = |key| {
                let text = config.and_then(|config| text(config, key));
                text.filter(|text| !text.is_empty()).map(str::to_owned)
            };
            if let Some(name) = field("name") {
                let name = ConfigMapName { namespace: operator.to_owned(), name };
                wanted.push(Wanted { form, name, default: field("default") });
            }
        }
    }
    wanted.sort();
    // Of two entries for one ConfigMap, the one with a default says more, and is the later.
    wanted.reverse();
    wanted.dedup_by(|one, other| one.form == other.form && one.name == other.name);
    wanted.reverse();
    wanted
}

/// The `ConfigMap` that a container has at a path.
fn mounted(spec: &Value, path: &str) -> Option<String> {
    let mounts = containers(spec).flat_map(|container| array(container, "volumeMounts"));
    let mut mounts = mounts.filter(|mount| text(mount, "mountPath") == Some(path));
    let volume = text(mounts.next()?, "name")?;
    let volume = array(spec, "volumes").iter().find(|found| text(found, "name") == Some(volume))?;
    Some(text(volume.get("configMap")?, "name")?.to_owned())
}

/// Every config with its fields.
pub(super) fn configs(cluster: &Cluster) -> Vec<ConfigPlan> {
    let of_plugin_nodes = nodes_with(cluster, &PLUGIN_PARTS);
    let of_mig_nodes = nodes_with(cluster, &[Component::MigManager]);
    let mut of_files = Vec::new();
    for Wanted { form, name: wanted, default } in wanted(cluster) {
        let found = cluster
            .config_maps
            .iter()
            .find(|found| namespace(found) == wanted.namespace && name(found) == wanted.name);
        let Some(data) = found.and_then(|found| object(found, "data")) else { continue };
        for (file, text) in data {
            if form == ConfigForm::MigManager && file != MIG_FILE {
                continue;
            }
            let content = text.as_str().unwrap_or_default();
            let fields = match serde_saphyr::from_str::<Value>(content) {
                Ok(content) if form == ConfigForm::MigManager => of_mig(&content),
                Ok(content) => of_plugin(Some(&content), &Overrides::default()),
                Err(error) => vec![FieldPlan {
                    field: "(file)".to_owned(),
                    served: Served::NotServed,
                    reason: format!("it is no YAML: {error}"),
                }],
            };
            let files: Vec<&str> = data.keys().map(String::as_str).collect();
            let has_it = |node: &&&Value| match form {
                ConfigForm::MigManager => {
                    label(node, LABEL_MIG_CONFIG).is_some() || default.is_some()
                }
                _ => file_of(node, default.as_deref(), &files) == Some(file),
            };
            let is_of_mig = form == ConfigForm::MigManager;
            let nodes = if is_of_mig { &of_mig_nodes } else { &of_plugin_nodes };
            let used_by = nodes.iter().filter(has_it).map(|node| name(node).to_owned()).collect();
            let source = format!("ConfigMap {wanted}, file {file}");
            of_files.push(ConfigPlan { source, form, used_by, fields });
        }
    }
    let mut configs = environment(cluster, &of_plugin_nodes, &DeviceList::of(cluster, &of_files));
    configs.extend(of_files);
    configs
}

/// The nodes with a pod of these parts. Where no such pod was read, all nodes with GPUs.
fn nodes_with<'a>(cluster: &'a Cluster, parts: &[Component]) -> Vec<&'a Value> {
    let pods =
        cluster.pods.iter().filter(|pod| component(pod).is_some_and(|it| parts.contains(&it)));
    let with_pods: BTreeSet<&str> = pods.filter_map(node_of).collect();
    let names = if with_pods.is_empty() { gpu_nodes(cluster) } else { with_pods };
    cluster.nodes.iter().filter(|node| names.contains(name(node))).collect()
}

/// The file of a node: by its label, by the default, or by the fallbacks `named` and `single`.
fn file_of<'a>(node: &'a Value, default: Option<&'a str>, files: &[&'a str]) -> Option<&'a str> {
    let named = || files.iter().find(|file| **file == "default").copied();
    let single = || (files.len() == 1).then(|| files.first().copied()).flatten();
    label(node, LABEL_PLUGIN_CONFIG).or(default).or_else(named).or_else(single)
}

/// Variables and flags of the device plugin and of GPU feature discovery.
fn environment(cluster: &Cluster, nodes: &[&Value], list: &DeviceList) -> Vec<ConfigPlan> {
    let objects = cluster.components().filter(|(component, _)| PLUGIN_PARTS.contains(component));
    let mut configs = Vec::new();
    for (component, object) in objects {
        let overrides = settings(object);
        let what = match (overrides.variables.is_empty(), overrides.flags.is_empty()) {
            (true, true) => "settings",
            (false, true) => "variables",
            (true, false) => "flags",
            (false, false) => "variables and flags",
        };
        let mut fields = if overrides == Overrides::default() {
            Vec::new()
        } else {
            of_plugin(None, &overrides)
        };
        if let Some(field) = list.field().filter(|_| component == Component::DevicePlugin) {
            fields.retain(|field| field.field != device_list::FIELD);
            fields.push(field);
            fields.sort_by(|one, other| one.field.cmp(&other.field));
        }
        if fields.is_empty() {
            continue;
        }
        let kind = text(object, "kind").unwrap_or_default();
        configs.push(ConfigPlan {
            source: format!("{what} of {kind} {}", full_name(object)),
            form: ConfigForm::Environment,
            used_by: nodes.iter().map(|node| name(node).to_owned()).collect(),
            fields,
        });
    }
    configs
}
