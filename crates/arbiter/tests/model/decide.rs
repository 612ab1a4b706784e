//! Who decides: the arbiter, and others that must not pass for it.

use std::collections::BTreeMap;

use octavo_api::config::ComputePart;
use octavo_arbiter::{Activity, Arbiter, Lease, Settings, Terms};

/// Gives leases to tenants.
pub(crate) trait Decide {
    fn begin(&mut self, terms: &[Terms]);
    /// The lease of each tenant, and when to be asked again.
    fn step(&mut self, now: u64, activities: &[Activity]) -> (Vec<Lease>, Option<u64>);
}

/// The arbiter.
pub(crate) struct Leases(pub(crate) Arbiter<usize>);

impl Leases {
    pub(crate) fn new() -> Self {
        Self(Arbiter::new(Settings::default(), 0))
    }
}

impl Decide for Leases {
    fn begin(&mut self, terms: &[Terms]) {
        self.0.set_shares(terms.iter().copied().enumerate());
    }

    fn step(&mut self, now: u64, activities: &[Activity]) -> (Vec<Lease>, Option<u64>) {
        let next = self.0.step(now, |tenant| activities[*tenant]);
        let leases: BTreeMap<usize, Lease> =
            (0..activities.len()).map(|tenant| (tenant, self.0.lease(&tenant))).collect();
        (leases.into_values().collect(), next)
    }
}

/// No guard: everybody launches, and the driver divides the time.
pub(crate) struct Unguarded;

impl Decide for Unguarded {
    fn begin(&mut self, _: &[Terms]) {}

    fn step(&mut self, _: u64, activities: &[Activity]) -> (Vec<Lease>, Option<u64>) {
        (vec![Lease::Free; activities.len()], None)
    }
}

/// A broken arbiter: the second tenant always runs beside the first, with a fixed cap.
pub(crate) struct Fixed(pub(crate) u32);

impl Decide for Fixed {
    fn begin(&mut self, _: &[Terms]) {}

    fn step(&mut self, _: u64, _: &[Activity]) -> (Vec<Lease>, Option<u64>) {
        (vec![Lease::Capped(64), Lease::Capped(self.0)], None)
    }
}

/// A broken arbiter: it takes all shares for equal, and of one class.
pub(crate) struct Equal(pub(crate) Leases);

impl Decide for Equal {
    fn begin(&mut self, terms: &[Terms]) {
        let part = ComputePart(ComputePart::WHOLE.0 / terms.len() as u32);
        let equal = Terms {
            request: part,
            limit: None,
            class: octavo_api::config::ShareClass::Normal,
            quantum: None,
        };
        self.0.begin(&vec![equal; terms.len()]);
    }

    fn step(&mut self, now: u64, activities: &[Activity]) -> (Vec<Lease>, Option<u64>) {
        self.0.step(now, activities)
    }
}

/// A broken arbiter: it takes a lease back by word alone, and lets the next share begin beside the last.
pub(crate) struct Undrained(pub(crate) Leases);

impl Decide for Undrained {
    fn begin(&mut self, terms: &[Terms]) {
        self.0.begin(terms);
    }

    fn step(&mut self, now: u64, activities: &[Activity]) -> (Vec<Lease>, Option<u64>) {
        let claimed: Vec<Activity> =
            activities.iter().map(|activity| Activity { running: 0, ..*activity }).collect();
        self.0.step(now, &claimed)
    }
}
