use proptest::prelude::*;

use super::*;
use crate::gpu::MigProfile;
use crate::node::{NodeClass, NodeSpec};
use crate::resources::Resources;

const NODE: NodeId = NodeId(0);

fn profile(name: &str, milli: u16, memory_mib: u32, size: u8, starts: &[u8]) -> MigProfile {
    let name = name.to_owned();
    MigProfile { name, milli, memory_mib, size, starts: starts.to_vec(), has_media: false }
}

/// The table of an H100 with 80 GB.
fn h100() -> GpuModel {
    let mig = vec![
        profile("1g.10gb", 142, 9856, 1, &[0, 1, 2, 3, 4, 5, 6]),
        MigProfile {
            has_media: true,
            ..profile("1g.10gb+me", 142, 9856, 1, &[0, 1, 2, 3, 4, 5, 6])
        },
        profile("1g.20gb", 142, 20096, 2, &[0, 2, 4, 6]),
        profile("2g.20gb", 285, 20096, 2, &[0, 2, 4]),
        profile("3g.40gb", 428, 40448, 4, &[0, 4]),
        profile("4g.40gb", 571, 40448, 4, &[0]),
        profile("7g.80gb", 1000, 81_154, 8, &[0]),
    ];
    let (name, memory_mib) = ("H100".to_owned(), 81_559);
    GpuModel { name, memory_mib, idle_watts: 0, full_watts: 0, mig }
}

fn cluster(gpus: u16, links: Links) -> Cluster {
    let capacity = Resources { cpu_milli: 64_000, memory_mib: 512_000, pods: 110 };
    let class = NodeClass { capacity, gpus, links, ..NodeClass::default() };
    let node = NodeSpec { name: "n".into(), class, labels: [].into() };
    Cluster::new(vec![h100()], vec![node]).unwrap()
}

fn put(cluster: &mut Cluster, gpus: Option<GpuParts>) {
    let placement = Placement { node: NODE, gpus: gpus.unwrap() };
    cluster.place(&Resources::of_pod(0, 0), &placement).unwrap();
}

/// Allocates a part of each of these GPUs.
fn take(cluster: &mut Cluster, parts: &[(u16, u16)]) {
    for (gpu, milli) in parts {
        put(cluster, Some(super::parts(&[*gpu], *milli, 0)));
    }
}

fn indices(gpus: Option<GpuParts>) -> Vec<u16> {
    gpus.unwrap_or_default().iter().map(|part| part.gpu).collect()
}

#[test]
fn equally_near_whole_gpus_are_the_lowest_idle_ones() {
    let mut cluster = cluster(6, Links::default());
    take(&mut cluster, &[(1, 10)]);
    cluster.set_gpu_open(NODE, 2, false).unwrap();
    let parts = Gpus::of_node(&cluster, NODE).whole(3);
    assert!(parts.iter().flatten().all(|part| part.milli == 1000 && part.memory_mib == 81_559));
    assert_eq!(indices(parts), [0, 3, 4]);
    assert_eq!(Gpus::of_node(&cluster, NODE).whole(5), None);
}

#[test]
fn whole_gpus_are_near_together_and_whole_groups_stay_whole() {
    let sockets = vec![0, 0, 0, 0, 1, 1, 1, 1];
    let switches = vec![0, 0, 1, 1, 2, 2, 3, 3];
    let links = Links(vec![sockets, switches]);
    let chosen = |taken: &[(u16, u16)], count| {
        let mut cluster = cluster(8, links.clone());
        take(&mut cluster, taken);
        indices(Gpus::of_node(&cluster, NODE).whole(count))
    };
    assert_eq!(chosen(&[], 2), [0, 1]);
    assert_eq!(chosen(&[(0, 1)], 1), [1], "the broken pair is used up first");
    assert_eq!(chosen(&[(0, 1)], 2), [2, 3], "not one of each pair, and the broken socket");
    assert_eq!(chosen(&[(0, 1), (2, 1)], 2), [4, 5], "a pair on one switch before two switches");
    assert_eq!(chosen(&[(0, 1)], 4), [4, 5, 6, 7]);
    assert_eq!(chosen(&[(0, 1)], 3), [1, 2, 3], "the other socket stays whole");
    assert_eq!(chosen(&[(0, 1), (5, 1)], 5), [1, 2, 3, 6, 7]);
    assert_eq!(chosen(&[(0, 1), (5, 1)], 6), [1, 2, 3, 4, 6, 7]);
}

#[test]
fn a_share_gets_the_tightest_gpu_or_the_level_that_is_named() {
    let mut cluster = cluster(5, Links::default());
    take(&mut cluster, &[(1, 400), (2, 600), (3, 600)]);
    assert_eq!(indices(Gpus::of_node(&cluster, NODE).share(1, 400, 0)), [2]);
    assert_eq!(indices(Gpus::of_node(&cluster, NODE).share(1, 401, 0)), [1]);
    assert_eq!(indices(Gpus::of_node(&cluster, NODE).share(1, 601, 0)), [0]);
    assert_eq!(indices(Gpus::of_node(&cluster, NODE).share(3, 400, 0)), [1, 2, 3]);
    let at = |milli, left| {
        let level = FreeLevel { risk: RiskClass::Usual, milli: left, memory_mib: 81_559 };
        indices(share_at(&cluster, NODE, milli, 0, level))
    };
    assert_eq!(at(400, 1000), [0]);
    assert_eq!(at(400, 400), [2]);
    assert_eq!(at(401, 400), [0; 0]);
    assert_eq!(at(400, 500), [0; 0]);
}

#[test]
fn gpus_of_less_risk_come_first_whatever_is_asked_for() {
    let mut cluster = cluster(4, Links::default());
    take(&mut cluster, &[(0, 400)]);
    for (gpu, risk) in [(0, RiskClass::Extreme), (1, RiskClass::High), (2, RiskClass::Raised)] {
        cluster.set_gpu_risk(NODE, gpu, risk).unwrap();
    }
    let demanded = |demand: &GpuDemand| indices(Gpus::of_node(&cluster, NODE).demanded(demand));
    assert_eq!(demanded(&GpuDemand::Whole { count: 1 }), [3]);
    assert_eq!(demanded(&GpuDemand::Whole { count: 2 }), [2, 3]);
    assert_eq!(demanded(&GpuDemand::Whole { count: 3 }), [1, 2, 3]);
    let share = |count| GpuDemand::Share { count, milli: 300, memory_mib: 0 };
    assert_eq!(demanded(&share(1)), [3], "a used GPU would be tighter");
    assert_eq!(demanded(&share(4)), [0, 1, 2, 3]);
    let mig = GpuDemand::Mig { count: 1, profile: "3g.40gb".into() };
    assert_eq!(demanded(&mig), [3]);
}

fn places(parts: Option<GpuParts>) -> Vec<(u16, u16)> {
    parts.unwrap_or_default().iter().map(|part| (part.gpu, part.slices.0)).collect()
}

#[test]
fn an_instance_lies_where_the_largest_profiles_lose_least() {
    let mut cluster = cluster(2, Links::default());
    // Of an idle GPU: the end, so that the four slices of a 4g stay free.
    assert_eq!(places(Gpus::of_node(&cluster, NODE).mig(1, "1g.10gb")), [(0, 1 << 6)]);
    assert_eq!(places(Gpus::of_node(&cluster, NODE).mig(1, "3g.40gb")), [(0, 0xf0)]);
    let last = Gpus::of_node(&cluster, NODE).mig(1, "1g.10gb");
    put(&mut cluster, last);
    // The partitioned GPU has no 7g to lose; the idle one has.
    assert_eq!(places(Gpus::of_node(&cluster, NODE).mig(1, "2g.20gb")), [(0, 0x30)]);
    assert_eq!(places(Gpus::of_node(&cluster, NODE).mig(1, "7g.80gb")), [(1, 0xff)]);
    assert_eq!(
        places(Gpus::of_node(&cluster, NODE).mig(3, "3g.40gb")),
        [(0, 0x0f), (1, 0x0f), (1, 0xf0)]
    );
    assert_eq!(Gpus::of_node(&cluster, NODE).mig(1, "9g.90gb"), None);
}

#[test]
fn no_more_instances_of_a_profile_are_on_one_gpu_than_may_be() {
    let cluster = cluster(2, Links::default());
    let me = Slices::range(6, 1).plus(Slices::MEDIA).0;
    let both = Gpus::of_node(&cluster, NODE).mig(2, "1g.10gb+me").unwrap();
    assert_eq!(places(Some(both.clone())), [(0, me), (1, me)]);
    assert_eq!(Gpus::of_node(&cluster, NODE).mig(3, "1g.10gb+me"), None);
    // A second pod does not either.
    let mut cluster = cluster;
    let first = Placement { node: NODE, gpus: both.into_iter().take(1).collect() };
    cluster.place(&Resources::default(), &first).unwrap();
    assert_eq!(places(Gpus::of_node(&cluster, NODE).mig(1, "1g.10gb+me")), [(1, me)]);
}

fn demand() -> impl Strategy<Value = GpuDemand> {
    const NAMES: [&str; 7] =
        ["1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"];
    prop_oneof![
        Just(GpuDemand::None),
        (1_u16..5).prop_map(|count| GpuDemand::Whole { count }),
        (1_u16..4, 1_u16..=10, 0_u32..5).prop_map(|(count, tenths, quarters)| {
            GpuDemand::Share { count, milli: tenths * 100, memory_mib: quarters * 20_000 }
        }),
        (1_u16..6, prop::sample::select(&NAMES))
            .prop_map(|(count, profile)| { GpuDemand::Mig { count, profile: (*profile).into() } }),
    ]
}

fn links() -> impl Strategy<Value = Links> {
    prop_oneof![
        Just(Links::default()),
        Just(Links(vec![vec![0, 0, 0, 1, 1, 1]])),
        Just(Links(vec![vec![0, 0, 0, 0, 1, 1], vec![0, 1, 0, 1, 2, 2]])),
    ]
}

proptest! {
    #[test]
    fn choice_exists_exactly_if_the_pod_fits_and_can_be_placed(
        links in links(),
        closed in prop::option::of(0_u16..6),
        demands in prop::collection::vec((demand(), proptest::bool::ANY), 1..24),
    ) {
        let mut cluster = cluster(6, links);
        if let Some(gpu) = closed {
            cluster.set_gpu_open(NODE, gpu, false).unwrap();
        }
        let mut placed: Vec<(Resources, Placement)> = Vec::new();
        for (demand, is_release) in demands {
            if is_release && !placed.is_empty() {
                let (requests, placement) = placed.remove(0);
                cluster.release(&requests, &placement).unwrap();
            }
            let shape = Shape::new(Resources::of_pod(6000, 1000), demand);
            let state = cluster.states().state(cluster.state(NODE)).unwrap();
            let fits = fit::fits(&cluster, state, &shape);
            let of_state = Gpus::of_state(&cluster, state).demanded(&shape.gpus);
            let picked = crate::pick::default_placement(&cluster, NODE, &shape);
            prop_assert_eq!(picked.is_some(), fits);
            let Some(placement) = picked else { continue };
            prop_assert_eq!(placement.gpus.len(), usize::from(shape.gpus.count()));
            prop_assert_eq!(of_state.map(|gpus| gpus.len()), Some(placement.gpus.len()));
            prop_assert!(placement.gpus.is_sorted_by_key(|part| (part.gpu, part.slices)));
            cluster.place(&shape.resources, &placement).unwrap();
            placed.push((shape.resources, placement));
        }
    }

    /// If a group of the tightest level holds all GPUs, all are in one group.
    #[test]
    fn whole_gpus_share_a_group_if_any_group_has_room(
        taken in prop::collection::btree_set(0_u16..8, 0..8),
        count in 1_u16..5,
    ) {
        let switches = vec![0, 0, 0, 0, 1, 1, 2, 2];
        let links = Links(vec![vec![0, 0, 0, 0, 0, 0, 1, 1], switches.clone()]);
        let mut cluster = cluster(8, links);
        take(&mut cluster, &taken.iter().map(|gpu| (*gpu, 1)).collect::<Vec<_>>());
        let idle = |group| (0_u16..8)
            .filter(|gpu| switches[usize::from(*gpu)] == group && !taken.contains(gpu))
            .count();
        let roomy: Vec<_> = (0..3).map(idle).filter(|idle| *idle >= count.into()).collect();
        if let Some(tightest) = roomy.iter().min() {
            let chosen = indices(Gpus::of_node(&cluster, NODE).whole(count));
            let group = switches[usize::from(chosen[0])];
            prop_assert!(chosen.iter().all(|gpu| switches[usize::from(*gpu)] == group));
            prop_assert_eq!(idle(group), *tightest);
        }
    }
}
