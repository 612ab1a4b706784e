use proptest::prelude::*;

use super::ranked::{Candidate, Rule};
use super::*;
use octavo_engine::cluster::Cluster;
use octavo_engine::fit;
use octavo_engine::gpu::{GpuModel, MigProfile};
use octavo_engine::node::{Links, NodeClass, NodeId, NodeSpec};
use octavo_engine::packing::Choice;
use octavo_engine::placement::Placement;
use octavo_engine::resources::Resources;
use octavo_engine::shape::{GpuDemand, Shape};

mod fixtures;
mod random;

use fixtures::{cluster, model, pod, typical};

fn setup() -> Setup {
    Setup { typical: Arc::new(typical()), ..Setup::default() }
}

fn choose(name: &str, cluster: &Cluster, shape: &Shape) -> Option<Choice> {
    policy(name, &setup()).unwrap().choose(cluster, &Arc::new(shape.clone()))
}

/// The score of the only node, and the index of the first GPU.
fn score(name: &str, node: (i64, &[u16]), shape: &Shape) -> (i64, Option<u16>) {
    let chosen = choose(name, &cluster(&[node]), shape).unwrap();
    (chosen.score, chosen.placement.gpus.first().map(|part| part.gpu))
}

#[test]
fn policies_are_known_by_their_names_only() {
    for name in NAMES {
        assert_eq!(policy(name, &Setup::default()).unwrap().name(), name);
    }
    assert!(policy("bestfit", &Setup::default()).is_none());
}

/// Scores that a separate program computed from the authors' code and list.
#[test]
fn fgd_scores_as_the_authors_do() {
    let used = [540, 190, 0, 1000, 1000, 0, 0, 0];
    let share = pod(6000, 1, 460);
    let score = |node, shape: &Shape| score("fgd", node, shape);
    assert_eq!(score((96_000, &[1000; 8]), &share), (42, Some(0)));
    assert_eq!(score((104_000, &[1000; 2]), &share), (42, Some(0)));
    assert_eq!(score((50_000, &used), &share), (58, Some(0)));
    assert_eq!(score((50_000, &[0, 190, 0, 1000, 1000, 0, 0, 0]), &share).1, Some(3));
    assert_eq!(score((96_000, &[1000; 8]), &pod(12_000, 1, 1000)), (53, Some(0)));
    assert_eq!(score((16_000, &[1000; 2]), &pod(12_000, 1, 1000)), (41, Some(0)));
    assert_eq!(score((4000, &[1000; 8]), &pod(4000, 0, 0)), (9, None));
}

#[test]
fn fgd_scores_fifty_without_loss_and_takes_the_lowest_equal_gpu() {
    // Too little CPU to affect any typical pod; the GPUs do not matter then.
    let nothing = score("fgd", (96_000, &[1000; 8]), &pod(1, 0, 0));
    assert_eq!(nothing, (50, None));
    // Ten thousandths of a sliver are less than a point, so the first sliver wins, not the
    // tightest. Ten of an idle GPU cost more.
    let sliver = |left| score("fgd", (96_000, left), &pod(1, 1, 10));
    assert_eq!(sliver(&[1000, 30, 20, 1000]), (50, Some(1)));
    assert_eq!(sliver(&[30, 20, 1000, 1000]), (50, Some(0)));
}

#[test]
fn best_fit_and_dot_product_score_as_the_authors_do() {
    let idle: (i64, &[u16]) = (96_000, &[1000; 8]);
    assert_eq!(score("best-fit", idle, &pod(6000, 1, 460)), (17, Some(0)));
    assert_eq!(score("dot-product", idle, &pod(6000, 1, 460)), (95, Some(0)));
    // The whole node's free GPUs count for a pod without GPUs too.
    assert_eq!(score("best-fit", (64_000, &[500, 500]), &pod(0, 0, 0)), (68, None));
    assert_eq!(score("dot-product", (64_000, &[500, 500]), &pod(0, 0, 0)), (100, None));
    // The tightest GPU of the tightest node.
    let nodes: [(i64, &[u16]); 3] =
        [(96_000, &[1000; 8]), (32_000, &[1000, 700, 500]), (64_000, &[1000; 2])];
    for name in ["best-fit", "dot-product"] {
        let chosen = choose(name, &cluster(&nodes), &pod(6000, 1, 460)).unwrap();
        assert_eq!((chosen.placement.node, chosen.placement.gpus[0].gpu), (NodeId(1), 2), "{name}");
        let rival = chosen.runner_up.unwrap();
        assert_eq!(rival.node, NodeId(2), "{name}");
        assert!(rival.score <= chosen.score);
    }
}

#[test]
fn packing_takes_used_gpus_then_used_nodes_then_small_ones() {
    let of = |left: &[u16], shape| score("packing", (96_000, left), &shape).0;
    let share = || pod(1000, 1, 460);
    assert_eq!(of(&[540, 190, 0, 1000, 1000, 0, 0, 0], share()), 95);
    assert_eq!(of(&[460, 540], share()), 96);
    assert_eq!(of(&[999, 1000], share()), 91);
    assert_eq!(of(&[400, 1000], share()), 49);
    assert_eq!(of(&[400, 1000, 1000], pod(1000, 2, 1000)), 48);
    assert_eq!(of(&[0, 1000, 1000, 1000, 1000, 1000], pod(1000, 4, 1000)), 46);
    assert_eq!([1, 2, 4, 8].map(|gpus| of(&[1000].repeat(gpus), share())), [32, 31, 29, 25]);
    assert_eq!(of(&[540, 1000], pod(1000, 0, 0)), 0);
    let gpu = score("packing", (96_000, &[1000, 540, 460]), &share()).1;
    assert_eq!(gpu, Some(2));
}

#[test]
fn clustering_puts_pods_of_a_kind_together() {
    let [share, single, double] = [pod(1, 1, 460), pod(1, 1, 1000), pod(1, 2, 1000)].map(Arc::new);
    let mut cluster = cluster(&[(96_000, &[1000; 8]), (96_000, &[1000; 8]), (96_000, &[1000; 2])]);
    let mut policy = policy("clustering", &setup()).unwrap();
    let mut place = |cluster: &mut Cluster, shape: &Arc<Shape>| {
        let chosen = policy.choose(cluster, shape).unwrap();
        cluster.place(&shape.resources, &chosen.placement).unwrap();
        policy.placed(shape, &chosen.placement);
        (chosen.placement.node.0, chosen.score)
    };
    // An idle small node, then one of the same kind, then an idle node before one of another kind.
    assert_eq!(place(&mut cluster, &share), (2, 43));
    assert_eq!(place(&mut cluster, &share), (2, 75 + 20));
    assert_eq!(place(&mut cluster, &single), (0, 25));
    assert_eq!(place(&mut cluster, &single), (0, 75 + 3));
    assert_eq!(place(&mut cluster, &double), (1, 25));
    // Its own kind among others, if no node has only its own kind.
    for _ in 0..6 {
        assert_eq!(place(&mut cluster, &single).0, 0);
    }
    assert_eq!(place(&mut cluster, &single), (2, 21));
    assert_eq!(place(&mut cluster, &Arc::new(pod(1, 1, 60))), (2, 50 + 24));
    assert_eq!(place(&mut cluster, &Arc::new(pod(1, 0, 0))), (0, 0));
}

#[test]
fn kind_that_left_a_node_is_not_counted_there() {
    let mut cluster = cluster(&[(96_000, &[1000; 8]), (96_000, &[1000; 8])]);
    let mut policy = policy("clustering", &setup()).unwrap();
    let [share, single] = [pod(1, 1, 460), pod(1, 1, 1000)].map(Arc::new);
    let first = policy.choose(&cluster, &share).unwrap();
    assert_eq!((first.placement.node, first.score), (NodeId(0), 25));
    cluster.place(&share.resources, &first.placement).unwrap();
    policy.placed(&share, &first.placement);
    policy.placed(&share, &first.placement);
    let second = policy.choose(&cluster, &share).unwrap();
    assert_eq!((second.placement.node, second.score), (NodeId(0), 76));
    // The free capacity stays the same here; only the recorded pods change.
    policy.released(&share, &first.placement);
    assert_eq!(policy.choose(&cluster, &single).unwrap().placement.node, NodeId(1));
    policy.released(&share, &first.placement);
    let third = policy.choose(&cluster, &single).unwrap();
    assert_eq!((third.placement.node, third.score), (NodeId(0), 26));
}

#[test]
fn equals_are_ordered_by_the_ranks_that_are_given() {
    let mut cluster = cluster(&[(1000, &[1000]), (1000, &[1000]), (1000, &[1000])]);
    let shape = Arc::new(pod(1000, 1, 1000));
    for name in NAMES.into_iter().filter(|name| *name != "random") {
        let mut policy = policy(name, &Setup { ties: vec![1, 2, 0], ..setup() }).unwrap();
        let chosen = policy.choose(&cluster, &shape).unwrap();
        assert_eq!(chosen.placement.node, NodeId(2), "{name}");
        assert_eq!(chosen.runner_up, None, "{name}: all nodes are in one state");
        cluster.set_open(NodeId(2), false).unwrap();
        assert_eq!(policy.choose(&cluster, &shape).unwrap().placement.node, NodeId(0), "{name}");
        cluster.set_open(NodeId(2), true).unwrap();
    }
}

/// Two classes of nodes, with and without links, and some MIG.
fn mixed() -> Cluster {
    let profile = |name: &str, milli, size, starts: &[u8]| {
        let (name, starts) = (name.to_owned(), starts.to_vec());
        MigProfile { name, milli, memory_mib: 0, size, starts, has_media: false }
    };
    let mig = vec![profile("1g", 142, 1, &[0, 1, 2, 3, 4, 5, 6]), profile("3g", 428, 4, &[0, 4])];
    let model = GpuModel { mig, ..model() };
    let node = |number: usize| {
        let gpus = [4, 2, 0][number % 3];
        let links = if number < 3 { Links(vec![vec![0, 0, 1, 1]]) } else { Links::default() };
        let capacity = Resources { cpu_milli: 64_000, memory_mib: 64_000, pods: 100 };
        let class = NodeClass { capacity, gpus, links, ..NodeClass::default() };
        NodeSpec { name: format!("n{number}").into(), class, labels: [].into() }
    };
    Cluster::new(vec![model], (0..9).map(node).collect()).unwrap()
}

/// A step of a run: a pod arrives, the oldest leaves, or a node opens or closes.
#[derive(Clone, Debug)]
enum Step {
    Come(Shape),
    RepairLimits,
    Turn(u32),
    Join,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let demand = prop_oneof![
        3 => (1_u16..=10).prop_map(|tenths| GpuDemand::of(1, tenths * 100)),
        1 => Just(GpuDemand::None),
        1 => (1_u16..4).prop_map(|count| GpuDemand::Whole { count }),
        1 => (2_u16..4).prop_map(|count| GpuDemand::of(count, 300)),
        1 => (1_u16..4, prop::bool::ANY).prop_map(|(count, is_small)| {
            GpuDemand::Mig { count, profile: if is_small { "1g".into() } else { "3g".into() } }
        }),
    ];
    let come = (demand, 0_i64..4, 0_i64..3).prop_map(|(demand, cores, memory)| {
        Step::Come(Shape::new(Resources::of_pod(cores * 5000, memory * 9000), demand))
    });
    let step = prop_oneof![
        8 => come,
        2 => Just(Step::RepairLimits),
        1 => (0_u32..9).prop_map(Step::Turn),
        1 => Just(Step::Join),
    ];
    prop::collection::vec(step, 1..60)
}

/// The best node and its score by a full scan; ties go to the lowest rank.
fn brute_force<R: Rule>(
    rule: &mut R,
    cluster: &Cluster,
    shape: &Shape,
    rank: impl Fn(NodeId) -> u32,
) -> Option<(NodeId, i32)> {
    let scored = cluster.nodes().filter_map(|node| {
        let (id, features) = (cluster.state(node), rule.features(node));
        let state = cluster.states().state(id)?;
        let candidate = Candidate { cluster, id, state, features, shape };
        fit::fits(cluster, state, shape).then(|| (node, rule.score(&candidate)))
    });
    scored.min_by_key(|(node, score)| (std::cmp::Reverse(*score), rank(*node)))
}

/// Runs the steps. Each choice is compared with a full scan by a rule that keeps only the result of
/// `memory`.
fn run<R: Rule>(rule: R, memory: impl Fn(&R) -> R, steps: &[Step]) {
    let mut cluster = mixed();
    let ties = [3, 1, 4, 0, 5, 8, 2, 6, 7];
    let rank = |node: NodeId| ties.get(node.0 as usize).copied().unwrap_or(100 + node.0);
    let mut policy = Ranked::new(rule, ties.to_vec());
    let mut placed: Vec<(Arc<Shape>, Placement)> = Vec::new();
    for step in steps {
        match step {
            Step::RepairLimits if placed.is_empty() => {}
            Step::RepairLimits => {
                let (shape, placement) = placed.remove(0);
                cluster.release(&shape.resources, &placement).unwrap();
                policy.released(&shape, &placement);
            }
            Step::Turn(node) => {
                let is_open = cluster.is_open(NodeId(*node));
                cluster.set_open(NodeId(*node), !is_open).unwrap();
            }
            Step::Join => {
                let capacity = Resources { cpu_milli: 8000, memory_mib: 9000, pods: 9 };
                let class = NodeClass { capacity, gpus: 1, ..NodeClass::default() };
                let name = format!("new{}", cluster.node_count()).into();
                cluster.add_node(&NodeSpec { name, class, labels: [].into() }).unwrap();
            }
            Step::Come(shape) => {
                let mut fresh = memory(policy.rule());
                let expected = brute_force(&mut fresh, &cluster, shape, rank);
                let shape = Arc::new(shape.clone());
                let chosen = policy.choose(&cluster, &shape);
                let found = chosen.as_ref().map(|chosen| (chosen.placement.node, chosen.score));
                assert_eq!(found, expected.map(|(node, score)| (node, i64::from(score))));
                let Some(chosen) = chosen else { continue };
                if let Some(rival) = chosen.runner_up {
                    assert!(rival.score <= chosen.score && rival.node != chosen.placement.node);
                }
                cluster.place(&shape.resources, &chosen.placement).unwrap();
                policy.placed(&shape, &chosen.placement);
                placed.push((shape, chosen.placement));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_kept_of_scores_is_what_a_look_at_all_nodes_finds(steps in steps()) {
        run(BestFit, |_| BestFit, &steps);
        run(DotProduct, |_| DotProduct, &steps);
        run(GpuPacking, |_| GpuPacking, &steps);
        run(Clustering::default(), Clustering::clone, &steps);
        let shapes: Vec<Shape> = (1..=10).map(|tenths| pod(8000, 1, tenths * 100)).collect();
        let counts = shapes.iter().zip(1..);
        let typical = Arc::new(TypicalPods::new(&[model()], counts));
        run(Fgd::new(Arc::clone(&typical)), |_| Fgd::new(Arc::clone(&typical)), &steps);
    }

    #[test]
    fn no_policy_refuses_a_pod_that_fits(steps in steps(), name in prop::sample::select(&NAMES)) {
        let mut cluster = mixed();
        let mut policy = policy(name, &setup()).unwrap();
        for step in steps {
            let Step::Come(shape) = step else { continue };
            let fits = cluster.states().iter().any(|(_, state, _)| fit::fits(&cluster, state, &shape));
            let shape = Arc::new(shape);
            let chosen = policy.choose(&cluster, &shape);
            prop_assert_eq!(chosen.is_some(), fits);
            if let Some(chosen) = chosen {
                prop_assert_eq!(chosen.placement.gpus.len(), usize::from(shape.gpus.count()));
                cluster.place(&shape.resources, &chosen.placement).unwrap();
                policy.placed(&shape, &chosen.placement);
            }
        }
    }
}

#[test]
fn costs_of_one_cluster_do_not_affect_another() {
    let first = cluster(&[(96_000, &[1000; 8]), (50_000, &[540, 190, 0, 1000])]);
    let second = cluster(&[(50_000, &[540, 190, 0, 1000])]);
    let third = cluster(&[(4000, &[300; 4]), (96_000, &[1000; 2]), (96_000, &[1000, 500])]);
    let shape = pod(6000, 1, 460);
    for name in NAMES.into_iter().filter(|name| *name != "random") {
        let mut kept = policy(name, &setup()).unwrap();
        for cluster in [&first, &second, &third, &first] {
            let chosen = kept.choose(cluster, &Arc::new(shape.clone()));
            assert_eq!(chosen, choose(name, cluster, &shape), "{name}");
        }
    }
}
