//! How long shares wait.

use octavo_api::config::ShareClass::{BestEffort, LatencyCritical, Normal};
use octavo_arbiter::Lease;

use crate::decide::{Decide, Equal, Leases};
use crate::machine::{MICROSECOND, MILLISECOND, Machine, SECOND, Share, Work};

/// An inference server of one request in 20 ms that takes 3 ms, with 30% of the GPU.
fn server() -> Share {
    let work = Work::Requests { every: 20 * MILLISECOND, kernels: 15, kernel: 200 * MICROSECOND };
    Share::of(30).class(LatencyCritical).work(work)
}

/// Fails if the server ever waits longer than its quantum and the longest kernel of the other.
fn check(other: Share, decide: impl Decide, seed: u64) -> Result<(), String> {
    let Work::Endless { kernel } = other.work else { return Err("it is a training".to_owned()) };
    let mut machine = Machine::new(&[server(), other], decide, seed);
    machine.run(10 * SECOND);
    let longest_kernel = kernel * 3 / 2;
    let (waited, most) = (machine.longest_wait(0), 5 * MILLISECOND + longest_kernel);
    if waited > most {
        return Err(format!("it waited {waited} ns, at most {most} are right"));
    }
    let parts = machine.parts();
    // The server takes 15. A best-effort share begins two milliseconds after each of its requests.
    let least = if other.terms.class == BestEffort { 70.0 } else { 80.0 };
    if parts[1] < least {
        return Err(format!("the other one has {parts:?}"));
    }
    Ok(())
}

#[test]
fn a_latency_critical_share_waits_for_a_quantum_and_a_kernel() {
    for seed in 0..3 {
        for class in [Normal, BestEffort] {
            for kernel in [20 * MICROSECOND, 500 * MICROSECOND, 5 * MILLISECOND] {
                let other = Share::of(70).class(class).work(Work::Endless { kernel });
                check(other, Leases::new(), seed)
                    .unwrap_or_else(|error| panic!("{class:?}, kernels of {kernel} ns: {error}"));
            }
        }
    }
}

/// Without a lease there is no wait for one: the wait is inside the GPU, and shows as time.
#[test]
fn a_broken_arbiter_lets_it_wait() {
    let other = Share::of(70).work(Work::Endless { kernel: 500 * MICROSECOND });
    check(other, Equal(Leases::new()), 1).expect_err("classes are not looked at");
}

#[test]
fn a_latency_critical_share_beyond_its_part_is_one_like_others() {
    let greedy = Share::of(20).class(LatencyCritical);
    for other in [Normal, LatencyCritical] {
        let mut machine = Machine::new(&[greedy, Share::of(80).class(other)], Leases::new(), 1);
        machine.run(10 * SECOND);
        let parts = machine.parts();
        assert!((parts[0] - 20.0).abs() < 1.5 && parts[1] > 76.0, "{other:?}: {parts:?}");
    }
}

#[test]
fn best_effort_has_only_what_others_leave() {
    let shares = [Share::of(40), Share::of(60).class(BestEffort)];
    let mut machine = Machine::new(&shares, Leases::new(), 1);
    machine.run(5 * SECOND);
    assert!(machine.parts()[0] > 99.0, "{:?}", machine.parts());
    let half = Work::Requests { every: 40 * MILLISECOND, kernels: 100, kernel: 200 * MICROSECOND };
    let mut machine = Machine::new(&[shares[0].work(half), shares[1]], Leases::new(), 1);
    machine.run(10 * SECOND);
    let parts = machine.parts();
    assert!((48.0..53.0).contains(&parts[0]) && parts[1] > 38.0, "{parts:?}");
    // Two of them divide by their numbers.
    let shares = [Share::of(25).class(BestEffort), Share::of(75).class(BestEffort)];
    let mut machine = Machine::new(&shares, Leases::new(), 1);
    machine.run(20 * SECOND);
    assert!((machine.parts()[0] - 25.0).abs() < 1.5, "{:?}", machine.parts());
}

#[test]
fn a_share_alone_has_no_cap() {
    let mut machine =
        Machine::new(&[Share::of(30), Share::of(70).from(3 * SECOND)], Leases::new(), 1);
    machine.run(SECOND);
    assert_eq!(machine.decider().0.lease(&0), Lease::Free);
    machine.run(3 * SECOND + 50 * MILLISECOND);
    assert_ne!(machine.decider().0.lease(&0), Lease::Free, "the other one has begun");
    assert!(machine.longest_wait(1) < 300 * MILLISECOND, "1,024 kernels are in flight at most");
    machine.kill(1);
    machine.run(5 * SECOND);
    assert_eq!(machine.decider().0.lease(&0), Lease::Free, "it is alone again");
}
