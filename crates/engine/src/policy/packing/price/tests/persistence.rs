//! A policy that is saved and restored continues unchanged.

use super::*;
use crate::World;
use crate::gpu::{MigProfile, ModelId, ModelSet};
use crate::node::{FeatureMask, NodeId};
use crate::placement::Placement;
use crate::snapshot::{PackingRecord, Snapshot};
use crate::topology::Topology;
use crate::workload::{Coupling, Member, Profile, Workload, Workloads};

/// Nodes of two models, one of which can be partitioned.
fn world() -> World {
    let profile = |name: &str, milli, size, starts: &[u8]| {
        let (name, starts, memory_mib) =
            (name.to_owned(), starts.to_vec(), 10_000 * u32::from(size));
        MigProfile { name, milli, memory_mib, size, starts, has_media: false }
    };
    let mig = vec![profile("1g", 142, 1, &[0, 1, 2, 3, 4, 5, 6]), profile("3g", 428, 4, &[0, 4])];
    let model = |name: &str, memory_mib, mig| {
        let name = name.to_owned();
        GpuModel { name, memory_mib, idle_watts: 0, full_watts: 0, mig }
    };
    let node = |number: u32| {
        let gpus = if number.is_multiple_of(3) { 8 } else { 2 };
        let cpu_milli = 12_000 * i64::from(gpus);
        let memory_mib = 4 * cpu_milli + 100 * i64::from(number % 5);
        let capacity = Resources { cpu_milli, memory_mib, pods: 100 };
        let model = ModelId(u8::from(number.is_multiple_of(4)));
        let class = NodeClass { capacity, gpus, model, ..NodeClass::default() };
        NodeSpec { name: format!("n{number:02}").into(), class, labels: [].into() }
    };
    let models = vec![model("A", 80_000, mig), model("B", 0, Vec::new())];
    let cluster = Cluster::new(models, (0..24).map(node).collect()).unwrap();
    let topology = Topology::from_labels(&[], &vec![[].into(); 24]).unwrap();
    World { cluster, topology, workloads: Workloads::default() }
}

/// Pods of all types, some of which fit nowhere.
fn shapes() -> Vec<Arc<Shape>> {
    let mig = |count, profile: &str| GpuDemand::Mig { count, profile: profile.into() };
    let of = |cpu, gpus| Shape::new(Resources::of_pod(cpu, 2 * cpu), gpus);
    let share = |milli, memory_mib| GpuDemand::Share { count: 1, milli, memory_mib };
    let more = [
        of(1_000, mig(1, "1g")),
        of(2_000, mig(2, "3g")),
        of(2_000, mig(1, "5g")),
        of(1_000, share(0, 20_000)),
        of(1_000, share(300, 30_000)),
        Shape { models: ModelSet(2), ..of(5_000, share(330, 0)) },
        Shape { models: ModelSet(0), ..of(5_000, share(330, 0)) },
        Shape {
            models: ModelSet(!1),
            tolerates: FeatureMask(3),
            ..of(6_000, GpuDemand::of(2, 1000))
        },
    ];
    let mut shapes = arrivals(40);
    shapes.extend(more.map(Arc::new));
    shapes
}

struct Run {
    world: World,
    policy: PricePolicy,
    /// Pods by number, in arrival order.
    pods: std::collections::VecDeque<u32>,
    arrivals: u32,
}

impl Run {
    /// The next pod, and other events in between.
    fn step(&mut self, shapes: &[Arc<Shape>], capacity: usize) -> Option<crate::Choice> {
        let number = self.arrivals;
        self.arrivals += 1;
        let mixed = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) >> 16;
        let shape = &shapes[mixed as usize % shapes.len()];
        if number.is_multiple_of(97) {
            self.turn(number);
        }
        self.policy.arrived(shape);
        let choice = self.policy.choose(&self.world.cluster, shape);
        if let Some(choice) = &choice {
            self.place(number, shape, &choice.placement);
        }
        while self.pods.len() > capacity {
            self.leave();
        }
        choice
    }

    /// A node changes its class; sometimes it becomes larger.
    fn turn(&mut self, number: u32) {
        let node = NodeId(number / 97 % 24);
        let mut class = self.world.cluster.class(node).clone();
        class.taints = FeatureMask(u64::from(number % 2));
        class.hazard_ppm = number % 1000;
        class.capacity.cpu_milli += if number.is_multiple_of(5) { 9_000 } else { 0 };
        self.world.cluster.set_class(node, &class).unwrap();
    }

    fn place(&mut self, number: u32, shape: &Arc<Shape>, placement: &Placement) {
        self.world.cluster.place(&shape.resources, placement).unwrap();
        self.policy.placed(shape, placement);
        let profile = Profile::new(format!("p{number:05}"));
        let member = Member { shape: Arc::clone(shape), placement: placement.clone(), limit: None };
        let coupling = Coupling::default();
        let members = vec![Some(member)];
        let workload = Workload { profile, min_members: 1, coupling, members };
        self.world.workloads.add(workload).unwrap();
        self.pods.push_back(number);
    }

    fn leave(&mut self) {
        let Some(number) = self.pods.pop_front() else { return };
        let id = self.world.workloads.named(&format!("p{number:05}")).unwrap();
        let workload = self.world.workloads.remove(id).unwrap();
        let member = workload.members[0].as_ref().unwrap();
        self.world.cluster.release(&member.shape.resources, &member.placement).unwrap();
        self.policy.released(&member.shape, &member.placement);
    }

    /// The run after a restart from its saved state.
    fn again(&self) -> Self {
        let packing = self.policy.saved(&self.world.cluster);
        let document = Snapshot { packing: Some(packing), ..Snapshot::of(&self.world, &[]) };
        let text = serde_json::to_string(&document).unwrap();
        assert!(!text.contains('.'), "whole numbers only");
        let read: Snapshot = serde_json::from_str(&text).unwrap();
        assert_eq!(read, document);
        let world = read.world().unwrap();
        let policy = PricePolicy::restored(read.packing.as_ref().unwrap(), &world.cluster).unwrap();
        assert_eq!(policy.saved(&world.cluster), *read.packing.as_ref().unwrap());
        Self { world, policy, pods: self.pods.clone(), arrivals: self.arrivals }
    }
}

fn check(policy: PricePolicy, capacity: usize) {
    let shapes = shapes();
    let mut run = Run { world: world(), policy, pods: [].into(), arrivals: 0 };
    let mut others: Vec<Run> = Vec::new();
    let mut placed = 0;
    for number in 0..1_200 {
        if [0, 49, 333, 512, 1_023].contains(&number) {
            others.push(run.again());
        }
        let choice = run.step(&shapes, capacity);
        placed += u32::from(choice.is_some());
        for other in &mut others {
            assert_eq!(other.step(&shapes, capacity), choice, "arrival {number}");
        }
    }
    assert!(placed > 100, "{placed}");
    for other in &others {
        assert_eq!(other.policy.saved(&other.world.cluster), run.policy.saved(&run.world.cluster));
    }
}

#[test]
fn policy_saved_while_learning_continues_unchanged() {
    check(PricePolicy::learned(), 60);
}

#[test]
fn a_full_cluster_is_no_exception() {
    check(PricePolicy::learned(), usize::MAX);
}

#[test]
fn a_policy_that_knew_all_is_saved_too() {
    let counts = shapes().into_iter().zip([9, 40, 4, 3, 2, 30, 50].into_iter().cycle());
    check(PricePolicy::known(DemandStats::of(counts)), 60);
}

#[test]
fn what_is_wrong_with_what_was_learned_is_named() {
    let mut run =
        Run { world: world(), policy: PricePolicy::learned(), pods: [].into(), arrivals: 0 };
    (0..100).for_each(|_| drop(run.step(&shapes(), 60)));
    let good = run.policy.saved(&run.world.cluster);
    let error = |change: &dyn Fn(&mut PackingRecord)| {
        let mut record = good.clone();
        change(&mut record);
        PricePolicy::restored(&record, &run.world.cluster).unwrap_err().to_string()
    };
    for (message, wanted) in [
        (error(&|record| record.version = 9), "packing: version is 9; it must be 2"),
        (error(&|record| record.counts[0].weight = -1), "weight is -1; it must be 0 to"),
        (error(&|record| record.counts[0].then = i64::MAX), "it must be 0 to"),
        (
            error(&|record| record.counts[0].shape.models = vec!["C".to_owned()]),
            "no model named \"C\"; there are: A, B",
        ),
        (
            error(&|record| record.inputs.as_mut().unwrap().gpus = [("C".to_owned(), 1)].into()),
            "no model named \"C\"",
        ),
        (
            error(&|record| record.inputs.as_mut().unwrap().sizes[0].cpu_milli = -5),
            "cpuMilli is -5",
        ),
    ] {
        assert!(message.contains(wanted), "{message}");
    }
}

#[test]
fn an_older_record_is_refused_for_its_version() {
    let older = r#"{
        "version": 1,
        "learning": { "arrivals": 900, "next": 1000, "step": 200, "sinceStep": 100 },
        "counts": [{
            "shape": {
                "resources": { "cpuMilli": 1000, "memoryMib": 0, "pods": 1 },
                "gpus": { "whole": { "count": 1 } },
                "tolerates": 18446744073709551615
            },
            "weight": 65536,
            "then": 65536
        }],
        "turnover": { "came": 600, "left": 500, "since": 88, "percent": 75 },
        "basis": { "gpus": { "A": 8 }, "sizes": [{ "gpus": 8, "cpuMilli": 96000, "memoryMib": 1 }] }
    }"#;
    let record: PackingRecord = serde_json::from_str(older).unwrap();
    let error = PricePolicy::restored(&record, &world().cluster).unwrap_err();
    assert_eq!(
        error.to_string(),
        "packing: version is 1; it must be 2; start without the learned state"
    );
}
