//! Best-effort work beside a latency-critical share.

use octavo_api::config::ShareClass::{BestEffort, LatencyCritical};

use crate::decide::{Decide, Fixed, Leases};
use crate::machine::{MICROSECOND, MILLISECOND, Machine, SECOND, Share, Work};

/// An inference server of one request in 20 ms that takes 3 ms.
fn server() -> Share {
    let work = Work::Requests { every: 20 * MILLISECOND, kernels: 15, kernel: 200 * MICROSECOND };
    Share::of(30).class(LatencyCritical).work(work)
}

/// A best-effort training.
fn training(kernel: u64) -> Share {
    Share::of(70).class(BestEffort).work(Work::Endless { kernel })
}

/// Fails if one percent of the server's requests take longer than 1.2 times what they take alone. Returns the part of the training.
fn check(kernel: u64, decide: impl Decide, seed: u64) -> Result<f64, String> {
    let mut alone = Machine::new(&[server()], Leases::new(), seed);
    alone.run(20 * SECOND);
    let mut machine = Machine::new(&[server(), training(kernel)], decide, seed);
    machine.run(20 * SECOND);
    let (alone, beside) = (alone.p99(0), machine.p99(0));
    if beside * 10 > alone * 12 {
        return Err(format!("{beside} ns, and alone {alone}; parts are {:?}", machine.parts()));
    }
    Ok(machine.parts()[1])
}

#[test]
fn best_effort_work_beside_a_critical_share_is_hardly_seen() {
    for seed in 0..3 {
        for kernel in [20, 50, 100, 200].map(|kernel| kernel * MICROSECOND) {
            // The server takes 15.
            let part = check(kernel, Leases::new(), seed)
                .unwrap_or_else(|error| panic!("kernels of {kernel} ns, seed {seed}: {error}"));
            assert!(part > 79.0, "kernels of {kernel} ns, seed {seed}: {part}");
        }
    }
}

/// The check is one that others fail.
#[test]
fn best_effort_work_that_is_not_paced_is_seen() {
    for cap in [4, 64] {
        check(100 * MICROSECOND, Fixed(cap), 1).expect_err("it runs while the server does");
    }
}

#[test]
fn long_kernels_are_kept_from_running_beside_a_critical_share() {
    let mut machine = Machine::new(&[server(), training(5 * MILLISECOND)], Leases::new(), 1);
    machine.run(20 * SECOND);
    let parts = machine.parts();
    assert!((14.0..16.0).contains(&parts[0]) && parts[1] > 60.0, "{parts:?}");
}
