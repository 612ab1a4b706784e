//! What the agents say keeps their nodes from being as the settings ask.
//!
//! An event says what it is, and lasts an hour. A metric of the agent says whether it is so still.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use octavo_api::names::{AGENT_CONTROLLER, NODE_PROBLEMS_METRIC};
use octavo_api::reasons::{Reason, node_reasons};

use super::facts::Facts;
use super::{Finding, Severity, node};
use crate::error::ViewError;
use crate::fetch::list;
use crate::shares::metrics_of_nodes;

/// Reasons with which a node offers less than its settings ask. Others are warnings.
const ERRORS: [&str; 7] = [
    "CdiSpecsNotWritten",
    "DeviceNumbersUnknown",
    "MigLayoutFailed",
    "MigLayoutMismatched",
    "MpsNotReady",
    "PluginConfigInvalid",
    "ResourceNotServed",
];

/// A problem of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeProblem {
    /// The node.
    pub node: String,
    /// Its reason, as of the catalogue of reasons.
    pub reason: String,
    /// The agent's words.
    pub note: String,
    /// Whether the agent says that it is so still; otherwise it could not be asked.
    pub is_confirmed: bool,
}

/// Reads the events of the agents, and asks those agents whether what they say holds.
pub(super) async fn read(client: &Client, facts: &mut Facts) -> Result<(), ViewError> {
    let fields = format!("involvedObject.kind=Node,reportingComponent={AGENT_CONTROLLER}");
    let events: Api<Event> = Api::all(client.clone());
    let events = list("events", &events, ListParams::default().fields(&fields)).await;
    let mut notes: BTreeMap<(String, String), String> = BTreeMap::new();
    let mut events = facts.readable("events", events)?;
    events.sort_by_key(|event| event.metadata.creation_timestamp.clone());
    for event in events {
        let (Some(node), Some(reason)) = (event.involved_object.name, event.reason) else {
            continue;
        };
        if facts.nodes.contains_key(&node) && catalogue(&reason).is_some() {
            notes.insert((node, reason), event.message.unwrap_or_default());
        }
    }
    let nodes: BTreeSet<String> = notes.keys().map(|(node, _)| node.clone()).collect();
    if nodes.is_empty() {
        return Ok(());
    }
    let answers = metrics_of_nodes(client, &nodes).await?;
    facts.problems = notes
        .into_iter()
        .filter_map(|((node, reason), note)| {
            let is_confirmed = match answers.get(&node) {
                Some(Ok(texts)) if texts.iter().any(|text| holds(text, &node, &reason)) => true,
                Some(Ok(_)) => return None,
                _ => false,
            };
            Some(NodeProblem { node, reason, note, is_confirmed })
        })
        .collect();
    Ok(())
}

/// The findings about the problems.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let of = |problem: &NodeProblem| {
        let NodeProblem { node: name, reason, note, is_confirmed } = problem;
        let remedy = catalogue(reason).map_or("see the message", |reason| reason.remedy);
        let is_error = *is_confirmed && ERRORS.contains(&reason.as_str());
        let severity = if is_error { Severity::Error } else { Severity::Warning };
        let when = if *is_confirmed {
            ""
        } else {
            " (within the last hour; its agent could not be asked)"
        };
        Finding::new(severity, &node(name), format!("{reason}: {note}{when}"), remedy)
    };
    facts.problems.iter().map(of).collect()
}

/// The entry of a reason for which something can be done.
fn catalogue(reason: &str) -> Option<&'static Reason> {
    node_reasons().iter().find(|row| row.reason == reason && !row.remedy.is_empty())
}

/// Whether an agent's metrics count the problem.
fn holds(metrics: &str, node: &str, reason: &str) -> bool {
    let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(NODE_PROBLEMS_METRIC));
    lines.any(|line| {
        line.contains(&format!("node=\"{node}\""))
            && line.contains(&format!("reason=\"{reason}\""))
            && !line.ends_with(" 0")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_holds_while_the_agent_counts_it() {
        let line = |value: u8| {
            format!("octavo_agent_node_problems{{node=\"a\",reason=\"ModeWaits\"}} {value}\n")
        };
        assert!(holds(&line(2), "a", "ModeWaits"));
        assert!(!holds(&line(0), "a", "ModeWaits"));
        assert!(!holds(&line(1), "b", "ModeWaits"));
        assert!(!holds(&line(1), "a", "MpsNotReady"));
    }

    #[test]
    fn each_reason_for_errors_has_a_remedy() {
        assert!(ERRORS.iter().all(|reason| catalogue(reason).is_some()));
        assert!(catalogue("GpuHealthy").is_none(), "nothing is to be done");
    }
}
