//! The commands of steps.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{AFTER, BEFORE, LAST, NAMESPACE};
use crate::plan::cluster::ConfigMapName;
use crate::plan::components::Component;
use crate::plan::nodes::NodePlan;
use crate::plan::values::{Installed, StepFacts};

/// Nodes that a command names; of more it has a placeholder.
const MAX_NAMED: usize = 5;
/// Labels by which the GPU Operator deploys the parts that Octavo replaces, without their prefix.
const DEPLOY_LABELS: [(Component, &str); 6] = [
    (Component::DevicePlugin, "device-plugin"),
    // It goes with the device plugin.
    (Component::MpsControlDaemon, "device-plugin"),
    (Component::FeatureDiscovery, "gpu-feature-discovery"),
    (Component::MigManager, "mig-manager"),
    (Component::DraDriver, "dra-driver"),
    (Component::DraValidator, "dra-validator"),
];
impl StepFacts {
    /// How the parts were installed, each way once.
    pub(super) fn parts(&self, components: &[Component]) -> impl Iterator<Item = &Installed> {
        let found = self.installed.iter().filter(|(component, _)| components.contains(component));
        found.flat_map(|(_, installed)| installed).collect::<BTreeSet<_>>().into_iter()
    }

    /// The labels of the GPU Operator that end parts, without their prefix.
    pub(super) fn deploy_labels(&self, components: &[Component]) -> BTreeSet<&'static str> {
        let is_here = |component: &Component| {
            components.contains(component)
                && self
                    .installed
                    .get(component)
                    .is_some_and(|installed| installed.contains(&Installed::Operator))
        };
        let labels = DEPLOY_LABELS.iter().filter(|(component, _)| is_here(component));
        labels.map(|(_, label)| *label).collect()
    }

    /// The commands that end parts.
    pub(super) fn ended(&self, components: &[Component], nodes: &[&NodePlan]) -> Vec<String> {
        let labels = self.deploy_labels(components);
        let labels = deploy(labels, false);
        let mut commands = Vec::new();
        let nodes = with_parts(nodes, components);
        if !labels.is_empty() && !nodes.is_empty() {
            commands.extend(named("kubectl label node", &nodes, &format!("{labels} --overwrite")));
        }
        let kept = self.kept.iter().filter(|(part, _)| components.contains(part));
        let kept: BTreeSet<&str> = kept.map(|(_, node)| node.as_str()).collect();
        let kept = kept.into_iter().collect::<Vec<_>>().join(" ");
        for installed in self.parts(components) {
            let command = match installed {
                Installed::Operator => continue,
                Installed::Helm { release, namespace } => {
                    format!("helm uninstall {release} --namespace {namespace}")
                }
                Installed::Manifest { kind, object } => {
                    format!("kubectl delete {}", named_object(kind, object))
                }
            };
            // Others still need it: no command ends it on some nodes only.
            let command = if kept.is_empty() {
                command
            } else {
                format!(
                    "# not `{command}`: nodes that do not move have it ({kept}); keep its pods off the other nodes by its node selector"
                )
            };
            if !commands.contains(&command) {
                commands.push(command);
            }
        }
        commands
    }

    /// Commands that write to files what is installed.
    pub(super) fn saved(&self) -> Vec<String> {
        let mut commands = Vec::new();
        if let Some(policy) = &self.cluster_policy {
            commands
                .push(format!("kubectl get clusterpolicy {policy} -o yaml > clusterpolicy.yaml"));
        }
        let all = [&BEFORE[..], &AFTER[..], &LAST[..]].concat();
        for installed in self.parts(&all) {
            commands.push(match installed {
                Installed::Operator => continue,
                Installed::Helm { release, namespace } => {
                    format!(
                        "helm get values {release} --namespace {namespace} > {release}-values.yaml"
                    )
                }
                Installed::Manifest { kind, object } => format!(
                    "kubectl get {} -o yaml > {}",
                    named_object(kind, object),
                    file_name(object)
                ),
            });
        }
        commands
    }

    pub(super) fn install(&self) -> String {
        let mut command = format!(
            "helm upgrade --install octavo charts/octavo --namespace {NAMESPACE} --create-namespace"
        );
        for (key, value) in &self.values {
            // Writing to a string cannot fail.
            let _ = write!(command, " --set '{key}={value}'");
        }
        command
    }

    /// Whether the GPU Operator's settings have switches of parts that end.
    pub(super) fn is_switched(&self) -> bool {
        self.switches().next().is_some()
    }

    fn switches(&self) -> impl Iterator<Item = &'static str> {
        let switches = [
            (Component::DevicePlugin, "devicePlugin"),
            (Component::FeatureDiscovery, "gfd"),
            (Component::MigManager, "migManager"),
        ];
        switches.into_iter().filter_map(|(component, switch)| {
            let installed = self.installed.get(&component)?;
            installed.contains(&Installed::Operator).then_some(switch)
        })
    }

    pub(super) fn patch(&self, policy: &str, is_enabled: bool) -> String {
        let switches =
            self.switches().map(|switch| format!("\"{switch}\":{{\"enabled\":{is_enabled}}}"));
        let switches = switches.collect::<Vec<_>>().join(",");
        format!(
            "kubectl patch clusterpolicy {policy} --type merge -p '{{\"spec\":{{{switches}}}}}'"
        )
    }
}

/// A command on nodes. Of many it has a placeholder.
pub(super) fn named(command: &str, nodes: &[&NodePlan], rest: &str) -> Vec<String> {
    let names = if nodes.len() > MAX_NAMED {
        "NODE...".to_owned()
    } else {
        nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(" ")
    };
    vec![format!("{command} {names}{rest}")]
}

fn named_object(kind: &str, object: &str) -> String {
    match object.split_once('/') {
        Some((namespace, name)) => format!("{kind} {name} --namespace {namespace}"),
        None => format!("{kind} {object}"),
    }
}

pub(super) fn file_name(object: &str) -> String {
    format!("{}.yaml", object.rsplit('/').next().unwrap_or(object))
}

/// The command that copies a `ConfigMap` to Octavo's namespace.
pub(super) fn copy(config_map: &ConfigMapName) -> String {
    let ConfigMapName { namespace, name } = config_map;
    format!(
        "kubectl get configmap {name} --namespace {namespace} -o json | jq '{{apiVersion, kind, metadata: {{name: \
         .metadata.name}}, data}}' | kubectl apply --namespace {NAMESPACE} -f -"
    )
}

/// Labels of the GPU Operator with a value, as arguments.
pub(super) fn deploy(labels: impl IntoIterator<Item = &'static str>, is_on: bool) -> String {
    let labels = labels.into_iter().map(|label| format!(" nvidia.com/gpu.deploy.{label}={is_on}"));
    labels.collect::<Vec<_>>().concat()
}

/// The nodes on which one of these parts has to end.
pub(super) fn with_parts<'a>(nodes: &[&'a NodePlan], parts: &[Component]) -> Vec<&'a NodePlan> {
    let has_part = |node: &&NodePlan| node.ends.iter().any(|part| parts.contains(part));
    nodes.iter().copied().filter(has_part).collect()
}
