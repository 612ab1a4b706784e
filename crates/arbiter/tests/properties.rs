//! What holds whatever shares ask for and whatever their processes say.

use std::collections::BTreeMap;

use octavo_api::config::{ComputePart, ShareClass};
use octavo_arbiter::{Activity, Arbiter, Lease, Node, NodeShare, Settings, Terms};
use proptest::prelude::*;

fn terms() -> impl Strategy<Value = Terms> {
    let class = prop_oneof![
        Just(ShareClass::LatencyCritical),
        Just(ShareClass::Normal),
        Just(ShareClass::BestEffort)
    ];
    let part = prop_oneof![0..=100_000_u32, Just(0), any::<u32>()].prop_map(ComputePart);
    (part.clone(), proptest::option::of(part), class).prop_map(|(request, limit, class)| Terms {
        request,
        limit,
        class,
        quantum: None,
    })
}

fn activity() -> impl Strategy<Value = Activity> {
    let completed = prop_oneof![0..100_u64, any::<u64>()];
    (0..3_u32, 0..3_u32, any::<bool>(), completed).prop_map(
        |(processes, running, is_waiting, completed)| Activity {
            processes,
            running,
            is_waiting,
            completed,
        },
    )
}

/// One step: the time that passes, and what some shares do from then on.
type Step = (u64, BTreeMap<u8, Activity>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let passes = prop_oneof![0..5_000_000_u64, 0..5_000_000_000_u64, any::<u64>()];
    let changes = proptest::collection::btree_map(0..4_u8, activity(), 0..4);
    proptest::collection::vec((passes, changes), 1..60)
}

/// Leases after each step, and when the next step is due.
fn run(
    shares: &BTreeMap<u8, Terms>,
    steps: &[Step],
) -> Vec<(BTreeMap<u8, Lease>, u64, Option<u64>)> {
    let mut arbiter = Arbiter::new(Settings::default(), 0);
    arbiter.set_shares(shares.clone());
    let mut activities = BTreeMap::new();
    let mut now = 0_u64;
    let mut seen = Vec::new();
    for (passes, changes) in steps {
        now = now.saturating_add(*passes);
        activities.extend(changes.iter().map(|(key, activity)| (*key, *activity)));
        let of = |key: &u8| activities.get(key).copied().unwrap_or_default();
        let next = arbiter.step(now, of);
        let leases: BTreeMap<u8, Lease> =
            shares.keys().map(|key| (*key, arbiter.lease(key))).collect();
        let holders = leases.values().filter(|lease| **lease != Lease::None).count();
        assert!(holders <= 1, "{leases:?}");
        for (key, lease) in &leases {
            assert!(*lease == Lease::None || of(key).processes > 0, "the dead hold nothing");
            assert!(*lease != Lease::Free || shares[key].limit.is_none(), "a limit needs a cap");
            // Beside a latency-critical share a best-effort one may have a single launch.
            let least = if shares[key].class == ShareClass::BestEffort { 1 } else { 2 };
            assert!(!matches!(lease, Lease::Capped(cap) if *cap < least), "one runs, one follows");
        }
        let is_waiting =
            |key: &u8| of(key).is_waiting && of(key).processes > 0 && leases[key] == Lease::None;
        if shares.keys().any(is_waiting) && now < u64::MAX {
            assert!(next.is_some_and(|next| next > now), "a share waits and no step is due");
        }
        seen.push((leases, now, next));
    }
    seen
}

proptest! {
    #[test]
    fn one_share_at_a_time_has_a_lease(
        shares in proptest::collection::btree_map(0..4_u8, terms(), 1..4),
        steps in steps(),
    ) {
        let seen = run(&shares, &steps);
        prop_assert_eq!(run(&shares, &steps), seen, "the same calls give the same leases");
    }
}

proptest! {
    /// Two claims on three GPUs, and a single share of each GPU.
    #[test]
    fn one_share_of_a_gpu_has_a_lease_whatever_gangs_there_are(
        terms in proptest::collection::vec(terms(), 7),
        members in proptest::collection::vec(0..3_u8, 4),
        steps in proptest::collection::vec(
            (0..30_000_000_u64, proptest::collection::btree_map(0..7_u8, activity(), 0..7)),
            1..60,
        ),
    ) {
        let gpu_of = |name: u8| members.get(usize::from(name)).copied().unwrap_or(name.wrapping_sub(4));
        let shares: Vec<NodeShare<u8, u8>> = (0..7_u8)
            .map(|name| NodeShare {
                gpu: gpu_of(name),
                name,
                terms: terms[usize::from(name)],
                claim: (name < 4).then_some(name / 2),
            })
            .collect();
        let run = || {
            let mut node = Node::new(Settings::default());
            node.set_shares(0, shares.clone());
            let (mut now, mut seen, mut activities) = (0, Vec::new(), BTreeMap::new());
            for (passes, changes) in &steps {
                now += passes;
                activities.extend(changes.iter().map(|(key, activity)| (*key, *activity)));
                node.look_at_all(now);
                let of = |key: &u8| activities.get(key).copied().unwrap_or_default();
                node.step(now, of);
                let leases: Vec<Lease> = (0..7).map(|name| node.lease(&name)).collect();
                for gpu in 0..3 {
                    // One launch at a time is what other GPUs wait for.
                    let holders = (0..7_u8).zip(&leases).filter(|(name, lease)| {
                        let is_awaited = *name < 4 && **lease == Lease::Capped(1);
                        gpu_of(*name) == gpu && **lease != Lease::None && !is_awaited
                    });
                    assert!(holders.count() <= 1, "{leases:?}");
                }
                let waits = (0..7_u8).zip(&leases).any(|(name, lease)| {
                    of(&name).is_waiting && of(&name).processes > 0 && *lease == Lease::None
                });
                assert!(!waits || node.due().is_some_and(|due| due > now), "no step is due");
                seen.push((leases, node.due()));
            }
            seen
        };
        prop_assert_eq!(run(), run(), "the same calls give the same leases");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Shares that wait, stop when their lease ends, and have a request, all have turns.
    #[test]
    fn no_share_starves(
        requests in proptest::collection::vec((1_000..50_000_u32, any::<bool>(), any::<bool>()), 2..6),
    ) {
        let share = |(key, (part, is_strict, is_critical)): (usize, &(u32, bool, bool))| {
            let request = ComputePart(*part);
            let class =
                if *is_critical { ShareClass::LatencyCritical } else { ShareClass::Normal };
            (key, Terms { request, limit: is_strict.then_some(request), class, quantum: None })
        };
        let shares: BTreeMap<usize, Terms> = requests.iter().enumerate().map(share).collect();
        let mut arbiter = Arbiter::new(Settings::default(), 0);
        arbiter.set_shares(shares);
        let mut holder = None;
        let mut next = 0;
        let mut completed = vec![0; requests.len()];
        while next < 10_000_000_000 {
            let due = arbiter.step(next, |key| Activity {
                processes: 1,
                running: u32::from(holder == Some(*key)),
                is_waiting: true,
                completed: completed[*key],
            });
            holder = (0..requests.len()).find(|key| arbiter.lease(key) != Lease::None);
            if let Some(holder) = holder {
                completed[holder] += 1;
            }
            next = due.unwrap_or(next + 1_000_000);
        }
        for (key, time) in arbiter.times() {
            prop_assert!(time.turns > 0, "{key}: {time:?}");
        }
    }
}
