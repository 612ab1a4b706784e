//! Reads the facts that the checks need: a few lists, no watch.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use octavo_api::names::{LABEL_GPU_PRESENT, LABEL_MODE, LABEL_OWNER};
use octavo_dra::AttributeValue;
use octavo_dra::slice::{Device, TaintEffect};
use octavo_migration::plan::{Component, component};

use super::domains::{self, DomainFacts};
use super::health;
use super::node_problems::{self, NodeProblem};
use crate::error::ViewError;
use crate::fetch::list;
use crate::pod_trouble;
use crate::snapshot::{DRIVER, newest_generations};

/// The resource of admission policies.
pub(super) const POLICIES: &str = "validatingadmissionpolicies";
/// Labels of Octavo's objects, for any release name.
const OCTAVO: &str = "app.kubernetes.io/part-of=octavo";
/// Label with the part of Octavo that an object is of.
const COMPONENT: &str = "app.kubernetes.io/component";
/// Labels by which Node Feature Discovery or an administrator marks nodes with NVIDIA GPUs.
pub const GPU_LABELS: [&str; 4] = [
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
    LABEL_GPU_PRESENT,
];
/// Namespace and name of the lease of a scheduler without a config file.
const LEASE: (&str, &str) = ("octavo-system", "octavo-scheduler");
/// Extended resources of NVIDIA's device plugin, and the prefix of those for MIG devices.
const PLUGIN_RESOURCES: [&str; 2] = ["nvidia.com/gpu", "nvidia.com/gpu.shared"];
const PLUGIN_MIG_PREFIX: &str = "nvidia.com/mig-";

/// What is known of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Major and minor version of the API server.
    pub server: (u32, u32),
    /// Whether it serves `resource.k8s.io/v1`.
    pub serves_dra: bool,
    /// Names of the `DeviceClass` objects.
    pub classes: BTreeSet<String>,
    /// Names of `RuntimeClass` objects with NVIDIA's handler.
    pub runtime_classes: BTreeSet<String>,
    /// Octavo's admission policies by name, each with the text of its expressions.
    pub policies: BTreeMap<String, String>,
    /// Resources that could not be read, in the plural.
    pub unread: BTreeSet<&'static str>,
    /// Nodes with a GPU, by name.
    pub nodes: BTreeMap<String, GpuNode>,
    /// The agents' pods.
    pub agents: Vec<AgentPod>,
    /// Whether a pod of Octavo's scheduler is ready, or its lease has a holder.
    pub has_scheduler: bool,
    /// What the agents say of their nodes.
    pub problems: Vec<NodeProblem>,
    /// GPUs out of service and all GPUs of each node, as the agents say.
    pub health: BTreeMap<String, (i64, i64)>,
    /// Pods of MPS daemons that are not ready: namespace and name, node, and why.
    pub sick_mps_pods: Vec<AgentPod>,
    /// Pods of NVIDIA's or HAMi's stack that offer GPUs, on nodes with an agent: what they are, namespace and name, and node.
    pub rivals: Vec<Rival>,
    /// What is known of `ComputeDomains`.
    pub domains: DomainFacts,
}

/// A node with a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuNode {
    /// Whether it has a label of a GPU.
    pub is_labelled: bool,
    /// Whether its condition `Ready` is true.
    pub is_ready: bool,
    /// The runtime, as in `containerd://2.1.0`.
    pub runtime: String,
    /// How it offers its GPUs, by its label.
    pub mode: Option<String>,
    /// The scheduler that owns its devices, by its label.
    pub owner: Option<String>,
    /// Extended resources of a device plugin.
    pub plugin_resources: BTreeSet<String>,
    /// Published devices; `None` if there is no slice.
    pub devices: Option<usize>,
    /// Those of them that are whole GPUs.
    pub gpus: usize,
    /// Whether slices of its pool are missing.
    pub is_incomplete: bool,
    /// Taints of its devices that keep pods away.
    pub taints: BTreeSet<DeviceTaint>,
}

/// A taint of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceTaint {
    /// The device.
    pub device: String,
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// A pod of another stack that offers the GPUs of a node with an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rival {
    /// What it is.
    pub what: &'static str,
    /// Namespace and name.
    pub pod: String,
    /// Its node.
    pub node: String,
}

/// A pod of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentPod {
    /// Namespace and name.
    pub name: String,
    /// Its node.
    pub node: String,
    /// Its image.
    pub image: String,
    /// Whether it is ready.
    pub is_ready: bool,
    /// Why its container does not run or was restarted, if the kubelet says so.
    pub trouble: Option<String>,
}

/// Reads the facts.
pub async fn read(client: &Client) -> Result<Facts, ViewError> {
    let version = client.apiserver_version().await;
    let version = version.map_err(|error| ViewError::api("the version", error))?;
    let number = |text: &str| {
        text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
    };
    let mut facts =
        Facts { server: (number(&version.major), number(&version.minor)), ..Facts::default() };
    for node in list::<Node>("nodes", &Api::all(client.clone()), ListParams::default()).await? {
        facts.domains.add_node(&node);
        facts.nodes.insert(node.name_any(), gpu_node(node));
    }
    let params = ListParams::default().fields(&format!("spec.driver={DRIVER}"));
    match list::<ResourceSlice>("resourceslices", &Api::all(client.clone()), params).await {
        Ok(slices) => {
            facts.serves_dra = true;
            add_slices(&mut facts, &slices);
        }
        Err(ViewError::Refused { code: 404, .. }) => {}
        Err(error) => return Err(error),
    }
    facts.nodes.retain(|_, node| {
        node.is_labelled || node.devices.is_some() || !node.plugin_resources.is_empty()
    });
    if !facts.serves_dra {
        return Ok(facts);
    }
    let all = ListParams::default;
    let classes = list("deviceclasses", &Api::<DeviceClass>::all(client.clone()), all()).await;
    let classes = facts.readable("deviceclasses", classes)?;
    facts.classes = classes.iter().map(ResourceExt::name_any).collect();
    let runtimes = list("runtimeclasses", &Api::<RuntimeClass>::all(client.clone()), all()).await;
    let runtimes = facts.readable("runtimeclasses", runtimes)?;
    let is_nvidia = |class: &&RuntimeClass| class.handler.starts_with("nvidia");
    facts.runtime_classes = runtimes.iter().filter(is_nvidia).map(ResourceExt::name_any).collect();
    let ours = ListParams::default().labels(OCTAVO);
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let policies = list(POLICIES, &policies, ours.clone()).await;
    facts.policies = facts.readable(POLICIES, policies)?.iter().map(policy).collect();
    let pods = list("pods", &Api::<Pod>::all(client.clone()), ours).await;
    for pod in facts.readable("pods", pods)? {
        match pod.labels().get(COMPONENT).map(String::as_str) {
            Some("agent") => facts.agents.push(agent(&pod)),
            Some("mps-daemon") if !is_ready(&pod) => facts.sick_mps_pods.push(agent(&pod)),
            Some("scheduler") => facts.has_scheduler |= is_ready(&pod),
            _ => {}
        }
    }
    if !facts.has_scheduler {
        let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE.0);
        let lease = leases.get_opt(LEASE.1).await.map(|lease| lease.into_iter().collect());
        let lease = lease.map_err(|error| ViewError::api("leases", error));
        let lease: Vec<Lease> = facts.readable("leases", lease)?;
        let mut holders = lease.into_iter().filter_map(|lease| lease.spec?.holder_identity);
        facts.has_scheduler = holders.any(|holder| !holder.is_empty());
    }
    read_rivals(client, &mut facts).await?;
    node_problems::read(client, &mut facts).await?;
    health::read(client, &mut facts).await?;
    domains::read(client, &mut facts).await?;
    Ok(facts)
}

/// Reads which nodes with an agent have another program that offers their GPUs.
async fn read_rivals(client: &Client, facts: &mut Facts) -> Result<(), ViewError> {
    let nodes: BTreeSet<String> = facts.agents.iter().map(|agent| agent.node.clone()).collect();
    if nodes.is_empty() {
        return Ok(());
    }
    let pods = list("pods", &Api::<Pod>::all(client.clone()), ListParams::default()).await;
    for pod in facts.readable("pods", pods)? {
        facts.rivals.extend(rival(&pod, &nodes));
    }
    facts.rivals.sort();
    Ok(())
}

fn rival(pod: &Pod, nodes: &BTreeSet<String>) -> Option<Rival> {
    let node = pod.spec.as_ref()?.node_name.clone().filter(|node| nodes.contains(node))?;
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return None;
    }
    let part = component(&serde_json::to_value(pod).ok()?)?;
    let offers = matches!(
        part,
        Component::DevicePlugin | Component::DraDriver | Component::HamiDevicePlugin
    );
    let pod = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    offers.then(|| Rival { what: part.name(), pod, node })
}

impl Facts {
    /// The objects of an answer. Those that the user may not read are noted.
    pub(super) fn readable<T>(
        &mut self,
        kind: &'static str,
        answer: Result<Vec<T>, ViewError>,
    ) -> Result<Vec<T>, ViewError> {
        match answer {
            Err(error) if error.forbidden().is_some() => {
                self.unread.insert(kind);
                Ok(Vec::new())
            }
            answer => answer,
        }
    }
}

/// The name of a policy, and the text of its expressions.
fn policy(policy: &ValidatingAdmissionPolicy) -> (String, String) {
    let spec = policy.spec.as_ref();
    let validations = spec.and_then(|spec| spec.validations.as_ref()).into_iter().flatten();
    let text = validations.map(|found| found.expression.as_str()).collect::<Vec<_>>().join("\n");
    (policy.name_any(), text)
}

fn gpu_node(node: Node) -> GpuNode {
    let has = |label: &&str| node.labels().get(*label).is_some_and(|value| value == "true");
    let is_labelled = GPU_LABELS.iter().any(has);
    let mode = node.labels().get(LABEL_MODE).cloned();
    let owner = node.labels().get(LABEL_OWNER).filter(|owner| !owner.is_empty()).cloned();
    let status = node.status.unwrap_or_default();
    let info = status.node_info.unwrap_or_default();
    let is_ready = |kind: &str, status: &str| kind == "Ready" && status == "True";
    let resources = status.allocatable.unwrap_or_default().into_iter();
    let resources = resources.filter(|(name, amount)| {
        let is_gpu = PLUGIN_RESOURCES.contains(&&**name) || name.starts_with(PLUGIN_MIG_PREFIX);
        is_gpu && amount.0 != "0"
    });
    GpuNode {
        is_labelled,
        is_ready: status.conditions.iter().flatten().any(|c| is_ready(&c.type_, &c.status)),
        runtime: info.container_runtime_version,
        mode,
        owner,
        plugin_resources: resources.map(|(name, _)| name).collect(),
        ..GpuNode::default()
    }
}

fn add_slices(facts: &mut Facts, slices: &[ResourceSlice]) {
    // An unreadable slice makes its pool incomplete.
    let slices = slices.iter().filter_map(|slice| octavo_kube_io::slices::from_api(slice).ok());
    for pool in newest_generations(slices).into_values() {
        facts.domains.add_gpus(&pool);
        let Some(node) = facts.nodes.get_mut(&pool.node) else { continue };
        node.is_incomplete |= !pool.is_complete();
        node.devices = Some(node.devices.unwrap_or(0) + pool.devices.len());
        let is_gpu = |device: &&Device| {
            device.attributes.get("type") == Some(&AttributeValue::String("gpu".to_owned()))
        };
        node.gpus += pool.devices.iter().filter(is_gpu).count();
        for device in &pool.devices {
            let keeps_away = |taint: &&octavo_dra::slice::DeviceTaint| {
                taint.effect != TaintEffect::None && !taint.key.starts_with(LABEL_OWNER)
            };
            let taints = device.taints.iter().filter(keeps_away);
            node.taints.extend(taints.map(|taint| DeviceTaint {
                device: device.name.clone(),
                key: taint.key.clone(),
                value: taint.value.clone(),
            }));
        }
    }
}

fn agent(pod: &Pod) -> AgentPod {
    let spec = pod.spec.clone().unwrap_or_default();
    AgentPod {
        name: format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any()),
        node: spec.node_name.unwrap_or_default(),
        image: spec
            .containers
            .into_iter()
            .find_map(|container| container.image)
            .unwrap_or_default(),
        is_ready: is_ready(pod),
        trouble: pod_trouble::trouble(pod),
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|found| found.type_ == "Ready" && found.status == "True")
}
