//! Reads what is known of `ComputeDomains`. Nothing more is read where no node has a clique and the kind does not exist.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use octavo_api::compute_domain::ComputeDomain;
use octavo_api::names::{DRIVER_COMPUTE_DOMAIN, LABEL_CLIQUE, LABEL_COMPUTE_DOMAIN, TAINT_IMEX};
use octavo_dra::{AttributeValue, Device};

use super::definitions::{self, Definition};
use super::foreign;
use crate::controller::{self, Controller};
use crate::doctor::facts::Facts;
use crate::error::ViewError;
use crate::fetch::list;
use crate::scheduler::LeaseProblem;
use crate::snapshot::{Pool, newest_generations};

/// What is known of `ComputeDomains`.
#[derive(Clone, Debug, Default)]
pub struct DomainFacts {
    /// The definitions, by name. One that is absent could not be read.
    pub(super) definitions: BTreeMap<String, Definition>,
    /// UIDs of the domains; `None` if they could not be read.
    pub(super) domains: Option<BTreeSet<String>>,
    /// Nodes with a clique, or with the label of a domain.
    pub(crate) nodes: BTreeMap<String, FabricNode>,
    /// Nodes that offer a channel.
    pub(super) published: BTreeSet<String>,
    /// The controller's lease.
    pub(super) controller: Option<Controller>,
    /// Workloads of NVIDIA's driver of `ComputeDomains`.
    pub(super) foreign: Vec<String>,
    /// The policies of the driver's namespace.
    pub(super) policies: Vec<NetworkPolicy>,
}

/// A node with a clique, or with the label of a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FabricNode {
    /// Its clique, by its label.
    pub(super) clique: Option<String>,
    /// UID of the domain in its label.
    pub(super) domain: Option<String>,
    /// The kubelet's version.
    pub(super) kubelet: Option<[u32; 3]>,
    /// Versions of NVIDIA's driver, as its devices have them.
    pub(super) drivers: BTreeSet<String>,
    /// What its channel lacks, as its taint says.
    pub(super) obstacle: Option<String>,
}

impl DomainFacts {
    /// Notes a node's labels.
    pub(crate) fn add_node(&mut self, node: &Node) {
        let label = |key: &str| node.labels().get(key).filter(|value| !value.is_empty()).cloned();
        let (clique, domain) = (label(LABEL_CLIQUE), label(LABEL_COMPUTE_DOMAIN));
        if clique.is_none() && domain.is_none() {
            return;
        }
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        let kubelet = info.and_then(|info| version(&info.kubelet_version));
        let found = FabricNode { clique, domain, kubelet, ..FabricNode::default() };
        self.nodes.insert(node.name_any(), found);
    }

    /// Notes the driver's version of a node's devices.
    pub(crate) fn add_gpus(&mut self, pool: &Pool) {
        let Some(node) = self.nodes.get_mut(&pool.node) else { return };
        for device in &pool.devices {
            if let Some(AttributeValue::Version(version)) = device.attributes.get("driverVersion") {
                node.drivers.insert(version.clone());
            }
        }
    }

    /// Notes which nodes offer a channel, and what their channels lack.
    fn add_channels(&mut self, slices: &[ResourceSlice]) {
        let slices = slices.iter().filter_map(|slice| octavo_kube_io::slices::from_api(slice).ok());
        let kind = AttributeValue::String("channel".to_owned());
        for pool in newest_generations(slices).into_values().filter(Pool::is_complete) {
            let is_channel = |device: &&Device| device.attributes.get("type") == Some(&kind);
            let Some(channel) = pool.devices.iter().find(is_channel) else { continue };
            if let Some(node) = self.nodes.get_mut(&pool.node) {
                let taint = channel.taints.iter().find(|taint| taint.key == TAINT_IMEX);
                node.obstacle = taint.map(|taint| taint.value.clone());
            }
            self.published.insert(pool.node);
        }
    }

    /// Whether a definition exists.
    pub(super) fn is_defined(&self) -> bool {
        self.definitions.values().any(|definition| *definition != Definition::Missing)
    }
}

/// Reads the rest. Nodes and GPUs are known.
pub(in crate::doctor) async fn read(client: &Client, facts: &mut Facts) -> Result<(), ViewError> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (name, wanted) in definitions::wanted() {
        let kind = "customresourcedefinitions";
        let found = crds.get_opt(&name).await.map(|found| vec![found]);
        let found = found.map_err(|error| ViewError::api(kind, error));
        if let Some(found) = facts.readable(kind, found)?.first() {
            let state = definitions::compare(&wanted, found.as_ref());
            facts.domains.definitions.insert(name, state);
        }
    }
    let has_clique = facts.domains.nodes.values().any(|node| node.clique.is_some());
    if !has_clique && !facts.domains.is_defined() {
        return Ok(());
    }
    let controller = controller::find(client, None, Timestamp::now()).await?;
    if matches!(controller.holder, Err(LeaseProblem::Forbidden { .. })) {
        facts.unread.insert("leases");
    }
    let namespace = controller.lease.namespace().to_owned();
    facts.domains.controller = Some(controller);
    let all = ListParams::default;
    let domains = list("computedomains", &Api::<ComputeDomain>::all(client.clone()), all()).await;
    facts.domains.domains = match domains {
        Err(ViewError::Refused { code: 404, .. }) => None,
        answer => {
            let domains = facts.readable("computedomains", answer)?;
            let is_read = !facts.unread.contains("computedomains");
            is_read.then(|| domains.into_iter().filter_map(|it| it.metadata.uid).collect())
        }
    };
    let params = all().fields(&format!("spec.driver={DRIVER_COMPUTE_DOMAIN}"));
    let slices = list("resourceslices", &Api::<ResourceSlice>::all(client.clone()), params).await?;
    facts.domains.add_channels(&slices);
    let sets = list("daemonsets", &Api::<DaemonSet>::all(client.clone()), all()).await;
    let sets = facts.readable("daemonsets", sets)?;
    let sets = sets.iter().filter(|set| {
        let pod = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        foreign::is_part(set.labels(), pod)
    });
    let mut foreign: Vec<String> = sets.map(|set| full_name("DaemonSet", set)).collect();
    let deployments = list("deployments", &Api::<Deployment>::all(client.clone()), all()).await;
    let deployments = facts.readable("deployments", deployments)?;
    let deployments = deployments.iter().filter(|deployment| {
        let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        foreign::is_part(deployment.labels(), pod)
    });
    foreign.extend(deployments.map(|deployment| full_name("Deployment", deployment)));
    facts.domains.foreign = foreign;
    let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), &namespace);
    let policies = list("networkpolicies", &policies, all()).await;
    facts.domains.policies = facts.readable("networkpolicies", policies)?;
    Ok(())
}

fn full_name(kind: &str, object: &impl ResourceExt) -> String {
    format!("{kind} {}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// The first three numbers of a version, such as `v1.34.2-gke.5` or `570.158.01`.
pub(super) fn version(text: &str) -> Option<[u32; 3]> {
    let text = text.trim_start_matches('v');
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let mut numbers = text[..end.unwrap_or(text.len())].split('.').map(str::parse);
    let mut next = || numbers.next().unwrap_or(Ok(0)).ok();
    Some([next()?, next()?, next()?])
}
