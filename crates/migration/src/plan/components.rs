//! Parts of NVIDIA's stack, of HAMi and of KAI Scheduler: how each is recognised, and what becomes of it.

use std::fmt;

use octavo_api::names::LABEL_COMPUTE_DOMAIN;
use serde::Serialize;
use serde_json::Value;

use super::cluster::Cluster;
use super::object::{containers, controller, full_name, label, pod_spec};
use super::owner::{Owner, owner};
use crate::json::{array, text};

/// A part of a stack that runs as pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Component {
    /// NVIDIA's GPU Operator itself.
    GpuOperator,
    /// NVIDIA's device plugin.
    DevicePlugin,
    /// NVIDIA's GPU feature discovery.
    FeatureDiscovery,
    /// Daemon of the Multi-Process Service, of the device plugin or of the DRA driver.
    MpsControlDaemon,
    /// NVIDIA's MIG manager.
    MigManager,
    /// Validator of NVIDIA's GPU Operator.
    OperatorValidator,
    /// Kubelet plugin of NVIDIA's DRA driver.
    DraDriver,
    /// Validator of the DRA driver, of NVIDIA's GPU Operator.
    DraValidator,
    /// Controller of ComputeDomains, of NVIDIA's DRA driver.
    ComputeDomainController,
    /// Daemon of a ComputeDomain, of NVIDIA's DRA driver.
    ComputeDomainDaemon,
    /// NVIDIA's driver in a container.
    Driver,
    /// NVIDIA's container toolkit.
    ContainerToolkit,
    /// NVIDIA's DCGM.
    Dcgm,
    /// NVIDIA's DCGM exporter.
    DcgmExporter,
    /// HAMi's device plugin.
    HamiDevicePlugin,
    /// HAMi's scheduler.
    HamiScheduler,
    /// A part of KAI Scheduler.
    KaiScheduler,
    /// Octavo's agent.
    OctavoAgent,
}

/// What becomes of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Fate {
    /// It stays as it is.
    Stays,
    /// Octavo takes its place, and it must end first.
    Replaced,
    /// It ends, and nothing takes its place.
    Ends,
    /// It is not needed any more once its pods have moved.
    NotNeeded,
}

/// Something that was found in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    /// What it is.
    pub what: String,
    /// The object: `DaemonSet gpu-operator/nvidia-device-plugin-daemonset`.
    pub object: String,
    /// Who installed it.
    pub owner: Owner,
    /// What becomes of it.
    pub fate: Fate,
}

impl Component {
    /// What it is, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::GpuOperator => "NVIDIA's GPU Operator",
            Self::DevicePlugin => "NVIDIA's device plugin",
            Self::FeatureDiscovery => "NVIDIA's GPU feature discovery",
            Self::MpsControlDaemon => "MPS control daemon",
            Self::MigManager => "NVIDIA's MIG manager",
            Self::OperatorValidator => "validator of NVIDIA's GPU Operator",
            Self::DraDriver => "NVIDIA's DRA driver",
            Self::DraValidator => "validator of NVIDIA's DRA driver",
            Self::ComputeDomainController => "NVIDIA's controller of ComputeDomains",
            Self::ComputeDomainDaemon => "daemon of a ComputeDomain",
            Self::Driver => "NVIDIA's driver in a container",
            Self::ContainerToolkit => "NVIDIA's container toolkit",
            Self::Dcgm => "NVIDIA's DCGM",
            Self::DcgmExporter => "NVIDIA's DCGM exporter",
            Self::HamiDevicePlugin => "HAMi's device plugin",
            Self::HamiScheduler => "HAMi's scheduler",
            Self::KaiScheduler => "KAI Scheduler",
            Self::OctavoAgent => "Octavo's agent",
        }
    }

    /// What becomes of it.
    pub fn fate(self) -> Fate {
        match self {
            Self::DevicePlugin
            | Self::FeatureDiscovery
            | Self::MigManager
            | Self::MpsControlDaemon
            | Self::DraDriver
            | Self::ComputeDomainController
            | Self::ComputeDomainDaemon
            | Self::HamiDevicePlugin => Fate::Replaced,
            Self::DraValidator => Fate::Ends,
            Self::HamiScheduler | Self::KaiScheduler => Fate::NotNeeded,
            Self::GpuOperator
            | Self::OperatorValidator
            | Self::Driver
            | Self::ContainerToolkit
            | Self::Dcgm
            | Self::DcgmExporter
            | Self::OctavoAgent => Fate::Stays,
        }
    }
}

/// Programs, and names of containers, that show a part.
const PROGRAMS: [(Component, &[&str]); 15] = [
    (Component::GpuOperator, &["gpu-operator"]),
    (Component::DevicePlugin, &["nvidia-device-plugin", "nvidia-device-plugin-ctr"]),
    (Component::FeatureDiscovery, &["gpu-feature-discovery", "gpu-feature-discovery-ctr"]),
    (Component::MpsControlDaemon, &["mps-control-daemon", "mps-control-daemon-ctr"]),
    (Component::MigManager, &["nvidia-mig-manager"]),
    (Component::OperatorValidator, &["nvidia-operator-validator"]),
    (Component::DraDriver, &["gpu-kubelet-plugin", "compute-domain-kubelet-plugin"]),
    (Component::DraValidator, &["nvidia-dra-validator"]),
    (Component::ComputeDomainController, &["compute-domain-controller"]),
    (Component::ComputeDomainDaemon, &["compute-domain-daemon"]),
    (Component::Driver, &["nvidia-driver-ctr"]),
    (Component::ContainerToolkit, &["nvidia-container-toolkit-ctr"]),
    (Component::Dcgm, &["nvidia-dcgm-ctr"]),
    (Component::DcgmExporter, &["nvidia-dcgm-exporter"]),
    (Component::HamiScheduler, &["vgpu-scheduler-extender"]),
];

const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
const PART_OF_LABEL: &str = "app.kubernetes.io/part-of";

/// The part that a pod or a workload is.
pub fn component(object: &Value) -> Option<Component> {
    match (label(object, PART_OF_LABEL), label(object, COMPONENT_LABEL)) {
        (Some("octavo"), Some("agent")) => return Some(Component::OctavoAgent),
        (Some("octavo"), _) => return None,
        (_, Some("hami-device-plugin")) => return Some(Component::HamiDevicePlugin),
        (_, Some("hami-scheduler")) => return Some(Component::HamiScheduler),
        _ => {}
    }
    let spec = pod_spec(object)?;
    // Daemons of Octavo's own ComputeDomains have the same label.
    let is_ours = |container: &Value| words(container).any(|word| word == "imex-daemon");
    if label(object, LABEL_COMPUTE_DOMAIN).is_some() && containers(spec).any(is_ours) {
        return None;
    }
    array(spec, "containers").iter().find_map(|container| {
        let image = text(container, "image").unwrap_or_default();
        if image.contains("kai-scheduler/") {
            return Some(Component::KaiScheduler);
        }
        let found =
            PROGRAMS.iter().find(|(_, names)| words(container).any(|word| names.contains(&word)));
        found.map(|(component, _)| match component {
            // It is a fork, under the same name.
            Component::DevicePlugin if image.contains("hami") => Component::HamiDevicePlugin,
            component => *component,
        })
    })
}

/// The container's name, and the programs of its command. Arguments are read where a shell runs them.
fn words(container: &Value) -> impl Iterator<Item = &str> {
    let command = array(container, "command");
    let is_shell = |word: &Value| word.as_str().is_some_and(|word| word.ends_with("sh"));
    let arguments = if command.iter().any(is_shell) { array(container, "args") } else { &[] };
    let words = command.iter().chain(arguments).filter_map(Value::as_str);
    let words = words.flat_map(str::split_whitespace);
    let programs = words.map(|word| word.rsplit('/').next().unwrap_or(word));
    text(container, "name").into_iter().chain(programs)
}

/// Everything that was found, in order.
pub(super) fn found(cluster: &Cluster) -> Vec<Found> {
    let mut found = Vec::new();
    let mut add = |what: &str, object: &Value, fate: Fate| {
        let kind = text(object, "kind").unwrap_or_default();
        let object_name = format!("{kind} {}", full_name(object));
        found.push(Found {
            what: what.to_owned(),
            object: object_name,
            owner: owner(object),
            fate,
        });
    };
    for object in &cluster.operators {
        match text(object, "kind") {
            Some("NVIDIADriver") => add("NVIDIA's driver in containers", object, Fate::Stays),
            Some("GPUCluster") => {
                add("DRA driver of NVIDIA's GPU Operator", object, Fate::Replaced);
            }
            _ => add("settings of NVIDIA's GPU Operator", object, Fate::Stays),
        }
    }
    for (component, object) in cluster.components() {
        // A ReplicaSet is found by its Deployment.
        if controller(object).is_none_or(|(kind, _)| kind != "Deployment") {
            add(component.name(), object, component.fate());
        }
    }
    for class in cluster.classes.iter().filter(|class| !is_octavos(class)) {
        // It goes with the release of NVIDIA's driver; another one is left alone.
        let is_of_release = matches!(owner(class), Owner::Helm { .. });
        let fate = if is_of_release { Fate::Replaced } else { Fate::Stays };
        add("device class", class, fate);
    }
    for definition in cluster.definitions.iter().filter(|definition| !is_octavos(definition)) {
        add("definition of custom resources", definition, Fate::Stays);
    }
    found.sort();
    found
}

/// Whether Octavo's chart made an object.
pub(super) fn is_octavos(object: &Value) -> bool {
    label(object, PART_OF_LABEL) == Some("octavo")
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stays => "stays",
            Self::Replaced => "ends, Octavo takes its place",
            Self::Ends => "ends, and nothing takes its place",
            Self::NotNeeded => "ends once its pods have moved",
        })
    }
}
