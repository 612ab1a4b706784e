//! Quanta of single shares.

use octavo_api::config::{ComputePart, ShareClass};
use octavo_arbiter::{Activity, Arbiter, Lease, MILLISECOND, Settings, Terms};

/// Turns of the first of two equal shares within a second. Both always have work.
fn turns(class: ShareClass, quantum: Option<u64>) -> u64 {
    let terms = Terms { request: ComputePart(50_000), limit: None, class, quantum };
    let mut arbiter = Arbiter::new(Settings::default(), 0);
    arbiter.set_shares([(0, terms), (1, terms)]);
    let mut now = 0;
    while now < 1_000 * MILLISECOND {
        let activities = [0, 1].map(|key| {
            let has_lease = arbiter.lease(&key) != Lease::None;
            Activity {
                processes: 1,
                running: u32::from(has_lease),
                is_waiting: !has_lease,
                completed: if has_lease { now } else { 0 },
            }
        });
        let next = arbiter.step(now, |key| activities[*key]);
        now = next.unwrap_or(u64::MAX).max(now + 1);
    }
    arbiter.times().find(|(key, _)| **key == 0).map_or(0, |(_, time)| time.turns)
}

#[test]
fn a_share_may_have_another_quantum_than_its_class() {
    let by_class = turns(ShareClass::Normal, None);
    assert_eq!(turns(ShareClass::Normal, Some(20 * MILLISECOND)), by_class);
    let short = turns(ShareClass::Normal, Some(5 * MILLISECOND));
    let long = turns(ShareClass::Normal, Some(100 * MILLISECOND));
    assert!(short > 2 * by_class && by_class > 2 * long, "{short}, {by_class}, {long} turns");
}
