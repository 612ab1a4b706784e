//! Preferences: of the pod, of pods that have a node, and of nodes.

use octavo_dra::{NodeOperator, NodeRequirement, NodeSelectorTerm};
use octavo_kube_io::objects::{AffinityTerm, NodeTaint, Spread, TaintEffect, Toleration};
use octavo_testkit::Rng;

use super::neighbours::{name_pods, selector, term};
use super::{Draft, node_filters, pick_some};

/// Kinds of preferences.
const KINDS: [fn(&mut Rng, &mut Draft); 10] = [
    soft_taints,
    preferred_nodes,
    preferred_nodes,
    soft_spread,
    soft_spread,
    soft_spread,
    soft_spread,
    soft_spread,
    preferred_neighbours,
    preferring_neighbours,
];

/// Adds none to four kinds of preferences.
pub(super) fn add(rng: &mut Rng, draft: &mut Draft) {
    for _ in 0..rng.below(5) {
        KINDS[rng.below(KINDS.len())](rng, draft);
    }
}

/// Taints with `PreferNoSchedule`.
fn soft_taints(rng: &mut Rng, draft: &mut Draft) {
    let effect = TaintEffect::PreferNoSchedule;
    for node in &mut draft.case.nodes {
        for key in pick_some(rng, &["slow", "noisy", "old"], 3) {
            let value = rng.word(&["yes", ""]).to_owned();
            node.taints.push(NodeTaint { key, value, effect });
        }
    }
    for key in pick_some(rng, &["slow", "noisy", "old"], 2) {
        draft.spec.tolerations.push(Toleration {
            key,
            operator: rng.word(&["Exists", "Equal", ""]).to_owned(),
            value: String::new(),
            effect: rng.word(&["", "PreferNoSchedule", "NoSchedule"]).to_owned(),
            seconds: None,
        });
    }
}

/// Preferred node affinity.
fn preferred_nodes(rng: &mut Rng, draft: &mut Draft) {
    node_filters::label(rng, draft);
    for _ in 0..rng.between(1, 3) {
        let weight = i32::try_from(rng.between(1, 100)).expect("small");
        let key = rng.word(&["zone", "example.com/rack"]).to_owned();
        let operator = *rng.pick(&[NodeOperator::In, NodeOperator::NotIn, NodeOperator::Exists]);
        let values = match operator {
            NodeOperator::Exists => Vec::new(),
            _ => vec![rng.word(&["a", "b", "1", "2"]).to_owned()],
        };
        let labels = vec![NodeRequirement { key, operator, values }];
        // A term without requirements matches no node.
        let labels = if rng.chance(90) { labels } else { Vec::new() };
        let term = NodeSelectorTerm { labels, fields: Vec::new() };
        draft.spec.preferred_nodes.push((weight, term));
    }
}

/// Topology spread with `ScheduleAnyway`.
fn soft_spread(rng: &mut Rng, draft: &mut Draft) {
    name_pods(rng, draft);
    if rng.chance(25) {
        node_filters::taints(rng, draft);
    }
    if rng.chance(15) {
        node_filters::affinity(rng, draft);
    }
    let used: Vec<_> = draft.spec.spread.iter().map(|spread| spread.topology_key.clone()).collect();
    let keys = ["zone", "example.com/rack", "kubernetes.io/hostname"];
    for topology_key in pick_some(rng, &keys, 3).into_iter().filter(|key| !used.contains(key)) {
        draft.spec.spread.push(Spread {
            topology_key,
            is_hard: false,
            max_skew: *rng.pick(&[1, 1, 1, 2, 3]),
            min_domains: 1,
            selector: rng.chance(95).then(|| selector(rng, "app", &["web", "db"], 0)),
            match_label_keys: if rng.chance(30) { vec!["hash".to_owned()] } else { Vec::new() },
            honors_affinity: rng.chance(70),
            honors_taints: rng.chance(60),
        });
    }
    if rng.chance(60) {
        for node in &mut draft.case.nodes {
            let name = node.meta.name.name.to_string();
            node.meta.labels.insert("kubernetes.io/hostname".to_owned(), name);
        }
    }
}

/// Preferred affinity and anti-affinity of the pod.
fn preferred_neighbours(rng: &mut Rng, draft: &mut Draft) {
    name_pods(rng, draft);
    draft.spec.preferred_affinity = weighted(rng);
}

/// Affinity of pods that have a node.
fn preferring_neighbours(rng: &mut Rng, draft: &mut Draft) {
    name_pods(rng, draft);
    for spec in &mut draft.placed {
        if rng.chance(70) {
            spec.preferred_affinity = weighted(rng);
        }
        if rng.chance(30) {
            spec.affinity = vec![term(rng, 0)];
        }
    }
}

/// Terms of affinity, then those of anti-affinity.
fn weighted(rng: &mut Rng) -> Vec<(i32, AffinityTerm)> {
    let mut all = Vec::new();
    for sign in [1, -1] {
        for _ in 0..rng.below(3) {
            let weight = i32::try_from(rng.between(1, 100)).expect("small");
            all.push((sign * weight, term(rng, 0)));
        }
    }
    all
}
