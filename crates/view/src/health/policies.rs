//! The policies, and what each does at the moment.

use std::collections::{BTreeMap, BTreeSet};

use octavo_api::HealthPolicy;
use octavo_api::health_policy::DeviceCounts;
use octavo_api::names::{CONDITION_ACCEPTED, CONDITION_BREAKER_OPEN, CONDITION_RECORDS_READABLE};
use octavo_term::{RowStyle, TextTable};
use serde::Serialize;

use super::HealthError;
use super::facts::{HealthFacts, Unreadable};
use super::report::counted;
use super::words::api_name;
use crate::snapshot::{Gap, GapKind};
use crate::top::TableOptions;

/// The policies of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoliciesReport {
    /// The policies by name, which is the order in which they apply.
    pub policies: Vec<PolicyView>,
    /// Objects of another version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// Objects that the user may not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyView {
    /// Its name.
    pub name: String,
    /// Its mode.
    pub mode: String,
    /// Labels of its nodes.
    pub node_selector: BTreeMap<String, String>,
    /// Whether it is in use: `True`, `False`, or `Unknown` if the controller has not looked at this version of it.
    pub accepted: String,
    /// Nodes to which it applies.
    pub nodes: i64,
    /// Their GPUs by state.
    pub gpus: DeviceCounts,
    /// Remedies that run or may begin.
    pub remedies: i64,
    /// GPUs whose pods are being evicted.
    pub evictions: i64,
    /// Until when remedies are stopped, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_until: Option<String>,
    /// What a reader should know, in the controller's words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// The policies with some names; all if none is named.
pub fn policies(
    facts: &HealthFacts,
    names: &BTreeSet<String>,
) -> Result<PoliciesReport, HealthError> {
    if !facts.is_defined {
        return Err(HealthError::NoDefinition);
    }
    let gaps = facts.gaps.iter().filter(|gap| gap.kind == GapKind::HealthPolicies);
    let gaps: Vec<Gap> = gaps.cloned().collect();
    let is_missing = |name: &&String| gaps.is_empty() && !facts.policies.contains_key(*name);
    if let Some(name) = names.iter().find(is_missing) {
        let known = facts.policies.keys().cloned().collect();
        return Err(HealthError::NoPolicy { name: name.clone(), known });
    }
    let wanted = facts.policies.iter();
    let wanted = wanted.filter(|(name, _)| names.is_empty() || names.contains(*name));
    let unreadable = facts.unreadable.iter().filter(|it| it.kind == "HealthPolicy").cloned();
    Ok(PoliciesReport {
        policies: wanted.map(|(name, policy)| PolicyView::new(name, policy)).collect(),
        unreadable: unreadable.collect(),
        gaps,
    })
}

impl PolicyView {
    fn new(name: &str, policy: &HealthPolicy) -> Self {
        let status = policy.status.clone().unwrap_or_default();
        let is_current = status.observed_generation == policy.metadata.generation;
        let condition = |kind| status.conditions.iter().find(|found| found.type_ == kind);
        let accepted = condition(CONDITION_ACCEPTED);
        let mut remarks = Vec::new();
        if accepted.is_none() || !is_current {
            remarks.push(
                "the controller has not looked at this version of it: check that `octavo controller` runs".to_owned(),
            );
        }
        let notable = [
            accepted.filter(|found| found.status != "True" || found.reason != "Accepted"),
            condition(CONDITION_BREAKER_OPEN).filter(|found| found.status == "True"),
            condition(CONDITION_RECORDS_READABLE).filter(|found| found.status == "False"),
        ];
        remarks.extend(notable.into_iter().flatten().map(|found| found.message.clone()));
        Self {
            name: name.to_owned(),
            mode: api_name(policy.spec.mode),
            node_selector: policy.spec.node_selector.clone(),
            accepted: match accepted {
                Some(found) if is_current => found.status.clone(),
                _ => "Unknown".to_owned(),
            },
            nodes: status.nodes,
            gpus: status.devices,
            remedies: status.remedies,
            evictions: status.evictions,
            stopped_until: condition(CONDITION_BREAKER_OPEN)
                .filter(|found| found.status == "True")
                .map(|_| status.breaker_open_until.clone().unwrap_or_default()),
            remarks,
        }
    }
}

/// Draws the policies: a table and remarks.
pub fn render(report: &PoliciesReport, options: TableOptions) -> String {
    let mut parts = Vec::new();
    if !report.policies.is_empty() {
        parts.push(table(report, options));
    } else if report.gaps.is_empty() {
        parts.push(
            "There is no HealthPolicy. Agents decide by their defaults: they fence and test, and reset nothing.\n".to_owned(),
        );
    }
    let mut lines = Vec::new();
    for policy in &report.policies {
        lines.extend(policy.remarks.iter().map(|text| format!("{}: {text}.\n", policy.name)));
    }
    for unread in &report.unreadable {
        lines.push(format!("{}: it cannot be parsed: {}.\n", unread.name, unread.message));
    }
    for gap in &report.gaps {
        lines.push(format!(
            "Not shown, because reading is denied: {} ({}).\n",
            gap.kind, gap.message
        ));
    }
    if !lines.is_empty() {
        parts.push(lines.concat());
    }
    parts.join("\n")
}

fn table(report: &PoliciesReport, options: TableOptions) -> String {
    let mut header =
        vec!["NAME", "ACCEPTED", "MODE", "NODES", "REMEDIES", "EVICTIONS", "STOPPED UNTIL", "GPUS"];
    if options.wide {
        header.push("NODE SELECTOR");
    }
    let mut table = TextTable::new(&header);
    for policy in &report.policies {
        let style = if policy.accepted == "True" && policy.stopped_until.is_none() {
            RowStyle::Plain
        } else {
            RowStyle::Warn
        };
        let states = counted(policy.gpus).into_iter();
        let states = states.map(|(state, count)| format!("{count} {state}")).collect::<Vec<_>>();
        let mut cells = vec![
            policy.name.clone(),
            policy.accepted.clone(),
            policy.mode.clone(),
            policy.nodes.to_string(),
            policy.remedies.to_string(),
            policy.evictions.to_string(),
            policy.stopped_until.clone().unwrap_or_default(),
            states.join(", "),
        ];
        if options.wide {
            let labels = policy.node_selector.iter();
            let labels = labels.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
            cells.push(labels.join(","));
        }
        table.row(style, cells);
    }
    table.draw(options.headers, options.colour)
}
