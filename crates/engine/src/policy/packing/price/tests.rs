mod classes;
mod instances;
mod persistence;
mod priors;

use super::*;
use crate::cluster::Cluster;
use crate::fit;
use crate::gpu::GpuModel;
use crate::node::{NodeClass, NodeSpec};
use crate::resources::Resources;
use crate::shape::GpuDemand;

/// Nodes of eight GPUs and of two, in the order given.
fn cluster(numbers: impl IntoIterator<Item = u32>) -> Cluster {
    let name = "A".to_owned();
    let model = GpuModel { name, memory_mib: 0, idle_watts: 0, full_watts: 0, mig: Vec::new() };
    let node = |number: u32| {
        let gpus = if number.is_multiple_of(3) { 8 } else { 2 };
        let cpu_milli = 12_000 * i64::from(gpus);
        let capacity = Resources { cpu_milli, memory_mib: 4 * cpu_milli, pods: 100 };
        let class = NodeClass { capacity, gpus, ..NodeClass::default() };
        NodeSpec { name: format!("n{number:02}").into(), class, labels: [].into() }
    };
    Cluster::new(vec![model], numbers.into_iter().map(node).collect()).unwrap()
}

fn shape(cpu: i64, count: u16, milli: u16) -> Arc<Shape> {
    Arc::new(Shape::new(Resources::of_pod(cpu, 2 * cpu), GpuDemand::of(count, milli)))
}

/// Small pods first and often, with an occasional 8-GPU pod.
fn arrivals(count: usize) -> Vec<Arc<Shape>> {
    let shapes = [
        shape(3_000, 1, 810),
        shape(9_000, 1, 1000),
        shape(5_000, 1, 470),
        shape(2_000, 1, 250),
        shape(4_000, 0, 0),
        shape(9_000, 2, 1000),
    ];
    let mut state = 7_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as usize
    };
    let mut arrivals: Vec<_> = (0..count).map(|_| Arc::clone(&shapes[next() % 6])).collect();
    arrivals.iter_mut().skip(30).step_by(40).for_each(|one| *one = shape(60_000, 8, 1000));
    arrivals
}

/// Nodes of all arrivals by name; `None` for those that were not placed.
fn replay(
    cluster: &mut Cluster,
    mut policy: PricePolicy,
    arrivals: &[Arc<Shape>],
) -> Vec<Option<(String, crate::placement::GpuParts)>> {
    let mut places = Vec::new();
    for shape in arrivals {
        policy.arrived(shape);
        let choice = policy.choose(cluster, shape);
        let fits = cluster.states().iter().any(|(_, state, _)| fit::fits(cluster, state, shape));
        assert_eq!(choice.is_some(), fits, "a pod that fits is placed: {shape:?}");
        places.push(choice.map(|choice| {
            let placement = choice.placement;
            cluster.place(&shape.resources, &placement).unwrap();
            (cluster.name(placement.node).to_owned(), placement.gpus)
        }));
    }
    places
}

fn known(arrivals: &[Arc<Shape>]) -> PricePolicy {
    PricePolicy::known(DemandStats::of(arrivals.iter().map(|shape| (Arc::clone(shape), 1))))
}

#[test]
fn the_order_in_which_nodes_were_found_decides_nothing() {
    let arrivals = arrivals(200);
    for policy in [known(&arrivals), PricePolicy::learned()] {
        let once = replay(&mut cluster(0..30), policy.clone(), &arrivals);
        let again = replay(&mut cluster(0..30), policy.clone(), &arrivals);
        let shuffled = replay(&mut cluster((0..30).map(|n| n * 7 % 30)), policy, &arrivals);
        assert_eq!(once, again);
        assert_eq!(once, shuffled);
        assert!(once.iter().any(Option::is_none), "the cluster was filled");
    }
}

#[test]
fn popularity_may_be_given_in_any_order() {
    let arrivals = arrivals(100);
    let mut other = arrivals.clone();
    other.reverse();
    let one = replay(&mut cluster(0..9), known(&arrivals), &arrivals);
    assert_eq!(one, replay(&mut cluster(0..9), known(&other), &arrivals));
}

#[test]
fn small_pods_leave_places_for_eight_gpus() {
    // Ten nodes of eight GPUs and twenty of two: small pods could spoil all of the ten.
    let mut cluster = cluster(0..30);
    let small = vec![shape(9_000, 1, 1000); 40];
    let big = shape(60_000, 8, 1000);
    let counts = [(Arc::clone(&small[0]), 60), (Arc::clone(&big), 8)];
    let mut policy = PricePolicy::known(DemandStats::of(counts));
    for one in small.iter().chain(&vec![big; 8]) {
        policy.arrived(one);
        let choice = policy.choose(&cluster, one).expect("there was room for all");
        cluster.place(&one.resources, &choice.placement).unwrap();
    }
}

/// Nodes are forbidden one after another, the best first: each choice is the best of those that are left, and nothing is forgotten.
#[test]
fn forbidden_nodes_are_passed_over_in_the_order_of_their_scores() {
    let arrivals = arrivals(60);
    let mut cluster = cluster(0..12);
    let mut policy = known(&arrivals);
    for shape in &arrivals {
        if let Some(choice) = policy.choose(&cluster, shape) {
            cluster.place(&shape.resources, &choice.placement).unwrap();
        }
    }
    let mut has_several = false;
    let mut orders = Vec::new();
    for shape in arrivals[..10].iter().cycle().take(20) {
        let mut forbidden = NodeSet::new();
        let mut choices: Vec<Choice> = Vec::new();
        while let Some(choice) = policy.choose_outside(&cluster, shape, &forbidden) {
            assert!(forbidden.insert(choice.placement.node), "a forbidden node was chosen");
            assert!(choice.runner_up.is_none_or(|rival| !forbidden.contains(&rival.node)));
            choices.push(choice);
        }
        let fit = |node: &crate::node::NodeId| {
            let state = cluster.states().state(cluster.state(*node)).unwrap();
            fit::fits(&cluster, state, shape)
        };
        assert_eq!(choices.len(), cluster.nodes().filter(fit).count(), "all that fit were chosen");
        assert!(choices.windows(2).all(|pair| pair[0].score >= pair[1].score));
        has_several |= choices.windows(2).any(|pair| pair[0].score > pair[1].score);
        let nodes: Vec<_> = choices.iter().map(|choice| choice.placement.node).collect();
        orders.push(nodes);
    }
    assert_eq!(orders[..10], orders[10..], "nothing was forgotten the first time");
    assert!(has_several, "nodes have different scores");
}

#[test]
fn two_halves_fill_one_gpu() {
    let half = shape(1_000, 1, 500);
    // However many pods have no GPUs.
    for others in [0, 50, 5_000] {
        let mut cluster = cluster([0]);
        let counts = [(Arc::clone(&half), 50), (shape(1_000, 0, 0), others)];
        let mut policy = PricePolicy::known(DemandStats::of(counts));
        let mut put = || {
            let choice = policy.choose(&cluster, &half).unwrap();
            cluster.place(&half.resources, &choice.placement).unwrap();
            choice.placement.gpus[0].gpu
        };
        let gpus = [put(), put(), put(), put()];
        assert_eq!(gpus[0], gpus[1]);
        assert_eq!(gpus[2], gpus[3]);
        assert_ne!(gpus[0], gpus[2]);
    }
}

#[test]
fn popularity_stays_the_sum_of_its_parts_while_it_fades() {
    let mut demand_stats = DemandStats::default();
    let (common, rare) = (shape(1_000, 1, 500), shape(2_000, 8, 1000));
    demand_stats.count(&rare);
    for _ in 0..70 {
        (0..10).for_each(|_| demand_stats.count(&common));
        demand_stats.forget();
        let ranked = demand_stats.ranked();
        assert_eq!(demand_stats.total(), ranked.iter().map(|entry| entry.weight).sum::<i64>());
        assert_eq!(ranked[0].shape, common);
    }
    assert_eq!(demand_stats.ranked().len(), 1, "what came once, long ago, is forgotten");
}

#[test]
fn shifted_mix_is_learned_again() {
    let mut demand_stats = DemandStats::default();
    let mut schedule = Schedule::default();
    let mut then = DemandStats::default();
    let (old, new) = (shape(1_000, 1, 500), shape(1_000, 1, 330));
    let mut made = 0;
    let mut come = |shape: &Arc<Shape>, count: usize| {
        for _ in 0..count {
            demand_stats.count(shape);
            schedule.arrived(&mut demand_stats);
            if schedule.check_due(&demand_stats, &then) {
                then = demand_stats.clone();
                schedule.learned(6_000);
                made += 1;
            }
        }
        (made, demand_stats.ranked()[0].shape == *shape)
    };
    assert_eq!(come(&old, 20_000), (1, true), "a steady mix needs tables once");
    let (made, is_learned) = come(&new, 12_000);
    assert!(is_learned, "what came lately is most popular");
    assert!((5..60).contains(&made), "{made} tables");
}

#[test]
fn churning_pods_are_packed_and_whole_nodes_stay_empty() {
    let small = shape(9_000, 1, 1000);
    // The number of 8-GPU nodes in use after a thousand pods, of which ten run at once.
    let used = |policy: &mut PricePolicy| {
        let mut cluster = cluster((0..12).map(|number| 3 * number));
        let mut here = std::collections::VecDeque::new();
        for _ in 0..1200 {
            policy.arrived(&small);
            let placement = policy.choose(&cluster, &small).unwrap().placement;
            cluster.place(&small.resources, &placement).unwrap();
            policy.placed(&small, &placement);
            here.push_back(placement);
            if here.len() > 10 {
                let placement = here.pop_front().unwrap();
                cluster.release(&small.resources, &placement).unwrap();
                policy.released(&small, &placement);
            }
        }
        cluster
            .nodes()
            .filter(|node| cluster.gpus(*node).iter().any(|gpu| !gpu.is_unused()))
            .count()
    };
    assert_eq!(used(&mut PricePolicy::learned()), 2);
    assert_eq!(used(&mut PricePolicy::known(DemandStats::of([(Arc::clone(&small), 1)]))), 2);
}

#[test]
fn a_cluster_is_steady_while_as_many_pods_leave_as_come() {
    let mut churn = Churn::default();
    let mut run = |leave: bool| {
        let mut changes = 0;
        for _ in 0..5_000 {
            changes += u32::from(churn.record_arrival());
            if leave {
                churn.record_departure();
            }
        }
        (changes, churn.is_steady)
    };
    assert_eq!(run(false), (0, false));
    assert_eq!(run(true), (1, true));
    assert_eq!(run(false), (1, false));
}

#[test]
fn a_well_used_cluster_counts_as_steady_until_pods_only_come() {
    let mut churn = Churn::of_well_used();
    assert!(churn.is_steady);
    for _ in 0..1_600 {
        churn.record_arrival();
    }
    assert!(!churn.is_steady);
}

#[test]
fn a_restarted_policy_chooses_as_one_that_saw_the_running_pods_arrive() {
    let mut cluster = cluster(0..30);
    let mut first = PricePolicy::learned();
    let mut running = std::collections::VecDeque::new();
    for shape in arrivals(2_000) {
        first.arrived(&shape);
        let Some(choice) = first.choose(&cluster, &shape) else { continue };
        cluster.place(&shape.resources, &choice.placement).unwrap();
        running.push_back((shape, choice.placement));
        if running.len() > 80 {
            let (shape, placement) = running.pop_front().unwrap();
            cluster.release(&shape.resources, &placement).unwrap();
            first.released(&shape, &placement);
        }
    }
    let (mut restarted, mut ignorant) = (PricePolicy::learned(), PricePolicy::learned());
    assert!(restarted.is_new());
    restarted.observe_running(&cluster, running.iter().map(|(shape, _)| shape));
    assert!(!restarted.is_new());
    // Of the next pods those that go to the same place.
    let mut same = [0, 0];
    for shape in arrivals(100) {
        let choose = |policy: &mut PricePolicy| {
            policy.arrived(&shape);
            policy.choose(&cluster, &shape).map(|choice| choice.placement)
        };
        let placement = choose(&mut first);
        for (same, other) in same.iter_mut().zip([&mut restarted, &mut ignorant]) {
            *same += u32::from(choose(other) == placement);
        }
        let Some(placement) = placement else { continue };
        cluster.place(&shape.resources, &placement).unwrap();
        let (old, from) = running.pop_front().unwrap();
        cluster.release(&old.resources, &from).unwrap();
        running.push_back((shape, placement));
    }
    assert!(same[0] >= 95 && same[1] < 60, "{same:?}");
}

#[test]
fn pods_with_a_choice_leave_the_model_that_others_need() {
    let model = |name: &str| {
        let name = name.to_owned();
        GpuModel { name, memory_mib: 0, idle_watts: 0, full_watts: 0, mig: Vec::new() }
    };
    let node = |number: u8| {
        let capacity = Resources { cpu_milli: 96_000, memory_mib: 400_000, pods: 100 };
        let model = crate::gpu::ModelId(number % 2);
        let class = NodeClass { capacity, gpus: 8, model, ..NodeClass::default() };
        NodeSpec { name: format!("n{number}").into(), class, labels: [].into() }
    };
    let models = vec![model("A"), model("B")];
    let mut cluster = Cluster::new(models, (0..4).map(node).collect()).unwrap();
    let any = shape(4_000, 1, 1000);
    let only_a = Arc::new(Shape { models: crate::gpu::ModelSet(1), ..(*any).clone() });
    let counts = [(Arc::clone(&any), 10), (only_a, 10)];
    let mut policy = PricePolicy::known(DemandStats::of(counts));
    for _ in 0..16 {
        let placement = policy.choose(&cluster, &any).unwrap().placement;
        assert_eq!(placement.node.0 % 2, 1, "a node with B");
        cluster.place(&any.resources, &placement).unwrap();
    }
}
