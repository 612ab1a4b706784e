//! What of a pod meets a node's name, labels, taints and cordon.

use std::sync::Arc;

use octavo_kube_io::objects::{Node, NodeTaint, Pod, TaintEffect, Toleration};

use super::labels::{Labels, Term, sound_terms};
use super::volumes::Reach;
use super::{Unfit, Volumes};

/// The taint that a cordoned node is taken to have.
const CORDON: &str = "node.kubernetes.io/unschedulable";

/// What of a pod decides, with nothing but a node's own name, labels, taints and cordon, whether it may
/// run there. The answer is a function of the key and the node, so equal keys have equal answers on
/// every node; pods of one template have equal keys. It is cheap to clone.
///
/// Volumes are resolved: make it anew when claims, volumes or storage classes of the pod change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StaticKey(Arc<Rules>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Rules {
    /// Why it can run nowhere now.
    refusal: Option<Unfit>,
    /// The node that it names itself.
    node: Option<Arc<str>>,
    labels: Labels,
    /// Terms of which one must match; `None`: there is no affinity.
    terms: Option<Vec<Term>>,
    /// Those that matter to a scheduler.
    tolerations: Vec<Toleration>,
    volumes: Vec<Reach>,
}

impl StaticKey {
    /// The key of a pod.
    pub fn of(pod: &Pod, volumes: &Volumes) -> Self {
        let spec = &pod.spec;
        let matters = |toleration: &&Toleration| toleration.effect != "PreferNoSchedule";
        Self(Arc::new(Rules {
            refusal: volumes.refusal(pod),
            node: pod.node.clone(),
            labels: spec.node_selector.clone(),
            terms: spec.node_affinity.as_ref().map(sound_terms),
            tolerations: spec.tolerations.iter().filter(matters).cloned().collect(),
            volumes: volumes.reaches(pod),
        }))
    }

    /// Why the pod can run on no node now, whatever nodes there are: its volumes are not ready.
    pub fn refusal(&self) -> Option<&Unfit> {
        self.0.refusal.as_ref()
    }

    /// Whether the pod may run on a node, or the first reason against it.
    pub fn check(&self, node: &Node) -> Result<(), Unfit> {
        self.reasons(node).next().map_or(Ok(()), Err)
    }

    /// All that is against a node; a filter that has several reasons says one of them.
    pub fn reasons<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = Unfit> + 'a {
        RULES.iter().filter_map(|rule| rule(&self.0, node))
    }
}

/// What is looked at, in kube-scheduler's order.
const RULES: [fn(&Rules, &Node) -> Option<Unfit>; 7] = [
    |rules, _| rules.refusal.clone(),
    Rules::cordoned,
    Rules::elsewhere,
    Rules::repelled,
    Rules::not_drawn,
    |rules, node| rules.volumes.iter().find_map(|volume| volume.out_of_reach(&node.meta.labels)),
    |rules, node| rules.volumes.iter().find_map(|volume| volume.out_of_zone(&node.meta.labels)),
];

impl Rules {
    fn cordoned(&self, node: &Node) -> Option<Unfit> {
        let is_kept_off =
            node.is_unschedulable && !self.tolerates(CORDON, "", TaintEffect::NoSchedule);
        is_kept_off.then_some(Unfit::Cordoned)
    }

    fn elsewhere(&self, node: &Node) -> Option<Unfit> {
        let wanted = self.node.as_ref().filter(|name| **name != node.meta.name.name)?;
        Some(Unfit::OtherNode { wanted: Arc::clone(wanted) })
    }

    fn repelled(&self, node: &Node) -> Option<Unfit> {
        let is_repelled = |taint: &&NodeTaint| {
            taint.effect != TaintEffect::PreferNoSchedule
                && !self.tolerates(&taint.key, &taint.value, taint.effect)
        };
        let taint = node.taints.iter().find(is_repelled)?;
        Some(Unfit::Taint { taint: taint.clone() })
    }

    fn not_drawn(&self, node: &Node) -> Option<Unfit> {
        let labels = &node.meta.labels;
        let is_drawn = self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(node)));
        (!is_drawn).then_some(Unfit::Affinity)
    }

    fn tolerates(&self, key: &str, value: &str, effect: TaintEffect) -> bool {
        self.tolerations.iter().any(|toleration| tolerates(toleration, key, value, effect))
    }
}

/// Whether a toleration is for a taint. `Lt` and `Gt` (KEP-5471) are taken at their word: an API
/// server that does not serve them admits none.
fn tolerates(toleration: &Toleration, key: &str, value: &str, effect: TaintEffect) -> bool {
    if !(toleration.effect.is_empty() || toleration.effect == written(effect)) {
        return false;
    }
    if !(toleration.key.is_empty() || toleration.key == key) {
        return false;
    }
    match &*toleration.operator {
        "" | "Equal" => toleration.value == value,
        "Exists" => true,
        "Lt" => numbers(value, &toleration.value).is_some_and(|(taint, bound)| taint < bound),
        "Gt" => numbers(value, &toleration.value).is_some_and(|(taint, bound)| taint > bound),
        _ => false,
    }
}

fn written(effect: TaintEffect) -> &'static str {
    match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    }
}

/// Two whole numbers, each written as it is printed: no plus, no leading zeros.
fn numbers(one: &str, other: &str) -> Option<(i64, i64)> {
    let number = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_plain = text == "0" || matches!(digits.as_bytes(), [b'1'..=b'9', ..]);
        text.parse().ok().filter(|_| is_plain)
    };
    Some((number(one)?, number(other)?))
}
