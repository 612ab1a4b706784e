//! What a pod requires of a node's name, labels, taints and cordon.

use std::sync::Arc;

use octavo_kube_io::objects::{Node, NodeName, NodeTaint, Pod, TaintEffect, Toleration};

use super::labels::{Labels, Term, valid_terms};
use super::volumes::{LateClaim, VolumeReach, choose};
use super::{Unfit, Volumes};

/// The taint that a cordoned node counts as having.
const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// Everything about a pod that its node filters depend on, apart from the node itself. Equal keys
/// have equal results on every node, and pods of one template have equal keys. Cheap to clone.
///
/// Volumes are resolved: create the key again when claims, volumes or storage classes of the pod
/// change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeFilterKey(Arc<FilterInputs>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct FilterInputs {
    /// Why it can run on no node now.
    pod_level_reason: Option<Unfit>,
    /// The node that it names itself.
    node: Option<NodeName>,
    labels: Labels,
    /// Terms of which one must match; `None` without affinity.
    terms: Option<Vec<Term>>,
    /// Those that matter to a scheduler.
    tolerations: Vec<Toleration>,
    volumes: Vec<VolumeReach>,
    late_claims: Vec<LateClaim>,
}

impl NodeFilterKey {
    /// The key of a pod.
    pub fn of(pod: &Pod, volumes: &Volumes) -> Self {
        let spec = &pod.spec;
        let matters = |toleration: &&Toleration| toleration.effect != "PreferNoSchedule";
        Self(Arc::new(FilterInputs {
            pod_level_reason: volumes.pod_level_reason(pod),
            node: pod.node.clone(),
            labels: spec.node_selector.clone(),
            terms: spec.node_affinity.as_ref().map(valid_terms),
            tolerations: spec.tolerations.iter().filter(matters).map(placed_by).collect(),
            volumes: volumes.reaches(pod),
            late_claims: volumes.restricting_claims(pod),
        }))
    }

    /// Why the pod can run on no node now: its volumes are not ready.
    pub fn pod_level_reason(&self) -> Option<&Unfit> {
        self.0.pod_level_reason.as_ref()
    }

    /// Whether a topology spread constraint counts the pods of a node.
    pub(super) fn is_counted(
        &self,
        node: &Node,
        honors_affinity: bool,
        honors_taints: bool,
    ) -> bool {
        (!honors_affinity || self.0.affinity_mismatch(node).is_none())
            && (!honors_taints || self.0.untolerated_taint(node).is_none())
    }

    /// Whether the pod may run on a node, or the first reason against it.
    pub fn check(&self, node: &Node) -> Result<(), Unfit> {
        self.reasons(node).next().map_or(Ok(()), Err)
    }

    /// All reasons against a node. A filter with several reasons gives one of them.
    pub fn reasons<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = Unfit> + 'a {
        FILTERS.iter().filter_map(|filter| filter(&self.0, node))
    }
}

/// The filters, in kube-scheduler's order.
const FILTERS: [fn(&FilterInputs, &Node) -> Option<Unfit>; 8] = [
    |inputs, _| inputs.pod_level_reason.clone(),
    FilterInputs::unschedulable,
    FilterInputs::wrong_name,
    FilterInputs::untolerated_taint,
    FilterInputs::affinity_mismatch,
    |inputs, node| {
        inputs.volumes.iter().find_map(|volume| volume.affinity_mismatch(&node.meta.labels))
    },
    |inputs, node| choose(&inputs.late_claims, &node.meta.name.name, &node.meta.labels).err(),
    |inputs, node| inputs.volumes.iter().find_map(|volume| volume.zone_mismatch(&node.meta.labels)),
];

impl FilterInputs {
    fn unschedulable(&self, node: &Node) -> Option<Unfit> {
        let is_refused = node.is_unschedulable
            && !self.tolerates(UNSCHEDULABLE_TAINT, "", TaintEffect::NoSchedule);
        is_refused.then_some(Unfit::Cordoned)
    }

    fn wrong_name(&self, node: &Node) -> Option<Unfit> {
        let is_other = |name: &NodeName| **name != *node.meta.name.name;
        self.node.as_ref().is_some_and(is_other).then_some(Unfit::OtherNode)
    }

    fn untolerated_taint(&self, node: &Node) -> Option<Unfit> {
        let is_untolerated = |taint: &&NodeTaint| {
            taint.effect != TaintEffect::PreferNoSchedule
                && !self.tolerates(&taint.key, &taint.value, taint.effect)
        };
        let taint = node.taints.iter().find(is_untolerated)?;
        Some(Unfit::Taint { taint: taint.clone() })
    }

    fn affinity_mismatch(&self, node: &Node) -> Option<Unfit> {
        let labels = &node.meta.labels;
        let is_matching = self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(node)));
        (!is_matching).then_some(Unfit::Affinity)
    }

    fn tolerates(&self, key: &str, value: &str, effect: TaintEffect) -> bool {
        self.tolerations.iter().any(|toleration| tolerates(toleration, key, value, effect))
    }
}

/// The toleration without its seconds, which matter only once the pod runs.
fn placed_by(toleration: &Toleration) -> Toleration {
    Toleration { seconds: None, ..toleration.clone() }
}

/// Whether a toleration matches a taint. `Lt` and `Gt` (KEP-5471) are always evaluated: an API
/// server without the feature admits none.
pub(crate) fn tolerates(
    toleration: &Toleration,
    key: &str,
    value: &str,
    effect: TaintEffect,
) -> bool {
    if !(toleration.effect.is_empty() || toleration.effect == effect_name(effect)) {
        return false;
    }
    if !(toleration.key.is_empty() || toleration.key == key) {
        return false;
    }
    match &*toleration.operator {
        "" | "Equal" => toleration.value == value,
        "Exists" => true,
        "Lt" => integers(value, &toleration.value).is_some_and(|(taint, bound)| taint < bound),
        "Gt" => integers(value, &toleration.value).is_some_and(|(taint, bound)| taint > bound),
        _ => false,
    }
}

fn effect_name(effect: TaintEffect) -> &'static str {
    match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    }
}

/// Two whole numbers in canonical form: no plus sign, no leading zeros.
fn integers(one: &str, other: &str) -> Option<(i64, i64)> {
    let number = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_plain = text == "0" || matches!(digits.as_bytes(), [b'1'..=b'9', ..]);
        text.parse().ok().filter(|_| is_plain)
    };
    Some((number(one)?, number(other)?))
}
