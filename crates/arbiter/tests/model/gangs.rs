//! Shares of one claim on several GPUs have their turns together.

use octavo_api::config::ShareClass::{BestEffort, LatencyCritical};
use octavo_arbiter::{Activity, Lease, NodeShare, Settings};

use crate::node::{Decide, MILLISECOND, Node, SECOND, Tenant};

type Name = (usize, usize);

/// The arbiters of a node, which know of gangs or not.
struct Leases {
    node: octavo_arbiter::Node<usize, Name>,
    knows_gangs: bool,
    tenants: Vec<Tenant>,
}

fn leases() -> Leases {
    leases_with(true)
}

fn leases_with(knows_gangs: bool) -> Leases {
    let node = octavo_arbiter::Node::new(Settings::default());
    Leases { node, knows_gangs, tenants: Vec::new() }
}

impl Decide for Leases {
    fn begin(&mut self, tenants: &[Tenant]) {
        self.tenants = tenants.to_vec();
        let knows_gangs = self.knows_gangs;
        let shares = tenants.iter().enumerate().flat_map(|(tenant, it)| {
            it.gpus.iter().enumerate().map(move |(member, gpu)| NodeShare {
                gpu: *gpu,
                name: (tenant, member),
                terms: it.terms,
                claim: knows_gangs.then_some((tenant, 0)),
            })
        });
        self.node.set_shares(0, shares.collect::<Vec<_>>());
    }

    fn step(&mut self, now: u64, activities: &[Vec<Activity>]) -> (Vec<Vec<Lease>>, Option<u64>) {
        self.node.look_at_all(now);
        self.node.step(now, |(tenant, member)| activities[*tenant][*member]);
        let leases = self.tenants.iter().enumerate().map(|(tenant, it)| {
            (0..it.gpus.len()).map(|member| self.node.lease(&(tenant, member))).collect()
        });
        (leases.collect(), self.node.due())
    }
}

/// No guard: the driver divides the time of each GPU.
struct Unguarded;

impl Decide for Unguarded {
    fn begin(&mut self, _: &[Tenant]) {}

    fn step(&mut self, _: u64, activities: &[Vec<Activity>]) -> (Vec<Vec<Lease>>, Option<u64>) {
        (activities.iter().map(|it| vec![Lease::Free; it.len()]).collect(), None)
    }
}

/// Runs tenants for six seconds. Fails unless each has its part within a point of what was got done, and less than 2% of the
/// time of any GPU is lost.
fn check(tenants: &[Tenant], decide: impl Decide, seed: u64) -> Result<(), String> {
    let mut node = Node::new(tenants, decide, seed);
    node.run(6 * SECOND);
    let parts: Vec<f64> = (0..tenants.len()).map(|tenant| node.part(tenant)).collect();
    let gpus = tenants.iter().flat_map(|it| it.gpus.clone()).max().map_or(0, |last| last + 1);
    let wasted: Vec<f64> = (0..gpus).map(|gpu| node.wasted_part(gpu)).collect();
    for (part, tenant) in parts.iter().zip(tenants) {
        // Of the time in which anything got done on the GPU that it divides with most others.
        let busy_on = |gpu: &usize| -> f64 {
            let here = tenants.iter().zip(&parts).filter(|(it, _)| it.gpus.contains(gpu));
            here.map(|(_, part)| part).sum()
        };
        let busy = tenant.gpus.iter().map(busy_on).fold(0.0, f64::max);
        let (part, wanted) = (100.0 * part / busy, f64::from(tenant.terms.request.0) / 1_000.0);
        if (part - wanted).abs() > 1.0 {
            return Err(format!("{parts:.2?}, and one wants {wanted}; lost {wasted:.2?}"));
        }
    }
    if wasted.iter().any(|wasted| *wasted > 2.0) {
        return Err(format!("{wasted:.2?}% lost; parts are {parts:.2?}"));
    }
    Ok(())
}

fn mixes() -> Vec<(&'static str, Vec<Tenant>)> {
    vec![
        ("two gangs on two GPUs", vec![Tenant::of(50, &[0, 1]), Tenant::of(50, &[0, 1])]),
        ("of unequal requests", vec![Tenant::of(30, &[0, 1]), Tenant::of(70, &[1, 0])]),
        (
            "two gangs on four GPUs",
            vec![Tenant::of(40, &[3, 2, 1, 0]), Tenant::of(60, &[0, 1, 2, 3])],
        ),
        ("two GPUs and four", vec![Tenant::of(50, &[0, 1, 2, 3]), Tenant::of(50, &[1, 2])]),
        (
            "a gang beside single shares",
            vec![Tenant::of(40, &[0, 1]), Tenant::of(60, &[0]), Tenant::of(60, &[1])],
        ),
        (
            "beside several",
            vec![
                Tenant::of(50, &[0, 1]),
                Tenant::of(25, &[0]),
                Tenant::of(25, &[0]),
                Tenant::of(50, &[1]).kernel(MILLISECOND),
            ],
        ),
    ]
}

#[test]
fn gangs_have_their_parts_within_a_point() {
    for (name, tenants) in mixes() {
        for seed in 0..2 {
            check(&tenants, leases(), seed).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

/// The check is one that others fail.
#[test]
fn neither_the_driver_alone_nor_arbiters_without_gangs_pass() {
    for (name, tenants) in mixes() {
        let unguarded = check(&tenants, Unguarded, 1);
        assert!(unguarded.is_err(), "{name}: the driver's own slices pass");
        // If all who divide one GPU divide another one, too, the same decisions are made on both.
        let is_alike = tenants.iter().all(|tenant| tenant.gpus.len() > 1);
        let apart = check(&tenants, leases_with(false), 1);
        assert!(apart.is_err() || is_alike, "{name}: GPUs that decide apart pass");
    }
}

#[test]
fn gangs_in_a_ring_all_get_on() {
    let ring = [Tenant::of(50, &[0, 1]), Tenant::of(50, &[1, 2]), Tenant::of(50, &[2, 0])];
    for seed in 0..2 {
        let mut node = Node::new(&ring, leases(), seed);
        node.run(10 * SECOND);
        let parts: Vec<f64> = (0..3).map(|tenant| node.part(tenant)).collect();
        // Of three, one runs at a time.
        assert!(parts.iter().all(|part| (part - 32.5).abs() < 1.5), "{parts:?}");
    }
}

/// It waits for one lease after the other, so it gets less done in its turns.
#[test]
fn a_gang_of_one_thread_gets_on() {
    let alone = Tenant::of(50, &[0, 1]).with_one_thread();
    let tenants = [alone, Tenant::of(50, &[0]), Tenant::of(50, &[1])];
    let mut node = Node::new(&tenants, leases(), 1);
    node.run(10 * SECOND);
    let parts: Vec<f64> = (0..3).map(|tenant| node.part(tenant)).collect();
    assert!(parts[0] > 45.0 && parts[1] < 53.0 && parts[2] < 53.0, "{parts:?}");
}

#[test]
fn gpus_do_not_idle_for_a_gang_while_one_of_them_is_late() {
    let tenants = [
        Tenant::of(50, &[0, 1]),
        Tenant::of(50, &[0]),
        // Kernels of 300 ms end long after their turn.
        Tenant::of(50, &[1]).kernel(300 * MILLISECOND),
    ];
    let mut node = Node::new(&tenants, leases(), 1);
    node.run(10 * SECOND);
    assert!(node.wasted_part(0) < 4.0, "{}", node.wasted_part(0));
    let parts: Vec<f64> = (0..3).map(|tenant| node.part(tenant)).collect();
    assert!(parts[0] > 30.0 && parts[1] > 45.0, "{parts:?}");
}

#[test]
fn a_gang_takes_what_others_leave_and_leaves_what_it_does_not_use() {
    let tenants = [
        Tenant::of(30, &[0, 1]),
        Tenant::of(70, &[0]).pauses(20 * MILLISECOND, 60 * MILLISECOND),
        Tenant::of(70, &[1]).from(100 * SECOND),
    ];
    let mut node = Node::new(&tenants, leases(), 1);
    node.run(10 * SECOND);
    assert!(node.part(0) > 60.0 && node.part(1) > 17.0, "{} {}", node.part(0), node.part(1));
    let pausing = Tenant::of(50, &[0, 1]).pauses(20 * MILLISECOND, 20 * MILLISECOND);
    let tenants = [pausing, Tenant::of(50, &[0]), Tenant::of(50, &[1])];
    let mut node = Node::new(&tenants, leases(), 1);
    node.run(10 * SECOND);
    let parts: Vec<f64> = (0..3).map(|tenant| node.part(tenant)).collect();
    assert!(parts.iter().skip(1).all(|part| *part > 50.0) && parts[0] > 25.0, "{parts:?}");
}

#[test]
fn classes_hold_between_gangs_and_single_shares() {
    // A best-effort share has the time in which a gang waits for its other GPU, and no more.
    let tenants =
        [Tenant::of(50, &[0, 1]), Tenant::of(50, &[1]), Tenant::of(50, &[0]).class(BestEffort)];
    let mut node = Node::new(&tenants, leases(), 1);
    node.run(10 * SECOND);
    let parts: Vec<f64> = (0..3).map(|tenant| node.part(tenant)).collect();
    assert!(parts[0] > 46.0 && parts[2] > 25.0, "{parts:?}");
    // A latency-critical server on one GPU does not stop the gang.
    let server =
        Tenant::of(50, &[0]).class(LatencyCritical).pauses(3 * MILLISECOND, 17 * MILLISECOND);
    let tenants = [Tenant::of(50, &[0, 1]), server];
    let mut node = Node::new(&tenants, leases(), 1);
    node.run(10 * SECOND);
    assert!(node.part(0) > 65.0 && node.part(1) > 10.0, "{} {}", node.part(0), node.part(1));
    // A best-effort gang has what others leave on all its GPUs.
    let tenants = [
        Tenant::of(50, &[0, 1]).class(BestEffort),
        Tenant::of(50, &[0]).pauses(20 * MILLISECOND, 60 * MILLISECOND),
    ];
    let mut node = Node::new(&tenants, leases(), 1);
    node.run(10 * SECOND);
    assert!(node.part(0) > 50.0 && node.part(1) > 22.0, "{} {}", node.part(0), node.part(1));
}

#[test]
fn the_same_seed_gives_the_same_times() {
    let run = |seed| {
        let tenants = [Tenant::of(50, &[0, 1]), Tenant::of(50, &[0]), Tenant::of(50, &[1])];
        let mut node = Node::new(&tenants, leases(), seed);
        node.run(SECOND);
        (node.useful(0), node.useful(1), node.useful(2))
    };
    assert_eq!(run(7), run(7));
}
