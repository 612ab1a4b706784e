//! A domain without a fault, for tests that change it: three nodes of one clique, a pod on each.

use octavo_api::compute_domain::{
    ComputeDomainDaemon, ComputeDomainNode, ComputeDomainStatus, Readiness,
};
use octavo_api::imex::ImexServices;

use super::facts::{
    CliqueFacts, DaemonSetFacts, DomainClaim, DomainFacts, DomainPod, NodeFacts, TemplateState,
};
use crate::controller::Controller;
use crate::explain::Event;
use crate::scheduler::LeaseName;
use crate::snapshot::{Condition, ObjectName};

/// The domain's clique.
pub(super) const CLIQUE: &str = "c1.0";
/// The domain's UID.
pub(super) const UID: &str = "u-1";

/// The domain.
pub(super) fn well() -> DomainFacts {
    let nodes = ["n-0", "n-1", "n-2"];
    let of_node = |index: usize, node: &str| ComputeDomainNode {
        name: node.to_owned(),
        ip_address: address(index),
        clique_id: CLIQUE.to_owned(),
        index: i64::try_from(index).ok(),
        status: Readiness::Ready,
    };
    let status = nodes.iter().enumerate().map(|(index, node)| of_node(index, node));
    let entries = status.clone().map(|node| ComputeDomainDaemon {
        node_name: node.name,
        ip_address: node.ip_address,
        clique_id: node.clique_id,
        index: node.index,
        status: node.status,
    });
    let ready = [condition("Ready"), condition("MembersReady")];
    let facts =
        NodeFacts { is_ready: true, clique: Some(CLIQUE.to_owned()), domain: Some(UID.to_owned()) };
    DomainFacts {
        name: ObjectName::new("team", "train"),
        uid: UID.to_owned(),
        created: Some("2026-01-05T11:50:00Z".parse().unwrap()),
        is_deleting: false,
        finalizers: vec!["resource.nvidia.com/computeDomain".to_owned()],
        template: "train-channel".to_owned(),
        num_nodes: 0,
        ready_when: None,
        status: ComputeDomainStatus {
            status: Readiness::Ready,
            nodes: status.collect(),
            channels: Vec::new(),
            conditions: ready.to_vec(),
        },
        services: ImexServices::PerDomain,
        template_state: Some(TemplateState::Own),
        controller: Controller {
            lease: LeaseName::controller(),
            holder: Ok("octavo-controller-x".to_owned()),
        },
        claims: nodes.iter().map(|node| claim(node)).collect(),
        pods: Some(nodes.iter().map(|node| pod(node)).collect()),
        nodes: Some(nodes.iter().map(|node| ((*node).to_owned(), facts.clone())).collect()),
        daemon_set: Some(DaemonSetFacts { exists: true, desired: 3, warning: None }),
        daemons: Some(nodes.iter().enumerate().map(|(index, node)| daemon(index, node)).collect()),
        cliques: Some(vec![CliqueFacts { id: CLIQUE.to_owned(), daemons: entries.collect() }]),
        gaps: Vec::new(),
    }
}

/// A condition of a domain that is ready.
fn condition(kind: &str) -> octavo_api::Condition {
    octavo_api::Condition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: "AllNodesReady".to_owned(),
        message: "Nodes that are ready: 3.".to_owned(),
        ..octavo_api::Condition::default()
    }
}

fn address(index: usize) -> String {
    format!("10.0.0.{index}")
}

fn claim(node: &str) -> DomainClaim {
    let name = format!("claim-{node}");
    DomainClaim { name, node: Some(node.to_owned()), reserved_for: vec![format!("train-{node}")] }
}

/// A pod that runs on a node.
pub(super) fn pod(node: &str) -> DomainPod {
    DomainPod {
        namespace: "team".to_owned(),
        name: format!("train-{node}"),
        node: Some(node.to_owned()),
        is_bound: true,
        phase: "Running".to_owned(),
        is_ready: true,
        claims: vec![format!("claim-{node}")],
        ..DomainPod::default()
    }
}

fn daemon(index: usize, node: &str) -> DomainPod {
    DomainPod {
        namespace: "octavo-system".to_owned(),
        name: format!("computedomain-daemon-{UID}-{index}"),
        ip: address(index),
        slots: Some(18),
        claims: Vec::new(),
        ..pod(node)
    }
}

/// A warning.
pub(super) fn warning(reason: &str, message: &str) -> Event {
    Event {
        last_seen: None,
        source: "kubelet".to_owned(),
        kind: "Warning".to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        count: 1,
    }
}

/// The condition `PodScheduled` of a pod that no node fits.
pub(super) fn unschedulable(message: &str) -> Condition {
    Condition {
        kind: "PodScheduled".to_owned(),
        status: "False".to_owned(),
        reason: "Unschedulable".to_owned(),
        message: message.to_owned(),
    }
}

impl DomainFacts {
    /// A node of the fixture.
    pub(super) fn node(&mut self, name: &str) -> &mut NodeFacts {
        self.nodes.as_mut().unwrap().get_mut(name).unwrap()
    }

    /// The last daemon.
    pub(super) fn daemon(&mut self) -> &mut DomainPod {
        self.daemons.as_mut().unwrap().last_mut().unwrap()
    }

    /// The last pod.
    pub(super) fn pod(&mut self) -> &mut DomainPod {
        self.pods.as_mut().unwrap().last_mut().unwrap()
    }

    /// The entries of the clique.
    pub(super) fn entries(&mut self) -> &mut Vec<ComputeDomainDaemon> {
        &mut self.cliques.as_mut().unwrap().first_mut().unwrap().daemons
    }

    /// As if the controller had seen that the last node is not ready.
    pub(super) fn last_not_ready(&mut self) {
        self.status.status = Readiness::NotReady;
        self.status.nodes.last_mut().unwrap().status = Readiness::NotReady;
        for condition in &mut self.status.conditions {
            "False".clone_into(&mut condition.status);
            "NodesNotReady".clone_into(&mut condition.reason);
            "1 of 3 nodes are not ready: n-2. See the pods of their daemons."
                .clone_into(&mut condition.message);
        }
    }
}
