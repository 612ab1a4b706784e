//! Tenants that die, do not stop, or lie.

use octavo_api::config::ComputePart;
use octavo_api::config::ShareClass::{BestEffort, LatencyCritical};
use octavo_arbiter::{Activity, Arbiter, Lease, Settings, Terms};

use crate::decide::Leases;
use crate::machine::{MILLISECOND, Machine, SECOND, Share, Work};

#[test]
fn the_lease_of_a_dead_holder_is_back_at_once() {
    for at in 0..40 {
        let mut machine = Machine::new(&[Share::of(90), Share::of(10)], Leases::new(), at);
        machine.run(SECOND + at * 3 * MILLISECOND);
        machine.kill(0);
        let killed = machine.now();
        let before = machine.served(1);
        machine.run(killed + 100 * MILLISECOND);
        let served = machine.served(1) - before;
        assert!(served > 90 * MILLISECOND, "{served} ns of the 100 ms after the death");
    }
}

#[test]
fn a_long_kernel_is_paid_for_and_no_process_is_killed() {
    let long = Work::Endless { kernel: 500 * MILLISECOND };
    let shares = [Share::of(50).work(long), Share::of(50)];
    let mut machine = Machine::new(&shares, Leases::new(), 1);
    machine.run(60 * SECOND);
    let parts = machine.parts();
    assert!((parts[0] - 50.0).abs() < 6.0, "half, but for a kernel or two: {parts:?}");
    assert!(machine.wasted_part() < 2.0, "{}", machine.wasted_part());
}

#[test]
fn an_endless_kernel_does_not_stop_the_arbiter() {
    let endless = Work::Endless { kernel: 1 << 50 };
    let shares = [Share::of(50), Share::of(50).work(endless)];
    let mut machine = Machine::new(&shares, Leases::new(), 1);
    machine.run(2 * SECOND);
    assert_ne!(machine.decider().0.lease(&0), Lease::None, "it may launch beside it");
    let (_, time) = machine.decider().0.times().nth(1).unwrap();
    assert!(time.debt > 900 * MILLISECOND, "{time:?}");
    machine.kill(1);
    let before = machine.served(0);
    machine.run(3 * SECOND);
    assert!(machine.served(0) - before > 990 * MILLISECOND);
}

const NORMAL: Terms = Terms {
    request: ComputePart(50_000),
    limit: None,
    class: octavo_api::config::ShareClass::Normal,
    quantum: None,
};

/// A share that waits, and nothing else.
const WAITS: Activity = Activity { processes: 1, running: 0, is_waiting: true, completed: 0 };

#[test]
fn a_tenant_that_never_drains_is_passed_after_two_quanta() {
    let mut arbiter = Arbiter::new(Settings::default(), 0);
    arbiter.set_shares([("hostile", NORMAL), ("other", NORMAL)]);
    let hostile = Activity { running: 1, ..WAITS };
    let step = |arbiter: &mut Arbiter<&str>, now, other| {
        arbiter.step(now, |key| if *key == "hostile" { hostile } else { other })
    };
    step(&mut arbiter, 0, Activity::default());
    assert_eq!(arbiter.lease(&"hostile"), Lease::Free);
    step(&mut arbiter, SECOND, WAITS);
    assert_eq!((arbiter.lease(&"hostile"), arbiter.lease(&"other")), (Lease::None, Lease::None));
    let mut now = SECOND;
    while arbiter.lease(&"other") == Lease::None {
        let next = step(&mut arbiter, now, WAITS);
        now = next.expect("a share waits");
        assert!(now <= SECOND + 42 * MILLISECOND);
    }
    assert!(now >= SECOND + 40 * MILLISECOND);
    // What it runs is its part of the time, so it has no turn while the other wants its own.
    let mut completed = 0;
    while now < 10 * SECOND {
        completed += 1;
        let other = Activity { running: 1, completed, ..WAITS };
        now = step(&mut arbiter, now, other).expect("a share waits");
        assert_eq!(arbiter.lease(&"hostile"), Lease::None);
    }
    // It may be one process of several that hangs. The rest have the time that the other leaves.
    let idle = Activity { is_waiting: false, ..WAITS };
    while arbiter.lease(&"hostile") == Lease::None {
        now = step(&mut arbiter, now, idle).expect("a share waits");
        assert!(now < 11 * SECOND, "it never has a turn again");
    }
}

#[test]
fn a_process_that_is_stopped_while_it_waits_keeps_no_other_waiting() {
    let mut arbiter = Arbiter::new(Settings::default(), 0);
    arbiter.set_shares([("other", NORMAL), ("stopped", NORMAL)]);
    let (mut now, mut held) = (0, 0);
    while now < 10 * SECOND {
        let runs = arbiter.lease(&"other") != Lease::None;
        let other = Activity { running: u32::from(runs), ..WAITS };
        let next = arbiter.step(now, |key| if *key == "stopped" { WAITS } else { other });
        let next = next.expect("a share waits");
        held += if arbiter.lease(&"other") == Lease::None { 0 } else { next - now };
        now = next;
    }
    assert!(held > 4 * SECOND, "{held}");
}

#[test]
fn a_clock_that_goes_back_stands_still() {
    let mut arbiter = Arbiter::new(Settings::default(), SECOND);
    arbiter.set_shares([("share", NORMAL)]);
    assert_eq!(arbiter.step(0, |_| WAITS), None, "it is alone, and has its lease");
    assert_eq!(arbiter.lease(&"share"), Lease::Free);
}

#[test]
fn a_share_that_is_gone_takes_its_turn_with_it() {
    let mut arbiter = Arbiter::new(Settings::default(), 0);
    arbiter.set_shares([("one", NORMAL), ("other", NORMAL)]);
    arbiter.step(0, |_| WAITS);
    assert_ne!(arbiter.lease(&"one"), Lease::None);
    arbiter.set_shares([("other", NORMAL)]);
    arbiter.step(1, |_| WAITS);
    assert_eq!((arbiter.lease(&"one"), arbiter.lease(&"other")), (Lease::None, Lease::Free));
}

#[test]
fn a_change_of_class_takes_effect_in_the_next_step() {
    let mut arbiter = Arbiter::new(Settings::default(), 0);
    let with = |class| [("one", Terms { class, ..NORMAL }), ("other", NORMAL)];
    arbiter.set_shares(with(BestEffort));
    arbiter.step(10 * MILLISECOND, |_| WAITS);
    assert_ne!(arbiter.lease(&"other"), Lease::None);
    arbiter.set_shares(with(LatencyCritical));
    arbiter.step(11 * MILLISECOND, |_| WAITS);
    arbiter.step(11 * MILLISECOND, |_| WAITS);
    assert_ne!(arbiter.lease(&"one"), Lease::None);
}

#[test]
fn a_long_turn_that_ends_idle_leaves_no_debt() {
    let critical = Terms { class: octavo_api::config::ShareClass::LatencyCritical, ..NORMAL };
    let mut arbiter = Arbiter::new(Settings::default(), 0);
    // A latency-critical share keeps the holder from a free lease, and so from being taken to run.
    arbiter.set_shares([("critical", critical), ("holder", NORMAL), ("other", NORMAL)]);
    let idle = Activity { is_waiting: false, ..WAITS };
    let runs = Activity { running: 1, ..WAITS };
    let step = |arbiter: &mut Arbiter<&str>, now, holder, other| {
        arbiter.step(now, |key| match *key {
            "holder" => holder,
            "other" => other,
            _ => idle,
        })
    };
    step(&mut arbiter, 0, WAITS, idle);
    for second in 1..60 {
        step(&mut arbiter, second * SECOND, runs, idle);
    }
    for second in 60..63 {
        step(&mut arbiter, second * SECOND, idle, idle);
    }
    step(&mut arbiter, 63 * SECOND, idle, WAITS);
    // Both want time from now on.
    let (mut now, mut held) = (63 * SECOND, 0);
    while now < 68 * SECOND {
        let of = |key| if arbiter.lease(&key) == Lease::None { WAITS } else { runs };
        let (holder, other) = (of("holder"), of("other"));
        let next = step(&mut arbiter, now, holder, other).expect("a share waits");
        held += if arbiter.lease(&"holder") == Lease::None { 0 } else { next - now };
        now = next;
    }
    assert!(held > 2 * SECOND, "{held} of five seconds");
}
