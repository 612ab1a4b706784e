//! Running pods with anti-affinity.

use octavo_kube_io::objects::{AffinityTerm, LabelRequirement, LabelSelector};
use octavo_testkit::Rng;

use super::{Draft, meta, node_filters, pick_some};

/// Anti-affinity of running pods, with all kinds of namespaces.
pub(super) fn apart(rng: &mut Rng, draft: &mut Draft) {
    node_filters::label(rng, draft);
    for name in ["team-a", "team-b"] {
        if rng.chance(80) && !draft.case.namespaces.iter().any(|one| *one.name.name == *name) {
            let mut namespace = meta("", name);
            namespace.labels.insert("tier".to_owned(), rng.word(&["prod", "test"]).to_owned());
            draft.case.namespaces.push(namespace);
        }
    }
    if rng.chance(80) {
        let app = rng.word(&["web", "web", "db"]).to_owned();
        draft.case.pod.meta.labels.insert("app".to_owned(), app);
    }
    for spec in &mut draft.placed {
        if rng.chance(70) {
            spec.anti_affinity = (0..rng.between(1, 2)).map(|_| term(rng)).collect();
        }
        if rng.chance(20) {
            // Affinity of running pods does not bind the pod to schedule.
            spec.affinity = vec![term(rng)];
        }
    }
}

fn term(rng: &mut Rng) -> AffinityTerm {
    let topology_key = rng.word(&["zone", "example.com/rack", "kubernetes.io/hostname"]).to_owned();
    AffinityTerm {
        selector: rng.chance(93).then(|| selector(rng, "app", &["web", "db"])),
        namespaces: if rng.chance(30) {
            pick_some(rng, &["team-a", "team-b"], 2)
        } else {
            Vec::new()
        },
        namespace_selector: rng.chance(30).then(|| selector(rng, "tier", &["prod", "test"])),
        topology_key,
    }
}

fn selector(rng: &mut Rng, key: &str, values: &[&'static str]) -> LabelSelector {
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
        let operator = if rng.chance(4) { "Like" } else { operator };
        let (key, operator) = (key.to_owned(), operator.to_owned());
        selector.expressions.push(LabelRequirement { key, operator, values });
    }
    selector
}
