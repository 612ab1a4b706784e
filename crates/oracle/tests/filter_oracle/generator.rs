//! Random clusters and pods. A case varies one to three of the topics below, so that each filter
//! often decides alone. Preferences come last.

mod amounts;
mod neighbours;
mod node_filters;
mod preferences;
mod volumes;

use std::sync::Arc;

use octavo_dra::ContainerKind;
use octavo_kube_io::objects::{Container, Meta, Node, ObjectName, Pod, PodSpec};
use octavo_testkit::Rng;

use crate::case::Case;

/// Topics of a case.
const TOPICS: [fn(&mut Rng, &mut Draft); 23] = [
    amounts::requests,
    amounts::requests,
    amounts::pods,
    amounts::ports,
    amounts::ports,
    node_filters::taints,
    node_filters::cordons,
    node_filters::selectors,
    node_filters::affinity,
    node_filters::names,
    volumes::disks,
    volumes::disks,
    volumes::claims,
    volumes::claims,
    volumes::late_claims,
    volumes::late_claims,
    volumes::limits,
    volumes::limits,
    neighbours::excluding,
    neighbours::apart,
    neighbours::near,
    neighbours::spread,
    neighbours::spread,
];

/// A case under construction: specs are not shared yet.
pub(crate) struct Draft {
    pub(crate) case: Case,
    pub(crate) spec: PodSpec,
    pub(crate) placed: Vec<PodSpec>,
}

/// The case of a seed.
pub(crate) fn generate(seed: u64) -> Case {
    let rng = &mut Rng::new(seed);
    let mut draft = Draft { case: Case::default(), spec: plain_spec(), placed: Vec::new() };
    for index in 0..rng.between(1, 4) {
        let allocatable = [("cpu", "4"), ("memory", "1Gi"), ("pods", "10")];
        draft.case.nodes.push(Node {
            meta: meta("", &format!("node-{index}")),
            allocatable: amounts::list(&allocatable),
            ..Node::default()
        });
    }
    draft.case.pod = pod(rng, "newcomer");
    for index in 0..rng.below(5) {
        let node = rng.pick(&draft.case.nodes).name();
        let placed = Pod { node: Some(node), ..pod(rng, &format!("pod-{index}")) };
        draft.case.placed.push(placed);
        draft.placed.push(plain_spec());
    }
    for _ in 0..rng.between(1, 3) {
        TOPICS[rng.below(TOPICS.len())](rng, &mut draft);
    }
    preferences::add(rng, &mut draft);
    let Draft { mut case, spec, placed } = draft;
    case.pod.spec = Arc::new(spec);
    for (pod, spec) in case.placed.iter_mut().zip(placed) {
        pod.spec = Arc::new(spec);
    }
    case
}

impl Draft {
    /// The specs of all pods, that of the pod to schedule first.
    fn specs(&mut self) -> impl Iterator<Item = &mut PodSpec> {
        std::iter::once(&mut self.spec).chain(&mut self.placed)
    }
}

/// Names of an object; its UID is its name.
fn meta(namespace: &str, name: &str) -> Meta {
    Meta { name: ObjectName::new(namespace, name), uid: Arc::from(name), ..Meta::default() }
}

fn pod(rng: &mut Rng, name: &str) -> Pod {
    let namespace = rng.word(&["team-a", "team-a", "team-b"]);
    Pod { meta: meta(namespace, name), ..Pod::default() }
}

fn plain_spec() -> PodSpec {
    PodSpec { containers: vec![container("main", ContainerKind::Main)], ..PodSpec::default() }
}

fn container(name: &str, kind: ContainerKind) -> Container {
    Container {
        name: name.to_owned(),
        kind,
        requests: amounts::list(&[]),
        ports: Vec::new(),
        claims: Vec::new(),
    }
}

/// Several words, each at most once.
fn pick_some(rng: &mut Rng, from: &[&str], most: usize) -> Vec<String> {
    let mut words: Vec<String> = from.iter().map(|word| (*word).to_owned()).collect();
    rng.shuffle(&mut words);
    words.truncate(rng.below(most + 1));
    words
}
