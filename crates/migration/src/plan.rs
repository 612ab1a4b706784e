//! What moving a cluster's nodes to Octavo will do, decided from what the API server says. Nothing is written.
//!
//! ```text
//! objects --cluster--> Cluster --components, nodes, configs, claims, workloads--> what is there, and what becomes of it
//!     --obstacles--> what has to be done first --values, steps--> numbered steps and the way back --text--> for people
//! ```
//!
//! Names are those of NVIDIA's GPU Operator 26.7, k8s-device-plugin 0.20, mig-parted 0.15 and DRA driver 0.5, of HAMi 2.10 and of
//! KAI Scheduler 0.13.

mod claims;
mod cluster;
mod components;
mod configs;
mod device_list;
mod fields;
mod nodes;
mod object;
mod owner;
mod settings;
mod steps;
#[cfg(test)]
mod tests;
mod text;
mod values;
mod webhook;
mod workloads;

use serde::Serialize;

use crate::Options;
pub use claims::ClaimPlan;
pub use cluster::{Cluster, ConfigMapName, Kind, Unread};
pub use components::{Component, Fate, Found, component};
pub use configs::{ConfigForm, ConfigPlan, FieldPlan, Served};
pub use nodes::{Mode, NodePlan, Offer, PodList};
pub use owner::{Owner, owner};
pub use steps::Step;
pub use text::plan_text;
pub use webhook::Webhook;
pub use workloads::WorkloadPlan;

/// What moving a cluster to Octavo will do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationPlan {
    /// Parts of NVIDIA's stack, of HAMi and of KAI Scheduler, and what becomes of each.
    pub found: Vec<Found>,
    /// Nodes with NVIDIA GPUs.
    pub nodes: Vec<NodePlan>,
    /// Config files of NVIDIA's device plugin and MIG manager.
    pub configs: Vec<ConfigPlan>,
    /// Claims, claim templates and device classes with configs for NVIDIA's DRA driver.
    pub claims: Vec<ClaimPlan>,
    /// Workloads for HAMi and KAI Scheduler.
    pub workloads: Vec<WorkloadPlan>,
    /// What could not be read, so that the plan says nothing of it.
    pub unread: Vec<Unread>,
    /// What has to be done before the steps. Empty if nothing stands in the way.
    pub obstacles: Vec<String>,
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// How to go back, in order.
    pub way_back: Vec<Step>,
}

impl MigrationPlan {
    /// Whether nothing has to be done before the steps.
    pub fn is_clear(&self) -> bool {
        self.obstacles.is_empty()
    }
}

/// Plans the move of a cluster.
pub fn plan(cluster: &Cluster, options: &Options) -> MigrationPlan {
    let found = components::found(cluster);
    let configs = configs::configs(cluster);
    let nodes = nodes::nodes(cluster, &configs);
    let claims = claims::claims(cluster);
    let workloads = workloads::workloads(cluster, options);
    let mut obstacles = obstacles(&nodes, &configs, &claims, &workloads);
    // What was not read may hide what stands in the way.
    obstacles.extend(cluster.unread.iter().map(|Unread { what, why }| {
        format!("{what} could not be read, so the plan is not complete: {why}")
    }));
    let facts = values::facts(cluster, &found, &nodes, &configs, &claims);
    let (steps, way_back) = steps::steps(&facts, &nodes, &workloads, options);
    let unread = cluster.unread.clone();
    MigrationPlan { found, nodes, configs, claims, workloads, unread, obstacles, steps, way_back }
}

/// What the steps cannot do by themselves: end pods, change configs, write workloads again.
fn obstacles(
    nodes: &[NodePlan],
    configs: &[ConfigPlan],
    claims: &[ClaimPlan],
    workloads: &[WorkloadPlan],
) -> Vec<String> {
    let mut obstacles = Vec::new();
    for node in nodes {
        if let Some(why) = &node.not_served {
            obstacles.push(format!("node {} is not served: {why}", node.name));
        }
    }
    for node in nodes.iter().filter(|node| node.moves && node.must_end.count > 0) {
        obstacles.push(format!("node {}: {} must end: {}", node.name, node.must_end, node.why_end));
    }
    let of_configs = configs.iter().filter(|config| config.is_used());
    let of_configs = of_configs.map(|config| (&config.source, &config.fields));
    let of_claims = claims.iter().map(|claim| (&claim.object, &claim.configs));
    for (source, fields) in of_configs.chain(of_claims) {
        for field in fields.iter().filter(|field| field.served == Served::NotServed) {
            let FieldPlan { field, reason, .. } = field;
            obstacles.push(format!("{source}: {field} is not served: {reason}"));
        }
    }
    for workload in workloads.iter().filter(|workload| !workload.refusals.is_empty()) {
        let count = workload.refusals.len();
        let fields = if count == 1 {
            "1 field is refused: change it".to_owned()
        } else {
            format!("{count} fields are refused: change them")
        };
        obstacles.push(format!("{}: {fields} by hand", workload.object));
    }
    obstacles
}
