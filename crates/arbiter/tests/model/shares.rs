//! Each share has its part of the time.

use crate::decide::{Decide, Equal, Leases, Undrained, Unguarded};
use crate::machine::{MICROSECOND, MILLISECOND, Machine, SECOND, Share, Work};

/// Runs shares for ten seconds. Fails unless each has its part within a point, and less than 2% of the time is wasted.
fn check(shares: &[Share], decide: impl Decide, seed: u64) -> Result<(), String> {
    let mut machine = Machine::new(shares, decide, seed);
    machine.run(10 * SECOND);
    let parts = machine.parts();
    let wanted: Vec<f64> =
        shares.iter().map(|share| f64::from(share.terms.request.0) / 1_000.0).collect();
    let busy: f64 = parts.iter().sum();
    for (part, wanted) in parts.iter().zip(&wanted) {
        // Of the time that the GPU served.
        let part = 100.0 * part / busy;
        if (part - wanted).abs() > 1.0 {
            return Err(format!("{parts:.2?} of {wanted:?}"));
        }
    }
    if machine.wasted_part() > 2.0 {
        return Err(format!("{:.2}% idle while others wait", machine.wasted_part()));
    }
    Ok(())
}

fn mixes() -> Vec<(&'static str, Vec<Share>)> {
    vec![
        ("30/70", vec![Share::of(30), Share::of(70)]),
        ("50/25/25", vec![Share::of(50), Share::of(25), Share::of(25)]),
        ("10/90", vec![Share::of(10), Share::of(90)]),
        ("eight", vec![Share::eighth(); 8]),
        ("three processes beside one", vec![Share::of(50).processes(3), Share::of(50)]),
        (
            "long kernels beside short ones",
            vec![
                Share::of(50).work(Work::Endless { kernel: 3 * MILLISECOND }),
                Share::of(50).work(Work::Endless { kernel: 20 * MICROSECOND }),
            ],
        ),
    ]
}

#[test]
fn each_share_has_its_part_within_a_point() {
    for (name, shares) in mixes() {
        for seed in 0..3 {
            check(&shares, Leases::new(), seed).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_times() {
    let run = |seed| {
        let mut machine = Machine::new(&[Share::of(30), Share::of(70)], Leases::new(), seed);
        machine.run(2 * SECOND);
        (machine.served(0), machine.served(1))
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8), "durations are random");
}

/// The check is one that others fail.
#[test]
fn neither_the_driver_alone_nor_a_broken_arbiter_passes() {
    for (name, shares) in mixes() {
        let is_even = ["eight", "long kernels beside short ones"].contains(&name);
        let unguarded = check(&shares, Unguarded, 1);
        assert!(unguarded.is_err() || is_even, "{name}: the driver's own slices pass");
        let equal = check(&shares, Equal(Leases::new()), 1);
        let is_equal = is_even || name == "three processes beside one";
        assert_eq!(equal.is_ok(), is_equal, "{name}: {equal:?}");
    }
    let shares = [Share::of(30), Share::of(70).processes(3)];
    check(&shares, Leases::new(), 1).unwrap();
    check(&shares, Undrained(Leases::new()), 1).expect_err("both run, and the driver divides");
}

#[test]
fn an_elastic_share_takes_what_others_leave() {
    let half_idle =
        Work::Requests { every: 20 * MILLISECOND, kernels: 20, kernel: 100 * MICROSECOND };
    let mut machine =
        Machine::new(&[Share::of(30), Share::of(70).work(half_idle)], Leases::new(), 1);
    machine.run(10 * SECOND);
    let parts = machine.parts();
    assert!((9.0..11.0).contains(&parts[1]), "it has all that it wants: {parts:?}");
    assert!(parts[0] > 84.0, "and the other one the rest: {parts:?}");
    assert!(machine.wasted_part() < 2.0, "{}", machine.wasted_part());
}

#[test]
fn a_strict_share_stays_below_its_limit_on_an_idle_gpu() {
    for percent in [5, 30, 80] {
        let mut machine = Machine::new(&[Share::of(percent).strict()], Leases::new(), 1);
        machine.run(10 * SECOND);
        let part = machine.parts()[0];
        assert!((part - f64::from(percent)).abs() < 1.0, "{part} of {percent}");
    }
}

#[test]
fn a_limit_above_the_request_is_kept() {
    let mut limited = Share::of(20);
    limited.terms.limit = Some(octavo_api::config::ComputePart(40_000));
    let idle_until = 5 * SECOND;
    let mut machine = Machine::new(&[limited, Share::of(80).from(idle_until)], Leases::new(), 1);
    machine.run(idle_until);
    let alone = machine.parts()[0];
    assert!((alone - 40.0).abs() < 1.0, "{alone}");
    machine.run(15 * SECOND);
    let contended = 100.0 * (machine.served(0) as f64 / 1e9 - alone / 20.0) / 10.0;
    assert!((contended - 20.0).abs() < 1.5, "{contended}");
}

#[test]
fn strict_and_elastic_shares_have_their_parts_beside_each_other() {
    let shares = [Share::of(25).strict(), Share::of(25), Share::of(50)];
    check(&shares, Leases::new(), 1).unwrap();
    // A quarter that is left goes to the elastic one.
    let mut machine = Machine::new(&[Share::of(25).strict(), Share::of(50)], Leases::new(), 1);
    machine.run(10 * SECOND);
    let parts = machine.parts();
    assert!((parts[0] - 25.0).abs() < 1.0 && parts[1] > 73.0, "{parts:?}");
}

#[test]
fn a_share_that_was_away_does_not_take_the_gpu_for_the_time_it_missed() {
    let mut machine =
        Machine::new(&[Share::of(50), Share::of(50).from(5 * SECOND)], Leases::new(), 1);
    machine.run(5 * SECOND);
    let before = machine.served(0);
    machine.run(6 * SECOND);
    let part = 100.0 * (machine.served(0) - before) as f64 / 1e9;
    assert!((44.0..52.0).contains(&part), "{part}");
}
