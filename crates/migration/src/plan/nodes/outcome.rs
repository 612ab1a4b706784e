//! What becomes of a node: the mode that fits, what has to end, what is taken over and what changes.

use std::collections::BTreeMap;

use octavo_api::names::{
    EXTENDED_RESOURCE_GPU, LABEL_COMPUTE_DOMAIN, LABEL_MIG_CONFIG, LABEL_MIG_CONFIG_STATE,
    LABEL_MODE, LABEL_PLUGIN_CONFIG, LABEL_PREFIX_OPERATOR_DEPLOY,
};
use serde_json::Value;

use super::{Facts, Mode, NodePlan, pod_list};
use crate::json::{object, scalar};
use crate::plan::components::{Component, Fate};
use crate::plan::configs::ConfigPlan;
use crate::plan::device_list::DeviceList;
use crate::plan::fields::Served;
use crate::plan::object::{label, name};

/// The plan of a node.
pub(super) fn plan(
    facts: &Facts<'_>,
    serves_dra: bool,
    configs: &[ConfigPlan],
    list: &DeviceList,
) -> NodePlan {
    let (mode, reason) = mode(facts, serves_dra);
    let mut must_end = Vec::new();
    let mut why = Vec::new();
    if facts.is_of_hami() && !facts.plugin_pods.is_empty() {
        must_end.extend(facts.plugin_pods.iter().cloned());
        why.push("HAMi's shares are known to HAMi alone");
    }
    if facts.has_foreign_claims() && facts.has(Component::ComputeDomainDaemon) {
        must_end.extend(facts.claim_pods.iter().cloned());
        why.push("their ComputeDomains have daemons of NVIDIA's driver");
    }
    must_end.sort();
    must_end.dedup();
    let ends = facts.operands.keys().copied();
    let is_ending =
        |component: &Component| [Fate::Replaced, Fate::Ends].contains(&component.fate());
    let ends: Vec<Component> = ends.filter(is_ending).collect();
    let not_served = not_served(facts);
    let is_octavos = facts.has(Component::OctavoAgent) && ends.is_empty();
    NodePlan {
        name: name(facts.node).to_owned(),
        offers: facts.offers(),
        labels: labels(facts.node),
        moves: not_served.is_none() && !is_octavos,
        not_served,
        mode,
        reason,
        plugin_pods: pod_list(&facts.plugin_pods),
        claim_pods: pod_list(&facts.claim_pods),
        must_end: pod_list(&must_end),
        why_end: why.join("; "),
        ends,
        stays: stays(facts, mode),
        taken_over: taken_over(facts, mode, configs, list),
        changes: changes(facts, mode, configs, list),
    }
}

/// Label by which the GPU Operator gives the GPUs of a node to virtual machines.
const WORKLOAD_CONFIG: &str = "nvidia.com/gpu.workload.config";
/// Begin of the names of devices that NVIDIA's DRA driver gives to virtual machines.
const VFIO_PREFIX: &str = "gpu-vfio-";

/// Why Octavo cannot serve a node.
fn not_served(facts: &Facts<'_>) -> Option<String> {
    let workload = label(facts.node, WORKLOAD_CONFIG).filter(|config| config.starts_with("vm-"));
    let cause = match workload {
        Some(config) => format!("its label {WORKLOAD_CONFIG} is {config}"),
        None => format!("a claim has its device {}", facts.vfio_device.as_ref()?),
    };
    Some(format!(
        "{cause}, and Octavo gives no GPU to virtual machines; leave the node as it is, and keep Octavo's agent off it \
         (agent.nodeSelector)"
    ))
}

/// The labels by which NVIDIA's stack decides about a node.
fn labels(node: &Value) -> BTreeMap<String, String> {
    let keys = [
        LABEL_PLUGIN_CONFIG,
        LABEL_MIG_CONFIG,
        LABEL_MIG_CONFIG_STATE,
        LABEL_MODE,
        WORKLOAD_CONFIG,
    ];
    let labels = node.get("metadata").and_then(|metadata| object(metadata, "labels"));
    let labels = labels.into_iter().flatten().filter(|(key, _)| {
        keys.contains(&key.as_str()) || key.starts_with(LABEL_PREFIX_OPERATOR_DEPLOY)
    });
    labels.filter_map(|(key, value)| Some((key.clone(), scalar(value)?))).collect()
}

/// Whether a device is one of a virtual machine.
pub(super) fn is_vfio(device: &str) -> bool {
    device.starts_with(VFIO_PREFIX)
}

/// The mode that fits, and why.
fn mode(facts: &Facts<'_>, serves_dra: bool) -> (Mode, String) {
    if facts.has(Component::OctavoAgent) {
        return match label(facts.node, LABEL_MODE) {
            Some("device-plugin") => {
                (Mode::DevicePlugin, format!("its label {LABEL_MODE} says so"))
            }
            Some("dra") => (Mode::Dra, format!("its label {LABEL_MODE} says so")),
            _ if facts.devices.is_none() && !facts.resources.is_empty() => {
                (Mode::DevicePlugin, "Octavo's agent offers it so".to_owned())
            }
            _ => (Mode::Dra, "Octavo's agent offers it so".to_owned()),
        };
    }
    if !serves_dra {
        let reason = "the API server does not serve resource.k8s.io/v1, so there are no claims";
        return (Mode::DevicePlugin, reason.to_owned());
    }
    if facts.is_of_hami() {
        let reason = "HAMi shares its GPUs, and shares of Octavo are for claims";
        return (Mode::Dra, reason.to_owned());
    }
    if !facts.plugin_pods.is_empty() {
        let reason = "pods have devices of a device plugin, and keep them in this mode";
        return (Mode::DevicePlugin, reason.to_owned());
    }
    let reason = if facts.claim_pods.is_empty() {
        "no pod has devices of a device plugin"
    } else {
        "its pods have claims"
    };
    (Mode::Dra, reason.to_owned())
}

fn stays(facts: &Facts<'_>, mode: Mode) -> Vec<String> {
    let operands = facts.operands.keys().filter(|component| component.fate() == Fate::Stays);
    let mut stays: Vec<String> = operands.map(|component| component.name().to_owned()).collect();
    if mode == Mode::DevicePlugin && !facts.plugin_pods.is_empty() && !facts.is_of_hami() {
        stays.push(format!(
            "pods with devices of the device plugin: {}",
            pod_list(&facts.plugin_pods)
        ));
    }
    stays
}

fn taken_over(
    facts: &Facts<'_>,
    mode: Mode,
    configs: &[ConfigPlan],
    list: &DeviceList,
) -> Vec<String> {
    let mut lines = Vec::new();
    let node = name(facts.node);
    if mode == Mode::DevicePlugin && !facts.is_of_hami() {
        let names: Vec<&str> = facts.resources.keys().map(String::as_str).collect();
        if !names.is_empty() {
            lines.push(format!("resources with their device ids: {}", names.join(", ")));
        }
        let used = configs.iter().filter(|config| config.is_of_plugin());
        let is_whole = |config: &&ConfigPlan| {
            config.fields.iter().all(|field| field.served != Served::NotServed)
        };
        for config in
            used.filter(|config| config.used_by.iter().any(|user| user == node)).filter(is_whole)
        {
            lines.push(format!("settings: {}", config.source));
        }
        if let Some(file) = label(facts.node, LABEL_PLUGIN_CONFIG) {
            lines.push(format!("label {LABEL_PLUGIN_CONFIG}={file}"));
        }
        lines.extend(list.kept().filter(|_| facts.has(Component::DevicePlugin)));
    }
    if facts.devices.is_some() && mode == Mode::Dra {
        lines.push(
            "names of devices and classes, so that manifests with claims stay as they are"
                .to_owned(),
        );
    }
    if facts.has_foreign_claims() && !facts.has(Component::ComputeDomainDaemon) {
        lines.push(format!(
            "claims that NVIDIA's DRA driver prepared, by its checkpoint; their pods keep running: {}",
            pod_list(&facts.claim_pods)
        ));
    }
    if facts.has(Component::MigManager) {
        let layout = label(facts.node, LABEL_MIG_CONFIG);
        lines.push(match layout {
            Some(layout) => {
                format!("label {LABEL_MIG_CONFIG}={layout}, with the MIG devices that fit it")
            }
            None => "MIG devices, as they are".to_owned(),
        });
    }
    if facts.has(Component::FeatureDiscovery) {
        lines.push("labels of GPU feature discovery, with their values".to_owned());
    }
    if let Some(domain) = label(facts.node, LABEL_COMPUTE_DOMAIN) {
        lines.push(format!("definition of the ComputeDomain {domain}; its jobs start again"));
    }
    lines
}

fn changes(
    facts: &Facts<'_>,
    mode: Mode,
    configs: &[ConfigPlan],
    list: &DeviceList,
) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let has_plugin = facts.has(Component::DevicePlugin);
    if has_plugin {
        lines.push("a GPU that is well again is offered again, without a restart".to_owned());
    }
    match mode {
        Mode::Dra if !facts.has(Component::OctavoAgent) => {
            lines.extend(without_plugin(facts, configs));
        }
        Mode::DevicePlugin if has_plugin => lines.extend(list.changed(facts.node, configs)),
        Mode::Dra | Mode::DevicePlugin => {}
    }
    if facts.has(Component::MigManager) {
        let line =
            "a new MIG layout changes only GPUs that differ, and pods on others keep running";
        lines.push(line.to_owned());
    }
    if facts.has(Component::MpsControlDaemon) {
        let line = "pods under MPS must be created again: their programs end with NVIDIA's daemon, and they know no other";
        lines.push(line.to_owned());
    }
    if facts.has(Component::ComputeDomainDaemon) {
        let line =
            "daemons of ComputeDomains are Octavo's, and do not share a domain with NVIDIA's";
        lines.push(line.to_owned());
    }
    lines
}

/// What pods lose on a node that had a device plugin and has none any more.
fn without_plugin(facts: &Facts<'_>, configs: &[ConfigPlan]) -> Vec<String> {
    let mut lines = Vec::new();
    if facts.has(Component::DevicePlugin) {
        let line = "pods get their devices by CDI, and see NVIDIA_VISIBLE_DEVICES=void";
        lines.push(line.to_owned());
    }
    if facts.resources.contains_key(EXTENDED_RESOURCE_GPU) {
        let line = format!(
            "{EXTENDED_RESOURCE_GPU} is served by a claim that the scheduler makes (Kubernetes 1.36)"
        );
        lines.push(line);
    }
    let others = facts.resources.keys().filter(|name| *name != EXTENDED_RESOURCE_GPU);
    let others: Vec<&str> = others.map(String::as_str).collect();
    if !others.is_empty() {
        let others = others.join(", ");
        lines.push(format!(
            "{others} are not offered any more: pods that ask for them need claims, or the node the mode device-plugin"
        ));
    }
    let node = name(facts.node);
    let is_sliced = |config: &ConfigPlan| {
        config.used_by.iter().any(|user| user == node)
            && config.fields.iter().any(|field| field.field.starts_with("sharing.timeSlicing"))
    };
    if configs.iter().any(is_sliced) {
        let line = "the config's time slices are not in effect: a pod gets whole GPUs, or a share by a claim";
        lines.push(line.to_owned());
    }
    lines
}
