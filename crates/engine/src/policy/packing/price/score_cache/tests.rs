use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::cluster::Cluster;
use crate::fit;
use crate::gpu::{GpuModel, MigProfile, ModelId, ModelSet};
use crate::node::{FeatureMask, Links, NodeClass, NodeId, NodeSpec};
use crate::packing::Packing;
use crate::packing::price::{DemandStats, PricePolicy};
use crate::resources::Resources;

/// Nodes of several kinds: two models, one of them with memory and MIG; links, features, no GPUs.
fn cluster() -> Cluster {
    let profile = |name: &str, milli, memory_mib, size, starts: &[u8]| {
        let (name, starts) = (name.to_owned(), starts.to_vec());
        MigProfile { name, milli, memory_mib, size, starts, has_media: false }
    };
    let mig = vec![
        profile("1g", 142, 10_000, 1, &[0, 1, 2, 3, 4, 5, 6]),
        profile("3g", 428, 40_000, 4, &[0, 4]),
    ];
    let model = |name: &str, memory_mib, mig| {
        let name = name.to_owned();
        GpuModel { name, memory_mib, idle_watts: 0, full_watts: 0, mig }
    };
    let class = |cpu, gpus, model| NodeClass {
        capacity: Resources { cpu_milli: cpu, memory_mib: 4 * cpu, pods: 20 },
        gpus,
        model: ModelId(model),
        ..NodeClass::default()
    };
    let linked = NodeClass {
        links: Links(vec![vec![0, 0, 1, 1]]),
        taints: FeatureMask(1),
        features: FeatureMask(2),
        ..class(40_000, 4, 1)
    };
    let classes = [
        class(64_000, 8, 0),
        class(96_000, 8, 1),
        linked,
        class(32_000, 2, 1),
        class(16_000, 0, 0),
    ];
    let nodes = (0..15).map(|number| NodeSpec {
        name: format!("n{number:02}").into(),
        class: classes[number % classes.len()].clone(),
        labels: [].into(),
    });
    let models = vec![model("A", 80_000, mig), model("B", 0, Vec::new())];
    Cluster::new(models, nodes.collect()).unwrap()
}

fn shapes() -> Vec<Arc<Shape>> {
    let share = |count, milli, memory_mib| GpuDemand::Share { count, milli, memory_mib };
    let whole = |count| GpuDemand::Whole { count };
    let mig = |count, profile: &str| GpuDemand::Mig { count, profile: profile.into() };
    let shape = |cpu, gpus| Shape::new(Resources::of_pod(cpu, 3 * cpu), gpus);
    let only_b = |shape| Shape { models: ModelSet(2), ..shape };
    let marked = |shape| Shape { needs: FeatureMask(2), tolerates: FeatureMask(3), ..shape };
    [
        shape(3_000, share(1, 810, 0)),
        shape(4_000, share(1, 500, 0)),
        shape(2_000, share(1, 250, 30_000)),
        shape(500, share(1, 0, 20_000)),
        shape(2_000, share(2, 400, 0)),
        only_b(shape(5_000, share(1, 330, 0))),
        shape(8_000, whole(1)),
        marked(shape(8_000, whole(2))),
        shape(30_000, whole(4)),
        shape(60_000, whole(8)),
        shape(1_000, mig(1, "1g")),
        shape(2_000, mig(2, "3g")),
        shape(6_000, GpuDemand::None),
    ]
    .map(Arc::new)
    .into()
}

/// The choice by a full scan with everything recomputed.
fn by_looking_at_all(
    score_cache: &ScoreCache,
    cluster: &Cluster,
    shape: &Shape,
) -> Option<(RankedEntry, i64)> {
    let mut price_model = score_cache.price_model.clone();
    let tight = CapacityTotals::of(cluster, &mut price_model).tight(&price_model);
    let mut places = Vec::new();
    for node in cluster.nodes() {
        let id = cluster.state(node);
        let state = cluster.states().state(id).unwrap();
        let class_model = price_model.class_model(cluster, cluster.class(node));
        let appraisal = Appraisal::of(cluster, &price_model, &class_model, state);
        for one in
            candidates::candidates(cluster, &price_model, &class_model, state, &appraisal, shape)
        {
            let entry =
                super::super::index::Entry { gain: one.gain, node, state: id, level: one.level };
            // The policy asks for a place at any risk.
            let losses = (one.losers & tight).count_ones();
            places.push(RankedEntry { risk: 0, losses, entry });
        }
    }
    let best = *places.iter().max()?;
    let others = places.iter().filter(|place| place.entry.state != best.entry.state);
    Some((best, others.map(RankedEntry::score).max().unwrap_or(i64::MIN)))
}

/// The next event: a pod of a shape arrives, one leaves, a node or a GPU opens or closes.
#[derive(Clone, Copy, Debug)]
enum Step {
    Come(usize),
    RepairLimits(usize),
    TurnNode(u32),
    TurnGpu(u32),
}

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0_usize..13).prop_map(Step::Come),
        4 => (0_usize..1000).prop_map(Step::RepairLimits),
        1 => (0_u32..15).prop_map(Step::TurnNode),
        1 => (0_u32..15).prop_map(Step::TurnGpu),
    ];
    proptest::collection::vec(step, 1..most)
}

fn run(mut policy: PricePolicy, steps: &[Step]) {
    let (mut cluster, shapes) = (cluster(), shapes());
    let mut placed: Vec<(Arc<Shape>, Placement)> = Vec::new();
    let mut closed = BTreeSet::new();
    for step in steps {
        match *step {
            Step::Come(number) => {
                let shape = &shapes[number];
                policy.arrived(shape);
                let choice = policy.choose(&cluster, shape);
                let score_cache = policy.score_cache.as_ref().unwrap();
                let expected = by_looking_at_all(score_cache, &cluster, shape);
                let fits = |node: NodeId| {
                    let state = cluster.states().state(cluster.state(node)).unwrap();
                    fit::fits(&cluster, state, shape)
                };
                assert_eq!(choice.is_some(), cluster.nodes().any(fits), "{shape:?}");
                let Some(choice) = choice else { continue };
                let (best, rival) = expected.unwrap();
                assert_eq!(placement(&cluster, shape, &best), Some(choice.placement.clone()));
                assert_eq!(choice.score, best.score());
                assert_eq!(choice.runner_up.map_or(i64::MIN, |rival| rival.score), rival);
                cluster.place(&shape.resources, &choice.placement).unwrap();
                policy.placed(shape, &choice.placement);
                placed.push((Arc::clone(shape), choice.placement));
            }
            Step::RepairLimits(number) if !placed.is_empty() => {
                let (shape, placement) = placed.swap_remove(number % placed.len());
                cluster.release(&shape.resources, &placement).unwrap();
                policy.released(&shape, &placement);
            }
            Step::TurnNode(node) => {
                cluster.set_open(NodeId(node), !cluster.is_open(NodeId(node))).unwrap();
            }
            Step::TurnGpu(node) if !cluster.gpus(NodeId(node)).is_empty() => {
                let is_open = closed.remove(&node) || !closed.insert(node);
                cluster.set_gpu_open(NodeId(node), 1, is_open).unwrap();
            }
            Step::RepairLimits(_) | Step::TurnGpu(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cached_scores_equal_a_full_scan_with_known_popularity(
        steps in steps(250),
    ) {
        let counts = shapes().into_iter().zip([900, 40, 40, 3, 2, 30, 500, 8, 4, 2, 20, 10, 90]);
        run(PricePolicy::known(DemandStats::of(counts)), &steps);
    }

    #[test]
    fn what_is_kept_says_the_same_as_looking_at_all_nodes_while_learning(steps in steps(400)) {
        run(PricePolicy::learned(), &steps);
    }
}
