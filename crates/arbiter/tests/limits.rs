//! Limits, for a share whose work is seen only now and then: short batches end between two looks.

use octavo_api::config::{ComputePart, ShareClass};
use octavo_arbiter::{Activity, Arbiter, Lease, MILLISECOND, Settings, Terms};

/// Runs a share alone for a time. It launches whenever it has a lease. It is seen at its launches in one of `every` looks.
/// Returns the part of the time in which it had a lease, in percent, and the looks.
fn lease_part(limit: Option<u32>, every: u64, time: u64) -> (u64, u64) {
    let terms = Terms {
        request: ComputePart(30_000),
        limit: limit.map(ComputePart),
        class: ShareClass::Normal,
        quantum: None,
    };
    let mut arbiter = Arbiter::new(Settings::default(), 0);
    arbiter.set_shares([((), terms)]);
    let (mut now, mut held, mut looks) = (0, 0, 0);
    while now < time {
        looks += 1;
        let has_lease = arbiter.lease(&()) != Lease::None;
        let is_seen = looks % every == 0;
        let activity = Activity {
            processes: 1,
            running: u32::from(has_lease && is_seen),
            is_waiting: !has_lease,
            completed: if has_lease { looks } else { 0 },
        };
        let next = arbiter.step(now, |()| activity);
        let next = next.unwrap_or(time).min(time);
        if arbiter.lease(&()) != Lease::None {
            held += next - now;
        }
        now = next;
    }
    (held * 100 / time, looks)
}

#[test]
fn a_limit_holds_on_an_idle_gpu() {
    for every in [1, 2, 5] {
        let (part, looks) = lease_part(Some(40_000), every, 10_000 * MILLISECOND);
        assert!((37..=43).contains(&part), "{part} % of the time, seen in one of {every} looks");
        assert!(looks > 5_000, "{looks} looks");
    }
}

#[test]
fn without_a_limit_a_share_alone_is_looked_at_seldom() {
    let (part, looks) = lease_part(None, 1, 10_000 * MILLISECOND);
    assert_eq!(part, 100);
    assert!(looks < 10, "{looks} looks");
}

#[test]
fn a_share_with_a_limit_that_is_idle_gives_its_lease_back_and_sleeps() {
    let mut arbiter = Arbiter::new(Settings::default(), 0);
    let limit = Some(ComputePart(40_000));
    let terms =
        Terms { request: ComputePart(30_000), limit, class: ShareClass::Normal, quantum: None };
    arbiter.set_shares([((), terms)]);
    let idle = Activity { processes: 1, ..Activity::default() };
    let mut next = arbiter.step(0, |()| Activity { is_waiting: true, ..idle });
    let mut looks = 0;
    while let Some(now) = next {
        next = arbiter.step(now, |()| idle);
        looks += 1;
        assert!(looks < 200, "it is looked at for ever");
    }
    assert_eq!(arbiter.lease(&()), Lease::None);
}
