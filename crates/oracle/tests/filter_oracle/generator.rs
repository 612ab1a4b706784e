//! Clusters and pods at random. A case looks at one to three of the topics below, the others being
//! quiet in it, so that each filter decides alone often.

mod amounts;
mod neighbours;
mod places;
mod volumes;

use std::sync::Arc;

use octavo_dra::Stage;
use octavo_kube_io::objects::{Container, Meta, Node, ObjectName, Pod, PodSpec};
use octavo_oracle::Rng;

use crate::case::Case;

/// What a case may be about.
const TOPICS: [fn(&mut Rng, &mut Draft); 17] = [
    amounts::requests,
    amounts::requests,
    amounts::pods,
    amounts::ports,
    amounts::ports,
    places::taints,
    places::cordons,
    places::selectors,
    places::affinity,
    places::names,
    volumes::disks,
    volumes::disks,
    volumes::claims,
    volumes::claims,
    volumes::limits,
    volumes::limits,
    neighbours::apart,
];

/// A case in the making: specs are not shared yet.
pub(crate) struct Draft {
    pub(crate) case: Case,
    pub(crate) spec: PodSpec,
    pub(crate) placed: Vec<PodSpec>,
}

/// The case of a seed.
pub(crate) fn generate(seed: u64) -> Case {
    let rng = &mut Rng::new(seed);
    let mut draft = Draft { case: Case::default(), spec: plain(), placed: Vec::new() };
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
        let node = rng.pick(&draft.case.nodes).meta.name.name.clone();
        let placed = Pod { node: Some(node), ..pod(rng, &format!("pod-{index}")) };
        draft.case.placed.push(placed);
        draft.placed.push(plain());
    }
    for _ in 0..rng.between(1, 3) {
        TOPICS[rng.below(TOPICS.len())](rng, &mut draft);
    }
    let Draft { mut case, spec, placed } = draft;
    case.pod.spec = Arc::new(spec);
    for (pod, spec) in case.placed.iter_mut().zip(placed) {
        pod.spec = Arc::new(spec);
    }
    case
}

impl Draft {
    /// Every pod's spec, the newcomer's first.
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

fn plain() -> PodSpec {
    PodSpec { containers: vec![container("main", Stage::Main)], ..PodSpec::default() }
}

fn container(name: &str, stage: Stage) -> Container {
    Container {
        name: name.to_owned(),
        stage,
        requests: amounts::list(&[]),
        ports: Vec::new(),
        claims: Vec::new(),
    }
}

/// Several words, each once at most.
fn some(rng: &mut Rng, from: &[&str], most: usize) -> Vec<String> {
    let mut words: Vec<String> = from.iter().map(|word| (*word).to_owned()).collect();
    rng.shuffle(&mut words);
    words.truncate(rng.below(most + 1));
    words
}
