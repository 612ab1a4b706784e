//! Rules about other pods: of running pods, and of the pod to schedule.

use octavo_kube_io::objects::{AffinityTerm, LabelRequirement, LabelSelector, Spread};
use octavo_testkit::Rng;

use super::{Draft, meta, node_filters, pick_some};

/// Anti-affinity of running pods, with all kinds of namespaces.
pub(super) fn excluding(rng: &mut Rng, draft: &mut Draft) {
    name_pods(rng, draft);
    for spec in &mut draft.placed {
        if rng.chance(70) {
            spec.anti_affinity = (0..rng.between(1, 2)).map(|_| term(rng, 4)).collect();
        }
        if rng.chance(20) {
            // Affinity of running pods does not bind the pod to schedule.
            spec.affinity = vec![term(rng, 4)];
        }
    }
}

/// Anti-affinity of the pod.
pub(super) fn apart(rng: &mut Rng, draft: &mut Draft) {
    name_pods(rng, draft);
    draft.spec.anti_affinity = (0..rng.between(1, 2)).map(|_| term(rng, 0)).collect();
}

/// Affinity of the pod, often to its own kind.
pub(super) fn near(rng: &mut Rng, draft: &mut Draft) {
    name_pods(rng, draft);
    draft.spec.affinity = (0..rng.between(1, 2)).map(|_| term(rng, 0)).collect();
}

/// Topology spread constraints.
pub(super) fn spread(rng: &mut Rng, draft: &mut Draft) {
    name_pods(rng, draft);
    if rng.chance(50) {
        node_filters::taints(rng, draft);
    }
    if rng.chance(30) {
        node_filters::selectors(rng, draft);
    }
    let keys = ["zone", "example.com/rack", "kubernetes.io/hostname"];
    for topology_key in pick_some(rng, &keys, 2) {
        let constraint = Spread {
            topology_key,
            is_hard: rng.chance(90),
            max_skew: *rng.pick(&[1, 1, 1, 2, 3]),
            min_domains: 1,
            selector: rng.chance(95).then(|| selector(rng, "app", &["web", "db"], 0)),
            match_label_keys: if rng.chance(30) { vec!["hash".to_owned()] } else { Vec::new() },
            honors_affinity: rng.chance(70),
            honors_taints: rng.chance(60),
        };
        // The API server allows it for hard constraints alone.
        let min_domains = if constraint.is_hard { *rng.pick(&[1, 1, 2, 3]) } else { 1 };
        draft.spec.spread.push(Spread { min_domains, ..constraint });
    }
}

/// Labels of nodes, namespaces and pods.
pub(super) fn name_pods(rng: &mut Rng, draft: &mut Draft) {
    node_filters::label(rng, draft);
    for name in ["team-a", "team-b"] {
        if rng.chance(80) && !draft.case.namespaces.iter().any(|one| *one.name.name == *name) {
            let mut namespace = meta("", name);
            namespace.labels.insert("tier".to_owned(), rng.word(&["prod", "test"]).to_owned());
            draft.case.namespaces.push(namespace);
        }
    }
    for pod in std::iter::once(&mut draft.case.pod).chain(&mut draft.case.placed) {
        if rng.chance(80) {
            let app = rng.word(&["web", "web", "db"]).to_owned();
            pod.meta.labels.insert("app".to_owned(), app);
        }
        if rng.chance(60) {
            pod.meta.labels.insert("hash".to_owned(), rng.word(&["one", "two"]).to_owned());
        }
    }
    for pod in &mut draft.case.placed {
        if rng.chance(15) {
            pod.meta.deleted = Some(0);
        }
    }
}

/// A term, malformed in so many percent of its expressions.
pub(super) fn term(rng: &mut Rng, percent_malformed: usize) -> AffinityTerm {
    let topology_key = rng.word(&["zone", "example.com/rack", "kubernetes.io/hostname"]).to_owned();
    AffinityTerm {
        selector: rng.chance(93).then(|| selector(rng, "app", &["web", "db"], percent_malformed)),
        namespaces: if rng.chance(30) {
            pick_some(rng, &["team-a", "team-b"], 2)
        } else {
            Vec::new()
        },
        namespace_selector: rng
            .chance(30)
            .then(|| selector(rng, "tier", &["prod", "test"], percent_malformed)),
        topology_key,
    }
}

/// A selector of labels.
pub(super) fn selector(
    rng: &mut Rng,
    key: &str,
    values: &[&'static str],
    percent_malformed: usize,
) -> LabelSelector {
    let mut selector = LabelSelector::default();
    if rng.chance(50) {
        selector.labels.insert(key.to_owned(), rng.word(values).to_owned());
    }
    if rng.chance(40) {
        let operator = rng.word(&["In", "NotIn", "Exists", "DoesNotExist"]);
        let values = match operator {
            "In" | "NotIn" => vec![rng.word(values).to_owned()],
            _ => Vec::new(),
        };
        // A malformed term voids all terms of its pod.
        let operator = if rng.chance(percent_malformed) { "Like" } else { operator };
        let (key, operator) = (key.to_owned(), operator.to_owned());
        selector.expressions.push(LabelRequirement { key, operator, values });
    }
    selector
}
