//! Random sequences of operations on a node. No GPU is allocated twice, and nothing is left at the end.

use std::collections::BTreeMap;
use std::fs;

use octavo_node::ClaimRef;
use proptest::prelude::*;

use super::fixtures::Node;
use crate::claims::Claims;

const CLAIMS: usize = 4;
const GPUS: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Step {
    Prepare(usize),
    Unprepare(usize),
    Delete(usize),
    Sweep,
    Restart,
    Reboot,
    ApiAway(bool),
    DamageCheckpoint(usize, Damage),
    DamageSpec(usize, Damage),
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Truncate,
    Empty,
    FutureVersion,
    OtherDevice,
    Remove,
}

fn step() -> impl Strategy<Value = Step> {
    let claim = 0..CLAIMS;
    let damage = prop_oneof![
        Just(Damage::Truncate),
        Just(Damage::Empty),
        Just(Damage::FutureVersion),
        Just(Damage::OtherDevice),
        Just(Damage::Remove)
    ];
    prop_oneof![
        6 => claim.clone().prop_map(Step::Prepare),
        4 => claim.clone().prop_map(Step::Unprepare),
        1 => claim.clone().prop_map(Step::Delete),
        1 => Just(Step::Sweep),
        3 => Just(Step::Restart),
        1 => Just(Step::Reboot),
        1 => any::<bool>().prop_map(Step::ApiAway),
        3 => (claim.clone(), damage.clone()).prop_map(|(c, d)| Step::DamageCheckpoint(c, d)),
        2 => (claim, damage).prop_map(|(c, d)| Step::DamageSpec(c, d)),
    ]
}

/// The expected state.
struct Model {
    node: Node,
    claims: Option<Claims>,
    refs: Vec<ClaimRef>,
    /// Device by claim, for claims whose containers may run.
    running: BTreeMap<usize, usize>,
}

impl Model {
    async fn new() -> Self {
        let node = Node::new();
        let refs = (0..CLAIMS).map(|index| allocate(&node, index)).collect();
        let claims = Some(node.start().await);
        Self { node, claims, refs, running: BTreeMap::new() }
    }

    fn claims(&self) -> &Claims {
        self.claims.as_ref().expect("is started")
    }

    async fn apply(&mut self, step: Step) {
        match step {
            Step::Prepare(index) => {
                let result = self.claims().prepare(&self.refs[index]).await;
                if result.is_ok() {
                    self.running.insert(index, index % GPUS);
                    let device = index % GPUS;
                    let holders = self.running.iter().filter(|(_, held)| **held == device);
                    let holders: Vec<_> = holders.map(|(holder, _)| *holder).collect();
                    assert_eq!(holders, [index], "gpu-{device} was given twice");
                    assert!(self.node.path(&Node::cdi(&self.refs[index])).exists());
                }
            }
            Step::Unprepare(index) => {
                self.claims().unprepare(&self.refs[index]).await.expect("unprepares");
                self.running.remove(&index);
                assert!(!self.node.path(&Node::cdi(&self.refs[index])).exists());
            }
            Step::Delete(index) => {
                // A claim is deleted once its containers have ended; the name comes back with another UID.
                self.node.delete(&self.refs[index]);
                self.running.remove(&index);
                let old = self.refs[index].clone();
                self.refs[index] = allocate(&self.node, index);
                // The kubelet may not report the old claim; here the sweep must find it.
                assert_ne!(old.uid, self.refs[index].uid);
            }
            Step::Sweep => {
                self.claims().sweep().await;
                super::sweep_later(self.claims()).await;
            }
            Step::Restart => self.restart().await,
            Step::Reboot => {
                self.claims = None;
                self.node.reboot();
                self.running.clear();
                self.restart().await;
            }
            Step::ApiAway(is_away) => self.node.set_away(is_away),
            Step::DamageCheckpoint(index, damage) => {
                let file = Node::checkpoint(&self.refs[index]);
                let other = Node::cdi(&self.refs[index]);
                self.damage(&file, &other, damage);
            }
            Step::DamageSpec(index, damage) => {
                let file = Node::cdi(&self.refs[index]);
                let other = Node::checkpoint(&self.refs[index]);
                self.damage(&file, &other, damage);
            }
        }
    }

    /// Damages a file. The last of a claim's two files is not removed, since nothing could be recovered then.
    fn damage(&self, file: &str, other: &str, damage: Damage) {
        let path = self.node.path(file);
        let Ok(text) = fs::read_to_string(&path) else { return };
        let other = fs::read_to_string(self.node.path(other)).unwrap_or_default();
        match damage {
            Damage::Remove if other.is_empty() => {}
            Damage::Remove => fs::remove_file(&path).expect("removes"),
            Damage::Truncate => fs::write(&path, &text[..text.len() / 3]).expect("writes"),
            Damage::Empty => fs::write(&path, "").expect("writes"),
            Damage::FutureVersion => {
                fs::write(&path, text.replace("\"version\":1", "\"version\":9")).expect("writes");
            }
            // Names of devices outside of the checksum's reach would be a lie and not damage.
            Damage::OtherDevice if file.starts_with("cdi/") => {}
            Damage::OtherDevice => {
                fs::write(&path, text.replace("gpu-0", "gpu-1")).expect("writes");
            }
        }
    }

    async fn restart(&mut self) {
        self.claims = None;
        self.claims = Some(self.node.start().await);
    }

    /// The kubelet unprepares everything that it knows and objects of the rest are gone: nothing stays.
    async fn end(&mut self) {
        self.node.set_away(false);
        for claim in &self.refs {
            self.claims().unprepare(claim).await.expect("unprepares");
        }
        for holding in self.claims().holdings() {
            self.claims().unprepare(&holding.claim).await.expect("unprepares");
        }
        assert_eq!(self.node.files(), [""; 0]);
        for gpu in 0..GPUS {
            let claim = self.node.allocate("last", &[&format!("gpu-{gpu}")]);
            self.claims().prepare(&claim).await.expect("every GPU is free");
        }
    }
}

fn allocate(node: &Node, index: usize) -> ClaimRef {
    node.allocate(&format!("claim-{index}"), &[&format!("gpu-{}", index % GPUS)])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_gpu_is_given_twice_and_nothing_is_left(steps in proptest::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("builds").block_on(async {
            let mut model = Model::new().await;
            for step in steps {
                model.apply(step).await;
            }
            model.end().await;
        });
    }
}
