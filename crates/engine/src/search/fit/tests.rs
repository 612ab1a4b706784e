use std::sync::Arc;

use octavo_health::risk::RiskClass;
use proptest::prelude::*;

use super::*;
use crate::gpu::{ModelId, Slices, WHOLE};
use crate::node::{NodeId, NodeSpec};
use crate::placement::{GpuPart, Placement};
use crate::resources::Resources;

fn profile(name: &str, milli: u16, size: u8, starts: &[u8]) -> MigProfile {
    let (memory_mib, starts) = (u32::from(size) * 10_000, starts.to_vec());
    MigProfile { name: name.to_owned(), milli, memory_mib, size, starts, has_media: false }
}

/// A node of `gpus` H100-like GPUs.
fn cluster(gpus: u16) -> Cluster {
    let model = GpuModel {
        name: "H100".to_owned(),
        memory_mib: 80_000,
        idle_watts: 0,
        full_watts: 0,
        mig: vec![
            profile("1g.10gb", 142, 1, &[0, 1, 2, 3, 4, 5, 6]),
            profile("3g.40gb", 428, 4, &[0, 4]),
            profile("7g.80gb", 1000, 8, &[0]),
        ],
    };
    let capacity = Resources { cpu_milli: 64_000, memory_mib: 512_000, pods: 110 };
    let class = NodeClass { capacity, gpus, ..NodeClass::default() };
    let node = NodeSpec { name: "n0".into(), class, labels: [].into() };
    Cluster::new(vec![model], vec![node]).unwrap()
}

fn count(cluster: &Cluster, gpus: GpuDemand) -> u32 {
    let shape = Shape::new(Resources::of_pod(1000, 0), gpus);
    let state = cluster.states().state(cluster.state(NodeId(0))).unwrap();
    assert_eq!(fits(cluster, state, &shape), times(cluster, state, &shape) > 0);
    times(cluster, state, &shape)
}

fn give(cluster: &mut Cluster, gpu: u16, milli: u16, memory_mib: u32, slices: Slices) {
    let part = GpuPart { gpu, milli, slices, memory_mib };
    let placement = Placement { node: NodeId(0), gpus: [part].as_slice().into() };
    cluster.place(&Resources::of_pod(1000, 0), &placement).unwrap();
}

#[test]
fn whole_gpus_shares_and_mig_exclude_one_another() {
    let mut cluster = cluster(3);
    give(&mut cluster, 0, 500, 40_000, Slices::NONE);
    give(&mut cluster, 1, 142, 10_000, Slices::range(0, 1));
    assert_eq!(count(&cluster, GpuDemand::Whole { count: 1 }), 1);
    assert_eq!(count(&cluster, GpuDemand::Whole { count: 2 }), 0);
    let share = |count, memory_mib| GpuDemand::Share { count, milli: 250, memory_mib };
    assert_eq!(count(&cluster, share(1, 0)), 6);
    assert_eq!(count(&cluster, share(1, 30_000)), 1 + 2);
    assert_eq!(count(&cluster, share(2, 0)), 2);
    let mig = |profile: &str| GpuDemand::Mig { count: 1, profile: profile.into() };
    assert_eq!(count(&cluster, mig("1g.10gb")), 6 + 7);
    assert_eq!(count(&cluster, mig("3g.40gb")), 1 + 2);
    assert_eq!(count(&cluster, mig("7g.80gb")), 1);
    assert_eq!(count(&cluster, mig("9g.90gb")), 0);
}

#[test]
fn a_closed_gpu_and_a_closed_node_take_nothing_new() {
    let mut cluster = cluster(2);
    cluster.set_gpu_open(NodeId(0), 0, false).unwrap();
    assert_eq!(count(&cluster, GpuDemand::Whole { count: 1 }), 1);
    cluster.set_open(NodeId(0), false).unwrap();
    assert_eq!(count(&cluster, GpuDemand::None), 0);
}

#[test]
fn marks_and_models_decide_where_a_pod_may_be() {
    let shape = Shape::new(Resources::default(), GpuDemand::Whole { count: 1 });
    let class = NodeClass { gpus: 1, model: ModelId(3), ..NodeClass::default() };
    assert!(is_allowed(&class, &shape));
    let of = |model| Shape { models: crate::ModelSet(0).with(ModelId(model)), ..shape.clone() };
    assert!(is_allowed(&class, &of(3)) && !is_allowed(&class, &of(2)));
    let tainted = NodeClass { taints: crate::node::FeatureMask(2), ..class.clone() };
    assert!(!is_allowed(&tainted, &shape));
    assert!(is_allowed(
        &tainted,
        &Shape { tolerates: crate::node::FeatureMask(3), ..shape.clone() }
    ));
    assert!(!is_allowed(&class, &Shape { needs: crate::node::FeatureMask(1), ..shape }));
}

proptest! {
    /// `times` pods can be placed one after another, and not one more, if shapes with several GPUs
    /// take the freest ones.
    #[test]
    fn times_equals_the_number_that_can_be_placed(
        taken in prop::collection::vec(0_u16..=10, 1..6),
        size in 1_u16..4,
        milli in 1_u16..=10,
    ) {
        let gpus = u16::try_from(taken.len()).unwrap();
        let mut cluster = cluster(gpus);
        for (gpu, tenths) in (0..).zip(&taken) {
            give(&mut cluster, gpu, tenths * 100, 0, Slices::NONE);
        }
        let demand = GpuDemand::of(size, milli * 100);
        let times = count(&cluster, demand.clone());
        for left in (0..times).rev() {
            let mut order: Vec<u16> = (0..gpus).collect();
            order.sort_by_key(|gpu| std::cmp::Reverse(cluster.gpus(NodeId(0))[usize::from(*gpu)]));
            let mut chosen: Vec<_> = order.into_iter().take(size.into()).collect();
            chosen.sort_unstable();
            let part = |gpu| GpuPart { gpu, milli: milli * 100, slices: Slices::NONE, memory_mib: 0 };
            let placement = Placement {
                node: NodeId(0),
                gpus: chosen.into_iter().map(part).collect(),
            };
            cluster.place(&Resources::of_pod(0, 0), &placement).unwrap();
            prop_assert_eq!(count(&cluster, demand.clone()), left);
        }
        let shape = Arc::new(Shape::new(Resources::of_pod(1000, 0), demand));
        let state = cluster.states().state(cluster.state(NodeId(0))).unwrap();
        prop_assert!(!fits(&cluster, state, &shape));
    }

    /// Skipped divisions do not change results.
    #[test]
    fn shares_of_a_gpu_are_as_many_as_can_be_taken_one_after_another(
        (milli, memory) in (0_u16..=4, 0_u32..=4),
        (left, memory_left, best_effort) in (0_u16..=8, 0_u32..=9, 0_u16..2),
        is_closed in prop::bool::weighted(0.1),
    ) {
        let (milli, memory_mib) = (milli * 250, memory * 1000);
        let mut gpu = GpuFree {
            milli: left * 125,
            slices: Slices::NONE,
            is_closed,
            best_effort,
            memory_mib: memory_left * 500,
            risk: RiskClass::Usual,
        };
        let times = shares_in(&gpu, milli, memory_mib);
        if milli == 0 && memory_mib == 0 {
            let has_room = share_fits(&gpu, milli, memory_mib);
            prop_assert_eq!(times, if has_room { u32::MAX } else { 0 });
        } else {
            let mut taken = 0;
            while share_fits(&gpu, milli, memory_mib) {
                gpu.milli -= milli;
                gpu.memory_mib -= memory_mib;
                taken += 1;
            }
            prop_assert_eq!(times, taken);
        }
    }

    #[test]
    fn plain_resources_fit_as_often_as_the_scarcest_of_them(
        wanted in prop::array::uniform3(-1_i64..5),
        free in prop::array::uniform3(-3_i64..40),
    ) {
        let of = |[cpu_milli, memory_mib, pods]: [i64; 3]| Resources { cpu_milli, memory_mib, pods };
        let each = wanted.iter().zip(free).filter(|(wanted, _)| **wanted > 0);
        let least = each.map(|(wanted, free)| u32::try_from(free / wanted).unwrap_or_default()).min();
        prop_assert_eq!(of(wanted).times_in(&of(free)), least.unwrap_or(u32::MAX));
        let much = of(free.map(|free| i64::MAX - free.abs()));
        prop_assert_eq!(of(wanted).times_in(&much), u32::MAX);
    }

    #[test]
    fn a_share_of_a_whole_gpu_is_the_whole_gpu(count in 1_u16..9) {
        prop_assert_eq!(GpuDemand::of(count, WHOLE), GpuDemand::Whole { count });
    }
}
