//! The GPUs that are not well, and what stands behind them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use octavo_api::health_policy::DeviceCounts;
use octavo_api::names::{
    CONDITION_ACCEPTED, CONDITION_BREAKER_OPEN, CONDITION_IN_PROGRESS, CONDITION_POLICY_ACCEPTED,
};
use octavo_api::node_health::{DeviceHealth, is_in_service};
use octavo_api::{Condition, Maintenance};
use octavo_health::remedy::Remedy;
use serde::Serialize;

use super::HealthError;
use super::facts::{HealthFacts, Unreadable};
use super::select::listed;
use super::words::api_name;
use crate::snapshot::Gap;
use crate::usage::natural_sort_key;

/// The health of GPUs at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthReport {
    /// Whether the cluster has the definition of `NodeHealth`.
    pub defined: bool,
    /// Sums over the selected nodes.
    pub totals: Totals,
    /// The selected GPUs, in order of node and name.
    pub gpus: Vec<GpuHealth>,
    /// Policies whose remedies are stopped, because many nodes failed at once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stopped_policies: Vec<PolicyRemark>,
    /// Policies that are not in use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused_policies: Vec<PolicyRemark>,
    /// Work on nodes that is planned, in progress or not carried out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub maintenances: Vec<WorkRemark>,
    /// Nodes whose agents cannot use the policy that selects them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes_without_policy: Vec<NodeRemark>,
    /// Nodes with an agent and without a `NodeHealth`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes_without_health: Vec<String>,
    /// Objects of another version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// Objects that the user may not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
}

/// Sums over nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Nodes with a `NodeHealth`.
    pub nodes: usize,
    /// Their GPUs.
    pub gpus: usize,
    /// GPUs in service.
    pub in_service: usize,
    /// GPUs by state. One in an unknown state counts as fenced.
    pub states: DeviceCounts,
}

/// The health of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuHealth {
    /// Node.
    pub node: String,
    /// Name in the node's slices.
    pub gpu: String,
    /// UUID.
    pub uuid: String,
    /// State.
    pub state: String,
    /// Since when.
    pub since: String,
    /// Why, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The remedy or test that it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<Remedy>,
    /// The remedy that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Remedy>,
    /// Why what it needs does not begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// The policy by which its agent decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The mode of that policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Whether processes use it.
    pub occupied: bool,
    /// Class of its risk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
    /// Number of the last attempt.
    pub attempt: i64,
    /// Number of the last order that was carried out.
    pub order: i64,
}

/// Something that a reader should know of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRemark {
    /// Name of the policy.
    pub policy: String,
    /// The controller's words.
    pub message: String,
    /// Until when remedies are stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// Work on nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkRemark {
    /// Name of the `Maintenance`.
    pub maintenance: String,
    /// The controller's words: when it is, or why it is not carried out.
    pub message: String,
    /// Whether it is carried out.
    pub accepted: bool,
    /// Nodes that are meant.
    pub nodes: i64,
    /// Pods with GPUs that are to leave.
    pub pods_left: i64,
}

/// Something that a reader should know of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRemark {
    /// Name of the node.
    pub node: String,
    /// The agent's words.
    pub message: String,
}

/// Which GPUs are wanted.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only those of these nodes; of all if empty.
    pub nodes: BTreeSet<String>,
    /// Only those in these states; if empty, all that are not healthy.
    pub states: BTreeSet<String>,
    /// Those in all states.
    pub all: bool,
}

/// Draws the report. A selected node of which nothing is known is an error.
pub fn report(
    facts: &HealthFacts,
    selection: &Selection,
    now: Timestamp,
) -> Result<HealthReport, HealthError> {
    let is_wanted = |node: &String| selection.nodes.is_empty() || selection.nodes.contains(node);
    let lacks = |node: &&String| !facts.nodes.contains_key(*node);
    let is_read = |node: &&String| {
        !facts.unreadable.iter().any(|it| it.kind == "NodeHealth" && it.name == **node)
    };
    let without: Vec<String> = facts
        .agents
        .iter()
        .filter(lacks)
        .filter(is_read)
        .filter(|node| is_wanted(node))
        .cloned()
        .collect();
    if let Some(node) = selection.nodes.iter().filter(lacks).find(|node| !without.contains(node)) {
        return Err(facts.no_node(node));
    }
    let mut totals = Totals::default();
    let mut gpus = Vec::new();
    let mut nodes_without_policy = Vec::new();
    let mut nodes: Vec<_> = facts.nodes.iter().filter(|(node, _)| is_wanted(node)).collect();
    nodes.sort_by_cached_key(|(node, _)| (natural_sort_key(node), (*node).clone()));
    for (node, health) in nodes {
        totals.nodes += 1;
        let conditions = health.status.iter().flat_map(|status| &status.conditions);
        let mut refusals = conditions.filter(|condition| {
            condition.type_ == CONDITION_POLICY_ACCEPTED && condition.status == "False"
        });
        nodes_without_policy.extend(refusals.next().map(|condition| NodeRemark {
            node: node.clone(),
            message: condition.message.clone(),
        }));
        let policy = health.status.as_ref().and_then(|status| status.policy.as_ref());
        for gpu in listed(health) {
            totals.count(&gpu.state);
            if !selection.has(&gpu.state) {
                continue;
            }
            let mut row = GpuHealth::new(node, gpu);
            row.policy = policy.map(|policy| policy.name.clone());
            row.mode = policy.map(|policy| api_name(policy.mode));
            gpus.push(row);
        }
    }
    let policies = facts.policies.iter();
    let statuses = policies.filter_map(|(name, policy)| Some((name, policy.status.as_ref()?)));
    let mut stopped_policies = Vec::new();
    let mut refused_policies = Vec::new();
    for (policy, status) in statuses {
        let remark = |condition: &Condition, until: Option<&String>| PolicyRemark {
            policy: policy.clone(),
            message: condition.message.clone(),
            until: until.cloned(),
        };
        let until = status.breaker_open_until.as_ref();
        let is_open = until.and_then(|until| until.parse::<Timestamp>().ok());
        for condition in &status.conditions {
            match (condition.type_.as_str(), condition.status.as_str()) {
                (CONDITION_BREAKER_OPEN, "True") if is_open.is_none_or(|until| until > now) => {
                    stopped_policies.push(remark(condition, until));
                }
                (CONDITION_ACCEPTED, "False") => refused_policies.push(remark(condition, None)),
                _ => {}
            }
        }
    }
    let maintenances = facts.maintenances.iter();
    let maintenances = maintenances.filter_map(|(name, work)| WorkRemark::new(name, work));
    let maintenances = maintenances.collect();
    Ok(HealthReport {
        maintenances,
        defined: facts.is_defined,
        totals,
        gpus,
        stopped_policies,
        refused_policies,
        nodes_without_policy,
        nodes_without_health: without,
        unreadable: facts.unreadable.clone(),
        gaps: facts.gaps.clone(),
    })
}

impl Selection {
    fn has(&self, state: &str) -> bool {
        match self {
            _ if self.all => true,
            _ if self.states.is_empty() => state != "Healthy",
            _ => self.states.contains(state),
        }
    }
}

impl Totals {
    fn count(&mut self, state: &str) {
        let states = &mut self.states;
        let count = match state {
            "Healthy" => &mut states.healthy,
            "Watch" => &mut states.watch,
            "Suspect" => &mut states.suspect,
            "Resetting" => &mut states.resetting,
            "Verifying" => &mut states.verifying,
            "Probation" => &mut states.probation,
            "Retired" => &mut states.retired,
            _ => &mut states.fenced,
        };
        *count += 1;
        self.gpus += 1;
        self.in_service += usize::from(is_in_service(state));
    }
}

impl WorkRemark {
    /// What is to be known of work, unless it is over or the controller has not looked at it.
    fn new(name: &str, work: &Maintenance) -> Option<Self> {
        let status = work.status.as_ref()?;
        let condition = |type_| status.conditions.iter().find(|found| found.type_ == type_);
        let refused = condition(CONDITION_ACCEPTED).filter(|found| found.status == "False");
        let phase = condition(CONDITION_IN_PROGRESS).filter(|found| found.reason != "Ended");
        Some(Self {
            maintenance: name.to_owned(),
            message: refused.or(phase)?.message.clone(),
            accepted: refused.is_none(),
            nodes: status.nodes,
            pods_left: status.pods_left,
        })
    }
}

impl GpuHealth {
    /// What an agent says of a GPU, without the policy of its node.
    pub(super) fn new(node: &str, gpu: DeviceHealth) -> Self {
        Self {
            node: node.to_owned(),
            gpu: gpu.name,
            uuid: gpu.uuid,
            state: gpu.state,
            since: gpu.since,
            reason: gpu.reason,
            message: gpu.message,
            needs: gpu.needs,
            remedy: gpu.remedy,
            waits: gpu.waits,
            policy: None,
            mode: None,
            occupied: gpu.occupied,
            risk: gpu.risk,
            attempt: gpu.attempt,
            order: gpu.order,
        }
    }
}

/// The numbers of a count that are not zero, with the names of their states.
pub(super) fn counted(counts: DeviceCounts) -> Vec<(&'static str, i64)> {
    let DeviceCounts { healthy, watch, suspect, fenced, resetting, verifying, probation, retired } =
        counts;
    [
        ("Healthy", healthy),
        ("Watch", watch),
        ("Suspect", suspect),
        ("Fenced", fenced),
        ("Resetting", resetting),
        ("Verifying", verifying),
        ("Probation", probation),
        ("Retired", retired),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .collect()
}
