//! The expected hashes come from a Go program that runs the protocol with Go's own `math/rand`.

use std::num::NonZeroU64;
use std::path::Path;

use proptest::prelude::*;

use super::order_statistics::RemainingItems;
use super::*;
use crate::trace::NodeRow;

fn openb() -> Trace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/openb");
    let nodes = folder.join("openb_node_list_gpu_node.csv");
    Trace::read(&nodes, &folder.join("openb_pod_list_default.csv")).unwrap()
}

fn factor(value: f64) -> Factor {
    Factor::new(value).unwrap()
}

fn shuffled(trace: &Trace, seed: i64, factor: impl Into<Option<Factor>>) -> Arrivals {
    Arrivals::of(trace, Order::Shuffled { seed, factor: factor.into() }).unwrap()
}

/// FNV-1a over the pods' names, and then also over the nodes', a line each.
fn hashes(trace: &Trace, arrivals: &Arrivals) -> [u64; 2] {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut add = |name: &str| {
        for byte in name.bytes().chain([b'\n']) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash
    };
    let pods = arrivals.pods.iter().map(|pod| add(&pod.name(&trace.pods))).last();
    let nodes = arrivals.node_order.iter().map(|node| add(&trace.nodes[*node].name)).last();
    [pods.unwrap(), nodes.unwrap()]
}

#[test]
fn the_papers_first_run_has_10866_pods() {
    let trace = openb();
    let arrivals = shuffled(&trace, 42, factor(1.3));
    assert_eq!(arrivals.pods.len(), 10_866);
    assert_eq!(arrivals.demand_gpu_milli(&trace.pods), 8_075_080);
    let in_order = (0..10_866).map(|index| Event { at: None, change: Change::Arrive(index) });
    assert!(arrivals.events.iter().copied().eq(in_order));
}

#[test]
fn every_draw_is_gos_whether_pods_are_added_removed_or_left() {
    let trace = openb();
    let of = |value| Some(factor(value));
    #[rustfmt::skip]
    let go = [
        (42, None, 8152, 6_086_800, [0x69c7_00f3_6a88_9d4d, 0x63ba_4c68_46f3_7273]),
        (42, of(1.3), 10_866, 8_075_080, [0xb2d6_025a_ab88_1d6d, 0x762d_00aa_9f97_addb]),
        (45, of(1.3), 10_813, 8_082_190, [0x9a0f_80bc_ac91_87de, 0xac42_2b1b_a85d_1e0c]),
        (51, of(1.3), 10_859, 8_074_900, [0x570f_c5e1_c6ab_c8f4, 0xe740_67e0_45c9_d676]),
        (-3, of(1.0), 8334, 6_211_780, [0x4853_d3c7_c371_0ad9, 0xa340_8cc7_69b6_203f]),
        (42, of(0.5), 4207, 3_105_510, [0x2ea9_9fc8_47b0_3f1e, 0x00c8_15e0_07d7_5cd4]),
        (-3, of(2.75), 22_947, 17_082_870, [0x26e8_1d34_a2e2_fdb9, 0xda58_855c_4b08_d6db]),
    ];
    for (seed, factor, pods, demand, hash) in go {
        let arrivals = shuffled(&trace, seed, factor);
        assert_eq!(arrivals.pods.len(), pods, "seed {seed}, factor {factor:?}");
        assert_eq!(
            arrivals.demand_gpu_milli(&trace.pods),
            demand,
            "seed {seed}, factor {factor:?}"
        );
        assert_eq!(hashes(&trace, &arrivals), hash, "seed {seed}, factor {factor:?}");
    }
}

#[test]
fn the_order_of_the_lines_does_not_matter() {
    let trace = openb();
    let mut turned = trace.clone();
    turned.pods.reverse();
    turned.nodes.reverse();
    let (once, again) = (shuffled(&trace, 7, factor(1.3)), shuffled(&turned, 7, factor(1.3)));
    assert_eq!(hashes(&trace, &once), hashes(&turned, &again));
}

fn pod(name: &str, num_gpu: u32, gpu_milli: u32) -> PodRow {
    PodRow { name: name.into(), num_gpu, gpu_milli, ..PodRow::default() }
}

fn timed(name: &str, creation: u64, deletion: Option<u64>) -> PodRow {
    PodRow { creation_time: Some(creation), deletion_time: deletion, ..pod(name, 1, 1000) }
}

fn trace(gpus: u32, pods: Vec<PodRow>) -> Trace {
    let node = |name: &str| NodeRow {
        name: name.into(),
        cpu_milli: 1,
        memory_mib: 1,
        gpus,
        model: "T4".into(),
    };
    Trace { nodes: vec![node("b"), node("a")], pods }
}

#[test]
fn copies_stop_at_the_first_draw_that_would_pass_the_target() {
    // Whole GPUs on two nodes of eight: the demand is 2 and the target 16, so exactly 14 copies.
    let trace = trace(8, vec![pod("p", 1, 1000), pod("q", 1, 1000)]);
    let arrivals = shuffled(&trace, 1, factor(1.0));
    assert_eq!(arrivals.demand_gpu_milli(&trace.pods), 16_000);
    let names: Vec<_> = arrivals.pods.iter().map(|pod| pod.name(&trace.pods)).collect();
    assert!(names[2].ends_with("-tuned-0") && names[15].ends_with("-tuned-13"), "{names:?}");
}

#[test]
fn the_last_pod_of_many_gpus_may_pass_the_target() {
    let trace = trace(8, vec![pod("p", 8, 1000)]);
    // 15 of 16 GPUs. One pod's 8 GPUs plus one GPU of the next stay below; all 8 GPUs do not.
    let arrivals = shuffled(&trace, 1, factor(0.9375));
    assert_eq!(arrivals.demand_gpu_milli(&trace.pods), 16_000);
}

#[test]
fn a_list_at_its_target_is_left_alone() {
    let pods = vec![pod("p", 8, 1000), pod("cpu", 0, 0)];
    let arrivals = shuffled(&trace(8, pods), 1, factor(0.5));
    assert_eq!(arrivals.pods.len(), 2);
}

#[test]
fn a_list_above_its_target_loses_pods_until_it_is_not() {
    let trace = trace(1, (0..9).map(|index| pod(&format!("p{index}"), 1, 300)).collect());
    let full = shuffled(&trace, 5, None);
    let less = shuffled(&trace, 5, factor(0.75));
    assert_eq!(less.demand_gpu_milli(&trace.pods), 1500);
    let mut rest = full.pods.iter();
    assert!(less.pods.iter().all(|pod| rest.any(|other| other == pod)), "in the same order");
}

/// Tunes a list down literally as the protocol says, by removing each drawn pod from the list.
/// Returns the remaining pods and the order of the nodes, which is drawn last.
fn tuned_down_step_by_step(trace: &Trace, seed: i64, factor: Factor) -> (Vec<usize>, Vec<usize>) {
    let mut rand = GoRand::new(seed);
    rand.int63();
    let mut rows = sorted(&trace.pods, |pod| &pod.name);
    rand.shuffle(&mut rows);
    let capacity = NonZeroU64::new(trace.capacity_gpu_milli()).unwrap();
    let mut demand = trace.demand_gpu_milli();
    while factor.is_passed_by(demand, capacity) {
        let index = rand.index(rows.len()).unwrap();
        demand -= trace.pods[rows.remove(index)].total_gpu_milli();
    }
    let by_name = sorted(&trace.nodes, |node| &node.name);
    let mut nodes = by_name.clone();
    for (node, number) in by_name.iter().zip(rand.perm(by_name.len())) {
        nodes[number] = *node;
    }
    (rows, nodes)
}

#[test]
fn order_statistics_count_remaining_items() {
    let mut remaining = RemainingItems::all(6);
    let taken: Vec<_> = [2, 2, 0, 2, 1, 0, 0].map(|place| remaining.take(place)).into();
    assert_eq!(taken, [Some(2), Some(3), Some(0), Some(5), Some(4), Some(1), None]);
    assert_eq!(remaining.count(), 0);
    assert_eq!(RemainingItems::all(0).take(0), None);
}

#[test]
fn copy_names_are_not_in_the_list() {
    // The copy of the first drawn pod would have an existing name, and so would some later copies.
    let names =
        ["p", "p-tuned-0", "p-tuned-1", "p-tuned-1-tuned-3", "p-tuned-4", "p-tuned-0-tuned-0"];
    let crowded = trace(64, names.map(|name| pod(name, 1, 1000)).into());
    for seed in 0..20 {
        let arrivals = shuffled(&crowded, seed, factor(1.0));
        assert_eq!(arrivals.pods.len(), 128);
        let names: std::collections::BTreeSet<_> =
            arrivals.pods.iter().map(|pod| pod.name(&crowded.pods)).collect();
        assert_eq!(names.len(), 128, "seed {seed}");
    }
    // A name of this form causes no skip unless a copy would get it.
    let roomy = trace(4, vec![pod("p", 1, 1000), pod("q-tuned-0", 1, 1000)]);
    let arrivals = shuffled(&roomy, 1, factor(1.0));
    let copies: Vec<_> = arrivals.pods.iter().filter_map(|pod| pod.copy).collect();
    assert_eq!(copies, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn factors_that_lead_nowhere_are_refused() {
    let run = |trace: Trace, factor| Arrivals::of(&trace, Order::Shuffled { seed: 1, factor });
    let one = factor(1.0);
    assert_eq!(
        run(trace(0, vec![pod("p", 1, 1)]), Some(one)),
        Err(ArrivalError::NoGpus { factor: one })
    );
    assert_eq!(
        run(trace(8, vec![pod("p", 0, 0)]), Some(one)),
        Err(ArrivalError::NoDemand { factor: one })
    );
    let vast = factor(1e12);
    let refused = Err(ArrivalError::TooManyPods { factor: vast });
    assert_eq!(run(trace(8, vec![pod("p", 1, 1)]), Some(vast)), refused);
    assert!(run(trace(0, vec![pod("p", 0, 0)]), None).is_ok(), "without a factor nothing is asked");
    for text in ["0", "-1", "inf", "NaN", "", "1,3", "1.3x"] {
        assert_eq!(text.parse::<Factor>(), Err(ArrivalError::Factor(text.into())));
    }
    assert_eq!("1.3".parse::<Factor>(), Ok(factor(1.3)));
}

#[test]
fn at_one_second_those_leave_first_that_came_before() {
    use Change::{Arrive, Depart};
    let pods = vec![
        timed("new", 10, None),
        timed("flash", 10, Some(10)),
        timed("old", 5, Some(10)),
        timed("older", 0, Some(20)),
    ];
    let arrivals = Arrivals::of(&trace(1, pods), Order::ByCreationTime).unwrap();
    let rows: Vec<_> = arrivals.pods.iter().map(|arrival| arrival.row).collect();
    assert_eq!(rows, [3, 2, 1, 0]);
    let events: Vec<_> = arrivals.events.iter().map(|e| (e.at.unwrap(), e.change)).collect();
    let expected = [
        (0, Arrive(0)),
        (5, Arrive(1)),
        (10, Depart(1)),
        (10, Arrive(2)),
        (10, Depart(2)),
        (10, Arrive(3)),
        (20, Depart(0)),
    ];
    assert_eq!(events, expected);
    assert_eq!(arrivals.node_order, [1, 0], "by name");
}

#[test]
fn a_list_without_times_has_no_order_in_time() {
    let pods = vec![timed("p", 1, None), pod("q", 1, 1), pod("r", 1, 1)];
    let message = Arrivals::of(&trace(1, pods), Order::ByCreationTime).unwrap_err().to_string();
    assert!(message.starts_with("pod `q` has no creation_time (2 of 3 have none)"), "{message}");
}

#[test]
fn a_listed_order_is_that_of_the_lines() {
    let arrivals = Arrivals::of(&trace(1, vec![pod("q", 1, 1), pod("p", 1, 1)]), Order::Listed);
    let rows: Vec<_> = arrivals.unwrap().pods.iter().map(|arrival| arrival.row).collect();
    assert_eq!(rows, [0, 1]);
}

proptest! {
    #[test]
    fn tuning_down_matches_the_protocol_step_by_step(
        demands in proptest::collection::vec((0..3u32, 1..=1000u32), 1..120),
        seed in any::<i64>(),
        percent in 1..100u32,
    ) {
        let pods = demands.iter().enumerate()
            .map(|(index, (gpus, milli))| pod(&format!("p{index}"), *gpus, *milli))
            .collect();
        let trace = trace(1, pods);
        // A share of the demand, so that there is always something to remove.
        let wanted = trace.demand_gpu_milli();
        prop_assume!(wanted > 0);
        let part = f64::from(u32::try_from(wanted).unwrap()) / 2000.0 * f64::from(percent) / 100.0;
        let arrivals = shuffled(&trace, seed, factor(part));
        let rows: Vec<_> = arrivals.pods.iter().map(|arrival| arrival.row).collect();
        let expected = tuned_down_step_by_step(&trace, seed, factor(part));
        prop_assert!(rows.len() < demands.len());
        prop_assert_eq!((rows, arrivals.node_order), expected);
    }

    #[test]
    fn pods_depart_once_and_after_arriving(
        lives in proptest::collection::vec((0..20u64, proptest::option::of(0..20u64)), 1..40),
    ) {
        let pods: Vec<_> = lives.iter().enumerate()
            .map(|(index, (creation, life))| {
                timed(&format!("p{index}"), *creation, life.map(|life| creation + life))
            })
            .collect();
        let leaving = pods.iter().filter(|pod| pod.deletion_time.is_some()).count();
        let arrivals = Arrivals::of(&trace(1, pods), Order::ByCreationTime).unwrap();
        prop_assert!(arrivals.events.is_sorted_by_key(|event| event.at));
        let (mut here, mut came, mut left) = (std::collections::BTreeSet::new(), 0, 0);
        for event in &arrivals.events {
            match event.change {
                Change::Arrive(pod) => {
                    prop_assert_eq!(pod, came, "arrivals are numbered as they come");
                    came += 1;
                    here.insert(pod);
                }
                Change::Depart(pod) => {
                    prop_assert!(here.remove(&pod));
                    left += 1;
                }
            }
        }
        prop_assert_eq!((came, left), (lives.len(), leaving));
    }
}
