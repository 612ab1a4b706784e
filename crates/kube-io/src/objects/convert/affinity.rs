//! Label and node selectors; affinity and topology spread of pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use octavo_dra::{NodeSelector, NodeSelectorTerm};
use serde::Deserialize;

use super::Reader;
use crate::objects::{AffinityTerm, LabelRequirement, LabelSelector, PodSpec, Spread};
use crate::slices::node_selector_from_api;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireSelector {
    match_labels: Option<BTreeMap<String, String>>,
    match_expressions: Option<Vec<WireRequirement>>,
}

#[derive(Debug, Deserialize)]
struct WireRequirement {
    #[serde(default)]
    key: String,
    #[serde(default)]
    operator: String,
    values: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WireAffinity {
    #[serde(rename = "nodeAffinity")]
    nodes: Option<WireNodeAffinity>,
    #[serde(rename = "podAffinity")]
    near: Option<WirePodAffinity>,
    #[serde(rename = "podAntiAffinity")]
    apart: Option<WirePodAffinity>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireNodeAffinity {
    required_during_scheduling_ignored_during_execution: Option<core::NodeSelector>,
    preferred_during_scheduling_ignored_during_execution:
        Option<Vec<core::PreferredSchedulingTerm>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WirePodAffinity {
    required_during_scheduling_ignored_during_execution: Option<Vec<WireTerm>>,
    preferred_during_scheduling_ignored_during_execution: Option<Vec<WireWeightedTerm>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireWeightedTerm {
    #[serde(default)]
    weight: i32,
    pod_affinity_term: WireTerm,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireTerm {
    label_selector: Option<WireSelector>,
    namespaces: Option<Vec<String>>,
    namespace_selector: Option<WireSelector>,
    #[serde(default)]
    topology_key: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireSpread {
    #[serde(default)]
    topology_key: String,
    #[serde(default)]
    when_unsatisfiable: String,
    max_skew: Option<i32>,
    min_domains: Option<i32>,
    label_selector: Option<WireSelector>,
    match_label_keys: Option<Vec<String>>,
    #[serde(default)]
    node_affinity_policy: String,
    #[serde(default)]
    node_taints_policy: String,
}

impl WireSelector {
    pub(super) fn read(self) -> LabelSelector {
        let requirement = |one: WireRequirement| LabelRequirement {
            key: one.key,
            operator: one.operator,
            values: one.values.unwrap_or_default(),
        };
        let expressions = self.match_expressions.unwrap_or_default();
        LabelSelector {
            labels: self.match_labels.unwrap_or_default(),
            expressions: expressions.into_iter().map(requirement).collect(),
        }
    }
}

impl WireSpread {
    /// A constraint that is not explicitly soft is hard.
    pub(super) fn read(self) -> Spread {
        Spread {
            topology_key: self.topology_key,
            is_hard: self.when_unsatisfiable != "ScheduleAnyway",
            max_skew: self.max_skew.unwrap_or(1),
            min_domains: self.min_domains.unwrap_or(1),
            selector: self.label_selector.map(WireSelector::read),
            match_label_keys: self.match_label_keys.unwrap_or_default(),
            honors_affinity: self.node_affinity_policy != "Ignore",
            honors_taints: self.node_taints_policy == "Honor",
        }
    }
}

/// Writes a pod's affinity into its spec.
pub(super) fn read(affinity: WireAffinity, into: &mut PodSpec, reader: &mut Reader) {
    if let Some(nodes) = affinity.nodes {
        into.node_affinity = nodes
            .required_during_scheduling_ignored_during_execution
            .map(|selector| node_selector(&selector, "node affinity", reader));
        for preferred in nodes.preferred_during_scheduling_ignored_during_execution.iter().flatten()
        {
            let term = term(&preferred.preference, "preferred node affinity", reader);
            into.preferred_nodes.extend(term.map(|term| (preferred.weight, term)));
        }
    }
    let mut terms = |affinity: Option<WirePodAffinity>, sign: i32| {
        let Some(affinity) = affinity else { return Vec::new() };
        let preferred = affinity.preferred_during_scheduling_ignored_during_execution;
        into.preferred_affinity.extend(
            preferred
                .unwrap_or_default()
                .into_iter()
                .map(|one| (one.weight.saturating_mul(sign), one.pod_affinity_term.read())),
        );
        let required = affinity.required_during_scheduling_ignored_during_execution;
        required.unwrap_or_default().into_iter().map(WireTerm::read).collect()
    };
    into.affinity = terms(affinity.near, 1);
    into.anti_affinity = terms(affinity.apart, -1);
}

impl WireTerm {
    fn read(self) -> AffinityTerm {
        AffinityTerm {
            selector: self.label_selector.map(WireSelector::read),
            namespaces: self.namespaces.unwrap_or_default(),
            namespace_selector: self.namespace_selector.map(WireSelector::read),
            topology_key: self.topology_key,
        }
    }
}

/// Reads a node selector. As in kube-scheduler, an unreadable term matches no node, and the other
/// terms still match.
pub(super) fn node_selector(
    selector: &core::NodeSelector,
    of: &str,
    reader: &mut Reader,
) -> NodeSelector {
    let terms = selector.node_selector_terms.iter();
    NodeSelector { terms: terms.filter_map(|one| term(one, of, reader)).collect() }
}

fn term(term: &core::NodeSelectorTerm, of: &str, reader: &mut Reader) -> Option<NodeSelectorTerm> {
    let alone = core::NodeSelector { node_selector_terms: vec![term.clone()] };
    match node_selector_from_api(&alone) {
        Ok(mut read) => read.terms.pop(),
        Err(error) => {
            reader.fault(format!("{of}: {error}; treated as a term that matches no node"));
            None
        }
    }
}
