//! Random sequences of operations on a GPU with instances, shares and whole allocations. The GPU is never
//! overallocated, and nothing is left at the end.

use std::collections::BTreeMap;

use octavo_node::ClaimRef;
use proptest::prelude::*;

use super::fixtures::Node;
use crate::claims::Claims;

/// Requests of the claims, all on one GPU except the last.
#[derive(Clone, Copy, Debug)]
enum EnforcementOptions {
    Whole,
    /// Gibibytes and percent.
    Share(u64, u64),
    /// Name, first slice, number of slices.
    Mig(&'static str, u32, u32),
}

const WISHES: [EnforcementOptions; 9] = [
    EnforcementOptions::Whole,
    EnforcementOptions::Share(20, 50),
    EnforcementOptions::Share(30, 0),
    EnforcementOptions::Share(50, 25),
    EnforcementOptions::Share(10, 60),
    EnforcementOptions::Mig("gpu-0-mig-3g40gb-9-0", 0, 4),
    EnforcementOptions::Mig("gpu-0-mig-1g10gb-19-3", 3, 1),
    EnforcementOptions::Mig("gpu-0-mig-1g10gb-19-5", 5, 1),
    EnforcementOptions::Mig("gpu-0-mig-3g40gb-9-4", 4, 4),
];

#[derive(Clone, Copy, Debug)]
enum Step {
    Prepare(usize),
    Unprepare(usize),
    Delete(usize),
    Sweep,
    Restart,
    Reboot,
    /// Processes use the instances, or end.
    Busy(bool),
    /// The next call of this kind fails.
    Fail(&'static str),
    /// An instance is destroyed by hand.
    DestroyByHand(u32),
    DriverAway(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let claim = 0..WISHES.len();
    let call = prop_oneof![Just("instances"), Just("mode"), Just("create"), Just("destroy")];
    prop_oneof![
        10 => claim.clone().prop_map(Step::Prepare),
        6 => claim.clone().prop_map(Step::Unprepare),
        1 => claim.prop_map(Step::Delete),
        1 => Just(Step::Sweep),
        3 => Just(Step::Restart),
        1 => Just(Step::Reboot),
        2 => any::<bool>().prop_map(Step::Busy),
        3 => call.prop_map(Step::Fail),
        1 => (0..8_u32).prop_map(Step::DestroyByHand),
        1 => any::<bool>().prop_map(Step::DriverAway),
    ]
}

/// The expected state.
struct Model {
    node: Node,
    claims: Option<Claims>,
    refs: Vec<ClaimRef>,
    /// Claims whose containers may run, with their devices.
    running: BTreeMap<usize, EnforcementOptions>,
}

impl Model {
    async fn new() -> Self {
        let node = Node::new();
        let refs = (0..WISHES.len()).map(|index| allocate(&node, index)).collect();
        let claims = Some(node.start_mig().await);
        Self { node, claims, refs, running: BTreeMap::new() }
    }

    fn claims(&self) -> &Claims {
        self.claims.as_ref().expect("is started")
    }

    async fn apply(&mut self, step: Step) {
        match step {
            Step::Prepare(index) => {
                if self.claims().prepare(&self.refs[index]).await.is_ok() {
                    self.running.insert(index, WISHES[index]);
                    self.check(index);
                }
            }
            Step::Unprepare(index) => {
                // The kubelet unprepares when the containers have ended; a refused one is tried again.
                self.running.remove(&index);
                let _ = self.claims().unprepare(&self.refs[index]).await;
                assert!(!self.node.path(&Node::cdi(&self.refs[index])).exists());
            }
            Step::Delete(index) => {
                self.node.delete(&self.refs[index]);
                self.running.remove(&index);
                self.refs[index] = allocate(&self.node, index);
            }
            Step::Sweep => {
                self.claims().sweep().await;
                super::sweep_later(self.claims()).await;
            }
            Step::Restart => self.restart().await,
            Step::Reboot => {
                self.claims = None;
                self.node.driver.with("GPU-0", |card| {
                    (card.is_on, card.instances) = (false, Vec::new());
                });
                self.node.reboot();
                self.running.clear();
                self.restart().await;
            }
            Step::Busy(is_busy) => self.node.driver.with("GPU-0", |card| {
                let starts = card.instances.iter().map(|instance| instance.placement.start);
                card.busy = if is_busy { starts.collect() } else { [].into() };
            }),
            Step::Fail(call) => {
                let error = octavo_gpu::DriverError::InUse { call: "nvml" };
                self.node.driver.fail(call, "GPU-0", error);
            }
            Step::DestroyByHand(start) => self.node.driver.destroy_by_hand("GPU-0", start),
            Step::DriverAway(true) => self.claims().set_driver(None).await,
            Step::DriverAway(false) => self.node.give_driver(self.claims()).await,
        }
    }

    /// No two claims' containers come into one instance.
    fn check_specs(&self) {
        let mut seen = BTreeMap::new();
        for file in self.node.files().into_iter().filter(|file| file.starts_with("cdi/")) {
            let spec = std::fs::read_to_string(self.node.path(&file)).expect("reads");
            for node in spec.split('"').filter(|text| text.starts_with("/dev/nvidia-caps/")) {
                let other = seen.insert(node.to_owned(), file.clone());
                assert!(other.as_ref().is_none_or(|other| *other == file), "{node}: {other:?}");
            }
        }
    }

    /// The prepared claim's devices exist, and all running claims fit onto the GPU.
    fn check(&self, index: usize) {
        let running: Vec<_> = self.running.values().copied().collect();
        if let EnforcementOptions::Mig(name, start, size) = WISHES[index] {
            assert!(self.node.driver.slices("GPU-0").contains(&(start, size)), "{name}");
        } else {
            assert!(!self.node.driver.is_on("GPU-0"), "a GPU in MIG mode was given without MIG");
        }
        let (mut memory, mut time, mut slices) = (0, 0, Vec::new());
        for options in &running {
            match options {
                EnforcementOptions::Whole => assert_eq!(running.len(), 1, "{running:?}"),
                EnforcementOptions::Share(gibibytes, percent) => {
                    (memory, time) = (memory + gibibytes, time + percent);
                }
                EnforcementOptions::Mig(_, start, size) => slices.extend(*start..start + size),
            }
        }
        assert!(memory <= 80 && time <= 100, "{running:?}");
        assert!(slices.is_empty() || memory == 0, "{running:?}");
        slices.sort_unstable();
        assert!(slices.windows(2).all(|pair| pair[0] != pair[1]), "{running:?}");
        assert!(self.node.path(&Node::cdi(&self.refs[index])).exists());
    }

    async fn restart(&mut self) {
        self.claims = None;
        self.claims = Some(self.node.start_mig().await);
    }

    /// The driver is well, and the kubelet unprepares everything: nothing stays.
    async fn end(&mut self) {
        self.node.driver.state().failures.clear();
        self.node.driver.with("GPU-0", |card| card.busy.clear());
        self.node.give_driver(self.claims()).await;
        for claim in &self.refs {
            self.claims().unprepare(claim).await.expect("unprepares");
        }
        for holding in self.claims().holdings() {
            self.claims().unprepare(&holding.claim).await.expect("unprepares");
        }
        assert_eq!(self.node.files(), [""; 0]);
        // An instance created while its GPU did not answer is found by the next start at the latest.
        self.restart().await;
        assert_eq!(self.node.driver.slices("GPU-0"), []);
        for device in ["gpu-0-mig-7g80gb-0-0", "gpu-0"] {
            let claim = self.node.allocate("last", &[device]);
            self.claims().prepare(&claim).await.expect("the GPU is free");
            self.claims().unprepare(&claim).await.expect("unprepares");
        }
    }
}

fn allocate(node: &Node, index: usize) -> ClaimRef {
    let name = format!("claim-{index}");
    match WISHES[index] {
        EnforcementOptions::Whole => node.allocate(&name, &["gpu-0"]),
        EnforcementOptions::Share(memory, percent) => {
            let (memory, percent) = (format!("{memory}Gi"), percent.to_string());
            node.allocate_shares(&name, &[("gpu-0", &memory, &percent)])
        }
        EnforcementOptions::Mig(device, _, _) => node.allocate(&name, &[device]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_gpu_is_given_beyond_its_size_and_nothing_is_left(
        steps in proptest::collection::vec(step(), 1..50),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("builds").block_on(async {
            let mut model = Model::new().await;
            for step in steps {
                model.apply(step).await;
                model.check_specs();
            }
            model.end().await;
        });
    }
}
