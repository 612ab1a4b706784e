//! Node scopes of devices.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as api;
use octavo_testkit::Rng;

/// Node scope of a pool.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope<'a> {
    /// The whole pool is on one node.
    Node(&'a str),
    /// Each slice is on a random node.
    Nodes,
    All,
    Selector,
    PerDevice,
}

/// Writes the node scope of a slice and its devices.
pub(super) fn place(
    rng: &mut Rng,
    scope: Scope<'_>,
    nodes: &[core::Node],
    spec: &mut api::ResourceSliceSpec,
) {
    match scope {
        Scope::Node(name) => spec.node_name = Some(name.to_owned()),
        Scope::Nodes => spec.node_name.clone_from(&rng.pick(nodes).metadata.name),
        Scope::All => spec.all_nodes = Some(true),
        Scope::Selector => spec.node_selector = Some(selector(rng, nodes, 1)),
        Scope::PerDevice => {
            spec.per_device_node_selection = Some(true);
            for device in spec.devices.iter_mut().flatten() {
                match rng.below(10) {
                    0..4 => device.node_name.clone_from(&rng.pick(nodes).metadata.name),
                    4..7 => device.all_nodes = Some(true),
                    // An allocation cannot combine several terms, so this is an error.
                    7 if rng.chance(15) => device.node_selector = Some(selector(rng, nodes, 2)),
                    _ => device.node_selector = Some(selector(rng, nodes, 1)),
                }
            }
        }
    }
}

fn selector(rng: &mut Rng, nodes: &[core::Node], terms: usize) -> core::NodeSelector {
    let mut term = || {
        let mut term = core::NodeSelectorTerm::default();
        if rng.chance(25) {
            let name = rng.pick(nodes).metadata.name.clone().unwrap_or_default();
            let operator = if rng.chance(70) { "In" } else { "NotIn" };
            term.match_fields = Some(vec![requirement("metadata.name", operator, &[&name])]);
        }
        if term.match_fields.is_none() || rng.chance(50) {
            let count = rng.between(1, 2);
            term.match_expressions = Some((0..count).map(|_| label(rng)).collect());
        }
        term
    };
    core::NodeSelector { node_selector_terms: (0..terms).map(|_| term()).collect() }
}

fn label(rng: &mut Rng) -> core::NodeSelectorRequirement {
    match rng.below(12) {
        0..4 => requirement("zone", "In", &["z1", "z2"][..rng.between(1, 2)]),
        4 => requirement("zone", "NotIn", &["z2"]),
        5..7 => requirement("rank", "Exists", &[]),
        7 => requirement("rank", "DoesNotExist", &[]),
        8 => requirement("rank", "Gt", &["1"]),
        9 => requirement("rank", "Lt", &["3"]),
        10 => requirement("rank", "NotIn", &["1", "ten"]),
        _ => requirement("zone", "Exists", &[]),
    }
}

fn requirement(key: &str, operator: &str, values: &[&str]) -> core::NodeSelectorRequirement {
    let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
    core::NodeSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: (!values.is_empty()).then_some(values),
    }
}
