//! What is in the way of a release.

use std::collections::{BTreeMap, BTreeSet};

use octavo_api::names::{LABEL_GPU_PRESENT, LABEL_MODE, MODE_NONE};
use octavo_migration::plan::{Component, Owner};
use serde_json::Value;

use crate::facts::{Facts, Part};
use crate::node_match::{Node, admits};
use crate::objects::{agent_set, called, label, name, text};
use crate::owner::{Claim, Release, claim};
use crate::progress::few;

/// The oldest Kubernetes that is served.
const OLDEST: (u32, u32) = (1, 34);

/// Something that has to be done first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Obstacle {
    /// What is in the way.
    pub(crate) problem: String,
    /// What to do.
    pub(crate) remedy: String,
}

/// The result of the checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preflight {
    /// What is in the way.
    pub(crate) obstacles: Vec<Obstacle>,
    /// Objects that become the release's: with whose they were.
    pub(crate) taken_over: Vec<(Value, String)>,
    /// What else a person should know.
    pub(crate) notes: Vec<String>,
}

/// Whether a cluster is too old for the chart.
pub(crate) fn too_old(version: &str, number: (u32, u32)) -> Option<Obstacle> {
    (number < OLDEST).then(|| Obstacle {
        problem: format!("the cluster is Kubernetes {version}"),
        remedy: "upgrade it: 1.34 or later is needed".to_owned(),
    })
}

/// Checks a cluster before the objects of a chart are written as a release. `allows_plugins`: agents may wait for other device plugins.
pub(crate) fn check(
    facts: &Facts,
    chart: &[Value],
    ours: &Release,
    allows_plugins: bool,
) -> Preflight {
    let mut found = Preflight::default();
    if !facts.serves_dra && offers_slices(chart) {
        found.obstacles.push(Obstacle {
            problem: "the API server does not serve resource.k8s.io/v1".to_owned(),
            remedy: "turn dynamic resource allocation on, or give --set agent.mode=device-plugin"
                .to_owned(),
        });
    }
    let nodes = agent_nodes(facts, chart);
    if agent_set(chart).is_some() && nodes.is_empty() {
        let note = "no node has the labels that agents need: see agent.nodeSelector and agent.affinity, or discover.enabled";
        found.notes.push(note.to_owned());
    }
    let leaving = facts.nodes.iter().filter(|node| has_left(node)).map(|node| node.name.as_str());
    let leaving: Vec<&str> = leaving.filter(|name| nodes.contains(name)).collect();
    if !leaving.is_empty() {
        found.notes.push(format!(
            "these nodes will offer no GPU, because their label {LABEL_MODE} is {MODE_NONE}: {}",
            few(leaving)
        ));
    }
    found.obstacles.extend(live_parts(facts, chart, &nodes, allows_plugins));
    for object in &facts.existing {
        match claim(object, ours, facts.releases.as_ref()) {
            Claim::Own => {}
            Claim::Free(from) => found.taken_over.push((object.clone(), from)),
            Claim::Held { owner, remedy } => found.obstacles.push(Obstacle {
                problem: format!("{} is of {owner}", called(object)),
                remedy: format!("{remedy}; or leave it there: --set {}=false", setting(object)),
            }),
        }
    }
    found
}

/// The value of the chart with which an object is not made.
fn setting(object: &Value) -> &'static str {
    match text(object, "/kind") {
        "DeviceClass" => "deviceClasses.enabled",
        _ if name(object).ends_with(".resource.nvidia.com") => "computeDomains.crds.install",
        _ => "crds.install",
    }
}

/// The nodes on which agents will run. Those that `octavo discover` would label count, too: nothing is known of them yet.
fn agent_nodes<'a>(facts: &'a Facts, chart: &[Value]) -> BTreeSet<&'a str> {
    let Some(spec) = agent_set(chart).and_then(|set| set.pointer("/spec/template/spec")) else {
        return BTreeSet::new();
    };
    let discovers = chart.iter().any(|it| label(it, "app.kubernetes.io/component") == "discover");
    let runs = |node: &&Node| {
        let mut node = (*node).clone();
        if discovers {
            node.labels.entry(LABEL_GPU_PRESENT.to_owned()).or_insert_with(|| "true".to_owned());
        }
        admits(spec, &node)
    };
    facts.nodes.iter().filter(runs).map(|node| node.name.as_str()).collect()
}

/// Whether a node has left Octavo: another program may offer its GPUs.
fn has_left(node: &Node) -> bool {
    node.labels.get(LABEL_MODE).is_some_and(|mode| mode == MODE_NONE)
}

/// Parts of other stacks that would do the same work as this release, on nodes where its agents run.
fn live_parts(
    facts: &Facts,
    chart: &[Value],
    nodes: &BTreeSet<&str>,
    allows_plugins: bool,
) -> Vec<Obstacle> {
    let config = agent_config(chart);
    let left: BTreeSet<&str> =
        facts.nodes.iter().filter(|node| has_left(node)).map(|node| node.name.as_str()).collect();
    let nodes: BTreeSet<&str> = nodes.difference(&left).copied().collect();
    let has_controller =
        chart.iter().any(|it| label(it, "app.kubernetes.io/component") == "controller");
    let is_rival = |part: &&Part| match part.component {
        Component::DraDriver => nodes.contains(part.node.as_str()),
        Component::DevicePlugin | Component::MpsControlDaemon | Component::HamiDevicePlugin => {
            !allows_plugins && nodes.contains(part.node.as_str())
        }
        Component::MigManager => {
            !config["migManager"].is_null() && nodes.contains(part.node.as_str())
        }
        Component::FeatureDiscovery => {
            !["", "none"].contains(&config["featureLabels"].as_str().unwrap_or_default())
                && nodes.contains(part.node.as_str())
        }
        Component::ComputeDomainController => has_controller,
        _ => false,
    };
    let mut by_kind: BTreeMap<(Component, &Owner), Vec<&Part>> = BTreeMap::new();
    for part in facts.parts.iter().filter(is_rival) {
        by_kind.entry((part.component, &part.owner)).or_default().push(part);
    }
    let obstacles = by_kind.into_iter().map(|((component, owner), parts)| {
        let pods = few(parts.iter().map(|part| part.pod.as_str()));
        let nodes: BTreeSet<&str> = parts.iter().map(|part| part.node.as_str()).collect();
        Obstacle {
            problem: format!("{} runs on {}: {pods}", component.name(), few(nodes)),
            remedy: end_of(owner),
        }
    });
    obstacles.collect()
}

fn end_of(owner: &Owner) -> String {
    let how = match owner {
        Owner::Helm { release, namespace } if !namespace.is_empty() => {
            format!("end it, as by `helm uninstall {release} -n {namespace}`")
        }
        Owner::Unknown => "end it".to_owned(),
        owner => format!("end it; it is of {owner}"),
    };
    format!(
        "{how}. `octavo migrate plan` has the steps with which running pods keep their GPUs; agents can also be kept off these \
             nodes by agent.nodeSelector"
    )
}

/// The agent's config file.
fn agent_config(chart: &[Value]) -> Value {
    let maps = chart.iter().filter(|object| {
        text(object, "/kind") == "ConfigMap"
            && label(object, "app.kubernetes.io/component") == "agent"
    });
    let files = maps.filter_map(|map| map["data"]["agent.yaml"].as_str());
    files.into_iter().find_map(|file| serde_saphyr::from_str(file).ok()).unwrap_or_default()
}

fn offers_slices(chart: &[Value]) -> bool {
    agent_config(chart)["mode"].as_str().unwrap_or("dra") == "dra"
}

#[cfg(test)]
mod tests;
