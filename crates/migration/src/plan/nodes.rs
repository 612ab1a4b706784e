//! Each node with NVIDIA GPUs: what offers them, which pods have them, and what becomes of both.

mod outcome;
mod pod_list;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use octavo_api::names::DRIVER;
use serde::Serialize;
use serde_json::Value;

pub use self::pod_list::PodList;
use self::pod_list::pod_list;
use super::cluster::{Cluster, results};
use super::components::{Component, component};
use super::configs::ConfigPlan;
use super::device_list::DeviceList;
use super::object::{
    NVIDIA, containers, full_name, has_nvidia_resource, is_some_amount, label, name, namespace,
    node_of, pod_spec,
};
use crate::json::{array, object, scalar, text};

/// Labels by which node feature discovery or NVIDIA's GPU Operator marks nodes with NVIDIA GPUs.
const GPU_LABELS: [&str; 4] = [
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
];
/// How a node offers its GPUs under Octavo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// As counted resources, such as `nvidia.com/gpu`.
    DevicePlugin,
    /// In slices, for resource claims.
    Dra,
}

/// What offers the GPUs of a node now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    /// The program, such as `NVIDIA's device plugin`.
    pub by: String,
    /// Its pod on the node, `namespace/name`, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Counted resources of the node, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, String>,
    /// Devices in slices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<usize>,
}

/// What becomes of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePlan {
    /// The node.
    pub name: String,
    /// What offers its GPUs now.
    pub offers: Vec<Offer>,
    /// Its labels that decide which parts of NVIDIA's stack it has, and with which settings.
    pub labels: BTreeMap<String, String>,
    /// Whether the steps move it: Octavo serves it, and does not do so already.
    pub moves: bool,
    /// Why Octavo cannot serve it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_served: Option<String>,
    /// The mode of Octavo that fits.
    pub mode: Mode,
    /// Why it fits.
    pub reason: String,
    /// Pods with devices of a device plugin.
    pub plugin_pods: PodList,
    /// Pods with allocated claims.
    pub claim_pods: PodList,
    /// Pods that must end first.
    pub must_end: PodList,
    /// Why they must.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why_end: String,
    /// Parts of the old stack that must end on the node.
    pub ends: Vec<Component>,
    /// What goes on running.
    pub stays: Vec<String>,
    /// What Octavo's agent takes over as it is.
    pub taken_over: Vec<String>,
    /// What is another than before.
    pub changes: Vec<String>,
}

/// What is found on a node.
struct Facts<'a> {
    node: &'a Value,
    operands: BTreeMap<Component, String>,
    resources: BTreeMap<String, String>,
    devices: Option<usize>,
    plugin_pods: Vec<String>,
    claim_pods: Vec<String>,
    vfio_device: Option<String>,
}

/// Names of the nodes with NVIDIA GPUs.
pub(super) fn gpu_nodes(cluster: &Cluster) -> BTreeSet<&str> {
    let is_labelled = |node: &Value| GPU_LABELS.iter().any(|key| label(node, key) == Some("true"));
    let of_nodes =
        cluster.nodes.iter().filter(|node| is_labelled(node) || !resources(node).is_empty());
    let of_slices = cluster.slices.iter().filter(|slice| is_of_gpus(slice)).filter_map(slice_node);
    let offering = [Component::DevicePlugin, Component::DraDriver, Component::HamiDevicePlugin];
    let offers = |pod: &&Value| component(pod).is_some_and(|found| offering.contains(&found));
    let of_pods = cluster.pods.iter().filter(offers).filter_map(node_of);
    let all = of_nodes.map(name).chain(of_slices).chain(of_pods).collect::<BTreeSet<_>>();
    // A slice may outlive its node.
    let known: BTreeSet<&str> = cluster.nodes.iter().map(name).collect();
    all.intersection(&known).copied().collect()
}

/// The plan of each node with NVIDIA GPUs.
pub(super) fn nodes(cluster: &Cluster, configs: &[ConfigPlan]) -> Vec<NodePlan> {
    let gpu_nodes = gpu_nodes(cluster);
    let holders = claim_holders(cluster);
    let list = DeviceList::of(cluster, configs);
    let nodes = cluster.nodes.iter().filter(|node| gpu_nodes.contains(name(node)));
    let plans = nodes.map(|node| {
        outcome::plan(&facts(cluster, node, &holders), cluster.serves_dra, configs, &list)
    });
    let mut plans: Vec<NodePlan> = plans.collect();
    plans.sort_by(|one, other| one.name.cmp(&other.name));
    plans
}

/// NVIDIA's resources of a node with their amounts.
fn resources(node: &Value) -> BTreeMap<String, String> {
    let amounts = node.get("status").and_then(|status| object(status, "allocatable"));
    let amounts = amounts.into_iter().flatten();
    amounts
        .filter(|(name, amount)| name.starts_with(NVIDIA) && is_some_amount(amount))
        .filter_map(|(name, amount)| Some((name.clone(), scalar(amount)?)))
        .collect()
}

fn is_of_gpus(slice: &Value) -> bool {
    slice.pointer("/spec/driver").and_then(Value::as_str) == Some(DRIVER)
}

fn slice_node(slice: &Value) -> Option<&str> {
    slice.pointer("/spec/nodeName").and_then(Value::as_str)
}

/// The consumers of claims with NVIDIA's devices, and by pool the claims without one.
#[derive(Default)]
struct ClaimHolders<'a> {
    pods: BTreeSet<(&'a str, &'a str)>,
    claims: BTreeMap<&'a str, Vec<String>>,
    vfio_devices: BTreeMap<&'a str, &'a str>,
}

fn claim_holders(cluster: &Cluster) -> ClaimHolders<'_> {
    let mut holders = ClaimHolders::default();
    for claim in &cluster.claims {
        let is_held = |result: &&Value| result.get("adminAccess") != Some(&Value::Bool(true));
        let held: Vec<&Value> = results(claim).iter().filter(is_held).collect();
        if held.is_empty() {
            continue;
        }
        for result in &held {
            let (pool, device) = (text(result, "pool"), text(result, "device"));
            if let (Some(pool), Some(device)) =
                (pool, device.filter(|device| outcome::is_vfio(device)))
            {
                holders.vfio_devices.insert(pool, device);
            }
        }
        let consumers = claim.get("status").map_or(&[][..], |status| array(status, "reservedFor"));
        let pods = consumers.iter().filter(|consumer| text(consumer, "resource") == Some("pods"));
        holders.pods.extend(pods.filter_map(|pod| Some((namespace(claim), text(pod, "name")?))));
        if consumers.is_empty() {
            let pools: BTreeSet<&str> =
                held.iter().filter_map(|result| text(result, "pool")).collect();
            for pool in pools {
                let name = format!("claim {}", full_name(claim));
                holders.claims.entry(pool).or_default().push(name);
            }
        }
    }
    holders
}

fn facts<'a>(cluster: &'a Cluster, node: &'a Value, holders: &ClaimHolders<'_>) -> Facts<'a> {
    let node_name = name(node);
    let mut operands = BTreeMap::new();
    let (mut plugin_pods, mut claim_pods) = (Vec::new(), Vec::new());
    for pod in cluster.pods.iter().filter(|pod| node_of(pod) == Some(node_name)) {
        if let Some(component) = component(pod) {
            operands.entry(component).or_insert_with(|| full_name(pod));
            continue;
        }
        // With a claim for it, a resource such as nvidia.com/gpu is of no device plugin.
        let has_own_claim = pod.pointer("/status/extendedResourceClaimStatus").is_some();
        let asks = pod_spec(pod).is_some_and(|spec| containers(spec).any(has_nvidia_resource));
        if asks && !has_own_claim {
            plugin_pods.push(full_name(pod));
        }
        if holders.pods.contains(&(namespace(pod), name(pod))) {
            claim_pods.push(full_name(pod));
        }
    }
    claim_pods.extend(holders.claims.get(node_name).into_iter().flatten().cloned());
    let slices = cluster
        .slices
        .iter()
        .filter(|slice| is_of_gpus(slice) && slice_node(slice) == Some(node_name));
    let devices =
        slices.map(|slice| slice.get("spec").map_or(0, |spec| array(spec, "devices").len()));
    let devices = devices.fold(None, |sum: Option<usize>, count| Some(sum.unwrap_or(0) + count));
    plugin_pods.sort();
    claim_pods.sort();
    let vfio_device = holders.vfio_devices.get(node_name).map(|device| (*device).to_owned());
    let resources = resources(node);
    Facts { node, operands, resources, devices, plugin_pods, claim_pods, vfio_device }
}

impl Facts<'_> {
    fn has(&self, component: Component) -> bool {
        self.operands.contains_key(&component)
    }

    /// What offers the node's GPUs.
    fn offers(&self) -> Vec<Offer> {
        let by = |components: &[Component], unknown: &str| {
            let found = components.iter().find_map(|found| self.operands.get_key_value(found));
            match found {
                Some((component, pod)) => (component.name().to_owned(), Some(pod.clone())),
                None => (unknown.to_owned(), None),
            }
        };
        let mut offers = Vec::new();
        if !self.resources.is_empty() {
            let plugins =
                [Component::HamiDevicePlugin, Component::DevicePlugin, Component::OctavoAgent];
            let (by, pod) = by(&plugins, "a device plugin without a known pod");
            offers.push(Offer { by, pod, resources: self.resources.clone(), devices: None });
        }
        if let Some(devices) = self.devices {
            let drivers = [Component::DraDriver, Component::OctavoAgent];
            let (by, pod) = by(&drivers, "a DRA driver without a known pod");
            let devices = Some(devices);
            offers.push(Offer { by, pod, resources: BTreeMap::new(), devices });
        }
        offers
    }

    fn is_of_hami(&self) -> bool {
        self.has(Component::HamiDevicePlugin)
    }

    /// Whether the node's slices are of another driver than Octavo's.
    fn has_foreign_claims(&self) -> bool {
        !self.claim_pods.is_empty()
            && (self.has(Component::DraDriver) || !self.has(Component::OctavoAgent))
    }
}

impl Mode {
    /// Its name in settings and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DevicePlugin => "device-plugin",
            Self::Dra => "dra",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
