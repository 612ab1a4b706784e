//! What the steps need to know: who installed each part, and the values of Octavo's chart.

use std::collections::{BTreeMap, BTreeSet};

use octavo_api::plugin_config::{Overrides, SETTINGS};
use serde_json::Value;

use super::claims::ClaimPlan;
use super::cluster::{Cluster, ConfigMapName, NODE_FEATURES};
use super::components::{Component, Fate, Found, is_octavos};
use super::configs::{ConfigForm, ConfigPlan, wanted};
use super::device_list::{self, DeviceList};
use super::fields::{Served, of_plugin};
use super::nodes::{Mode, NodePlan};
use super::object::{full_name, name};
use super::owner::{Owner, owner};
use super::settings::{merged, settings, text_of};
use crate::json::text;

/// How a part was installed, and so how it is ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Installed {
    /// By NVIDIA's GPU Operator: node labels end it.
    Operator,
    /// By a release of helm.
    Helm { release: String, namespace: String },
    /// By a manifest, as this kind and object.
    Manifest { kind: String, object: String },
}

/// What the steps need to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StepFacts {
    /// How each part that ends was installed.
    pub(super) installed: BTreeMap<Component, BTreeSet<Installed>>,
    /// The GPU Operator's settings.
    pub(super) cluster_policy: Option<String>,
    /// `ConfigMap`s that Octavo's namespace needs, too.
    pub(super) copies: Vec<ConfigMapName>,
    /// The mode of nodes without a label.
    pub(super) default_mode: Option<Mode>,
    /// Parts that nodes keep which do not move, with the node.
    pub(super) kept: Vec<(Component, String)>,
    /// Values of the chart, in order.
    pub(super) values: Vec<(String, String)>,
}

/// Default root of a driver in a container.
const DRIVER_ROOT: &str = "/run/nvidia/driver";
const KUBELET_ROOT: &str = "/var/lib/kubelet";
const COMPUTE_DOMAINS: &str = "computedomains.resource.nvidia.com";

pub(super) fn facts(
    cluster: &Cluster,
    found: &[Found],
    nodes: &[NodePlan],
    configs: &[ConfigPlan],
    claims: &[ClaimPlan],
) -> StepFacts {
    let mut installed: BTreeMap<Component, BTreeSet<Installed>> = BTreeMap::new();
    for (component, object) in cluster.components() {
        // The driver itself ends the daemons of claims.
        let is_of_claim =
            component == Component::MpsControlDaemon && text(object, "kind") == Some("Deployment");
        if component.fate() != Fate::Stays && !is_of_claim {
            installed.entry(component).or_default().insert(how(object));
        }
    }
    let policies = cluster.operators.iter();
    let policy = policies.clone().find(|object| text(object, "kind") == Some("ClusterPolicy"));
    let is_in = |mode: Mode| nodes.iter().any(|node| node.moves && node.mode == mode);
    let default_mode = match (is_in(Mode::DevicePlugin), is_in(Mode::Dra)) {
        (true, _) => Some(Mode::DevicePlugin),
        (false, true) => Some(Mode::Dra),
        (false, false) => None,
    };
    let mut facts = StepFacts {
        installed,
        cluster_policy: policy.map(|policy| name(policy).to_owned()),
        copies: Vec::new(),
        default_mode,
        kept: kept(nodes),
        values: Vec::new(),
    };
    facts.add_host(policy, cluster);
    if default_mode == Some(Mode::DevicePlugin) {
        facts.set("agent.mode", Mode::DevicePlugin.as_str());
        facts.add_settings(cluster, &DeviceList::of(cluster, configs));
    }
    facts.add_config_maps(cluster, configs);
    let has_mps = |config: &ConfigPlan| {
        config.is_used() && config.fields.iter().any(|field| field.field.starts_with("sharing.mps"))
    };
    if configs.iter().any(has_mps) || claims.iter().any(|claim| claim.has_mps) {
        facts.set("agent.mps.enabled", "true");
    }
    if facts.has(Component::FeatureDiscovery) {
        let has_node_features = cluster.definitions.iter().any(|it| name(it) == NODE_FEATURES);
        facts.set("agent.featureLabels", if has_node_features { "config" } else { "node" });
    }
    if facts.has(Component::MigManager) {
        facts.set("agent.migManager.enabled", "true");
    }
    if facts.keeps_classes(cluster) {
        facts.set("deviceClasses.enabled", "false");
    }
    let is_domain =
        |object: &&str| *object == format!("CustomResourceDefinition {COMPUTE_DOMAINS}");
    if found.iter().map(|found| found.object.as_str()).any(|object| is_domain(&object)) {
        facts.set("computeDomains.crds.install", "false");
    }
    facts
}

/// The parts of nodes that Octavo cannot serve.
fn kept(nodes: &[NodePlan]) -> Vec<(Component, String)> {
    let nodes = nodes.iter().filter(|node| node.not_served.is_some());
    nodes.flat_map(|node| node.ends.iter().map(|part| (*part, node.name.clone()))).collect()
}

/// How an object was installed.
fn how(object: &Value) -> Installed {
    match owner(object) {
        Owner::Helm { release, namespace } => {
            let own = super::object::namespace(object);
            let namespace = if namespace.is_empty() { own.to_owned() } else { namespace };
            Installed::Helm { release, namespace }
        }
        Owner::Object(owner)
            if owner.starts_with("ClusterPolicy") || owner.starts_with("GPUCluster") =>
        {
            Installed::Operator
        }
        Owner::Object(_) | Owner::Unknown => Installed::Manifest {
            kind: text(object, "kind").unwrap_or_default().to_lowercase(),
            object: full_name(object),
        },
    }
}

impl StepFacts {
    /// Whether a part was found that ends.
    pub(super) fn has(&self, component: Component) -> bool {
        self.installed.contains_key(&component)
    }

    fn set(&mut self, key: &str, value: &str) {
        self.values.push((key.to_owned(), value.to_owned()));
    }

    /// Where the driver and the kubelet are.
    fn add_host(&mut self, policy: Option<&Value>, cluster: &Cluster) {
        let at = |path: &str| policy.and_then(|policy| policy.pointer(path));
        let is_off = at("/spec/driver/enabled") == Some(&Value::Bool(false));
        let has_pods = cluster.components().any(|(component, _)| component == Component::Driver);
        if has_pods || policy.is_some() && !is_off {
            let folder = at("/spec/hostPaths/driverInstallDir").and_then(Value::as_str);
            let folder = folder.filter(|folder| !folder.is_empty()).unwrap_or(DRIVER_ROOT);
            self.set("agent.driverRoot", folder);
        }
        let root = at("/spec/hostPaths/kubeletRootDir").and_then(Value::as_str);
        if let Some(root) = root.filter(|root| !root.is_empty() && *root != KUBELET_ROOT) {
            self.set("agent.kubeletRoot", root);
        }
    }

    /// Settings of NVIDIA's device plugin as flags, without those that change nothing.
    fn add_settings(&mut self, cluster: &Cluster, list: &DeviceList) {
        let plugins =
            cluster.components().filter(|(component, _)| *component == Component::DevicePlugin);
        let found = merged(plugins.map(|(_, object)| settings(object)));
        for setting in SETTINGS {
            let value = match setting.field {
                device_list::FIELD => list.flag(),
                _ => text_of(&found, setting),
            };
            let (Some(value), Some(flag)) = (value, setting.flags.first()) else { continue };
            let overrides = Overrides {
                flags: [((*flag).to_owned(), value.to_owned())].into(),
                ..Overrides::default()
            };
            let counts = of_plugin(None, &overrides)
                .iter()
                .any(|field| matches!(field.served, Served::Same | Served::Better));
            if counts {
                // helm takes a comma for the next value.
                let value = value.replace(',', "\\,");
                self.set(&format!("agent.devicePlugin.flags.{flag}"), &value);
            }
        }
    }

    /// `ConfigMap`s with files that nodes have.
    fn add_config_maps(&mut self, cluster: &Cluster, configs: &[ConfigPlan]) {
        for wanted in wanted(cluster) {
            let source = format!("ConfigMap {},", wanted.name);
            let is_used =
                |config: &ConfigPlan| config.is_used() && config.source.starts_with(&source);
            if !configs.iter().any(is_used) {
                continue;
            }
            let part = match wanted.form {
                ConfigForm::MigManager => "agent.migManager.config",
                _ => "agent.devicePlugin.config",
            };
            let key = format!("{part}.name");
            if self.values.iter().any(|(known, _)| *known == key) {
                continue;
            }
            self.set(&key, &wanted.name.name);
            if wanted.form != ConfigForm::MigManager
                && let Some(default) = &wanted.default
            {
                self.set(&format!("{part}.default"), default);
            }
            self.copies.push(wanted.name);
        }
    }

    /// Whether device classes stay that helm would refuse to take over.
    fn keeps_classes(&self, cluster: &Cluster) -> bool {
        let drivers = self.installed.get(&Component::DraDriver);
        let ends = |class: &Value| {
            drivers.is_some_and(|drivers| {
                match how(class) {
                Installed::Helm { release, .. } => drivers.iter().any(|driver| {
                    matches!(driver, Installed::Helm { release: other, .. } if *other == release)
                }),
                Installed::Operator | Installed::Manifest { .. } => false,
            }
            })
        };
        cluster.classes.iter().any(|class| !is_octavos(class) && !ends(class))
    }
}
