//! Names, labels, taints and cordons of nodes, and the pods' rules for them.

use octavo_dra::{NodeOperator, NodeRequirement, NodeSelector, NodeSelectorTerm};
use octavo_kube_io::objects::{NodeTaint, TaintEffect, Toleration};
use octavo_testkit::Rng;

use super::{Draft, pick_some};

const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";
const NUMBERS: [&str; 7] = ["5", "7", "7", "12", "-3", "007", "many"];

/// Taints and tolerations.
pub(super) fn taints(rng: &mut Rng, draft: &mut Draft) {
    // Numeric comparisons are rare if left to chance.
    let is_of_numbers = rng.chance(25);
    for node in &mut draft.case.nodes {
        for _ in 0..*rng.pick(&[0, 1, 1, 2]) {
            let effect = *rng.pick(&[
                TaintEffect::NoSchedule,
                TaintEffect::NoExecute,
                TaintEffect::PreferNoSchedule,
            ]);
            let key = if is_of_numbers { "size" } else { rng.word(&["team", "size"]) };
            let value =
                if key == "size" { rng.word(&NUMBERS) } else { rng.word(&["red", "blue", ""]) };
            node.taints.push(NodeTaint { key: key.to_owned(), value: value.to_owned(), effect });
        }
    }
    for _ in 0..rng.below(4) {
        let mut toleration = toleration(rng);
        if is_of_numbers {
            "size".clone_into(&mut toleration.key);
            rng.word(&["Lt", "Gt"]).clone_into(&mut toleration.operator);
            rng.word(&NUMBERS).clone_into(&mut toleration.value);
        }
        draft.spec.tolerations.push(toleration);
    }
}

fn toleration(rng: &mut Rng) -> Toleration {
    let key = rng.word(&["team", "team", "size", "size", "size", "", UNSCHEDULABLE_TAINT]);
    let operator = match key {
        "size" => rng.word(&["Lt", "Gt", "Exists", "Equal"]),
        "" => rng.word(&["Exists", "Exists", "Equal"]),
        _ => rng.word(&["", "Equal", "Exists", "Like"]),
    };
    let value = match key {
        _ if operator == "Exists" => "",
        "size" => rng.word(&NUMBERS),
        _ => rng.word(&["red", "blue", ""]),
    };
    let effect = rng.word(&["", "", "NoSchedule", "NoExecute", "PreferNoSchedule"]);
    Toleration {
        key: key.to_owned(),
        operator: operator.to_owned(),
        value: value.to_owned(),
        effect: effect.to_owned(),
        seconds: None,
    }
}

/// Cordons, sometimes tolerated.
pub(super) fn cordons(rng: &mut Rng, draft: &mut Draft) {
    draft.case.nodes.iter_mut().for_each(|node| node.is_unschedulable = rng.chance(50));
    if rng.chance(35) {
        let mut toleration = toleration(rng);
        if rng.chance(60) {
            UNSCHEDULABLE_TAINT.clone_into(&mut toleration.key);
        }
        draft.spec.tolerations.push(toleration);
    }
}

/// Node labels that selectors and affinity refer to.
pub(super) fn label(rng: &mut Rng, draft: &mut Draft) {
    for node in &mut draft.case.nodes {
        for (key, values) in
            [("zone", &["a", "b"][..]), ("example.com/rack", &["1", "2", ""]), ("size", &NUMBERS)]
        {
            if rng.chance(80) {
                node.meta.labels.insert(key.to_owned(), rng.word(values).to_owned());
            }
        }
    }
}

/// Node selectors.
pub(super) fn selectors(rng: &mut Rng, draft: &mut Draft) {
    label(rng, draft);
    for (key, values) in [("zone", &["a", "b"][..]), ("example.com/rack", &["1", "2", ""])] {
        if rng.chance(50) {
            draft.spec.node_selector.insert(key.to_owned(), rng.word(values).to_owned());
        }
    }
}

/// Required node affinity, malformed terms included.
pub(super) fn affinity(rng: &mut Rng, draft: &mut Draft) {
    label(rng, draft);
    draft.spec.node_affinity = Some(node_selector(rng));
}

/// A selector of nodes.
pub(super) fn node_selector(rng: &mut Rng) -> NodeSelector {
    let term = |rng: &mut Rng| NodeSelectorTerm {
        labels: (0..*rng.pick(&[0, 1, 1, 2])).map(|_| requirement(rng)).collect(),
        fields: if rng.chance(25) { vec![field(rng)] } else { Vec::new() },
    };
    NodeSelector { terms: (0..*rng.pick(&[0, 1, 1, 1, 2, 2, 3])).map(|_| term(rng)).collect() }
}

fn requirement(rng: &mut Rng) -> NodeRequirement {
    use NodeOperator::{DoesNotExist, Exists, Gt, In, NotIn};
    let key = rng.word(&["zone", "zone", "example.com/rack", "size", "size", "Bad/Key", "-bad"]);
    if key == "size" {
        let operator = *rng.pick(&[Gt, NodeOperator::Lt, Exists]);
        let count = if operator == Exists { 0 } else { *rng.pick(&[1, 1, 1, 1, 2, 0]) };
        let values = (0..count).map(|_| rng.word(&NUMBERS).to_owned()).collect();
        return NodeRequirement { key: key.to_owned(), operator, values };
    }
    let operator = *rng.pick(&[In, In, In, NotIn, NotIn, Exists, DoesNotExist]);
    let values = match operator {
        Exists | DoesNotExist if rng.chance(90) => Vec::new(),
        _ => pick_some(rng, &["a", "b", "1", "2", "", "-bad-"], 3),
    };
    NodeRequirement { key: key.to_owned(), operator, values }
}

fn field(rng: &mut Rng) -> NodeRequirement {
    use NodeOperator::{Exists, In, NotIn};
    let key = rng.word(&["metadata.name", "metadata.name", "metadata.name", "spec.other"]);
    let operator = *rng.pick(&[In, In, In, NotIn, NotIn, Exists]);
    let values = match key {
        "metadata.name" => pick_some(rng, &["node-0", "node-1", "node-2", "node-3"], 2),
        _ => pick_some(rng, &["x", ""], 1),
    };
    NodeRequirement { key: key.to_owned(), operator, values }
}

/// A pod that names its node.
pub(super) fn names(rng: &mut Rng, draft: &mut Draft) {
    draft.case.pod.node = Some(rng.word(&["node-0", "node-1", "node-2"]).into());
}
