//! Divides the time of one GPU among its shares.
//!
//! A share that launches work needs a *lease*. The [`Arbiter`] gives one share at a time the lease, for a quantum at
//! least. Each share has a balance: the GPU time that is due to it, less the time that it used. A negative balance is a
//! debt. The next lease goes to the share with the highest balance, measured by its request.
//!
//! ```text
//! activity of each share --+                          +--> lease of each share: none, capped, free
//!                          +--> Arbiter::step(now) ---+
//! terms of each share -----+                          +--> when to call it again
//! ```
//!
//! The arbiter reads no clock and does no I/O: the same calls give the same leases. It follows deficit round robin
//! (Shreedhar and Varghese, 1995) with debt, and picks by balance where that visits its queues in a ring. So a share
//! waits for its own turn, and not for a round.
//!
//! ```text
//! terms     what a share asks for: request, limit, class
//! settings  quanta, and the other times
//! account   balance, allowance and activity of one share
//! charge    who pays for a time that has passed, and what became due in it
//! beside    best-effort work beside latency-critical shares
//! turn      which share is next, and when a turn ends
//! node      the arbiters of a node's GPUs
//! gangs     shares of one claim on several GPUs, which have their turns together
//! ```
//!
//! All times are in nanoseconds.

#![forbid(unsafe_code)]

mod account;
mod beside;
mod charge;
mod gangs;
mod node;
mod settings;
mod terms;
mod turn;

use std::collections::BTreeMap;

pub use account::{Activity, ShareTime};
pub use node::{Node, NodeShare};
pub use octavo_guard_abi::lease_page::Lease;
pub use settings::Settings;
pub use terms::Terms;

use account::Account;

/// A millisecond in nanoseconds.
pub const MILLISECOND: u64 = 1_000_000;

/// The shares of one GPU, and whose turn it is. `K` names a share.
#[derive(Clone, Debug)]
pub struct Arbiter<K> {
    settings: Settings,
    shares: BTreeMap<K, Account>,
    /// When time was last charged.
    now: u64,
    /// Whether a gang waits for this GPU.
    is_wanted: bool,
}

impl<K: Ord + Clone> Arbiter<K> {
    /// An arbiter without shares, at a point in time.
    pub fn new(settings: Settings, now: u64) -> Self {
        Self { settings, shares: BTreeMap::new(), now, is_wanted: false }
    }

    /// Takes the shares that there are now. A share that is known keeps its balance and its lease.
    pub fn set_shares(&mut self, shares: impl IntoIterator<Item = (K, Terms)>) {
        let shares: BTreeMap<K, Terms> = shares.into_iter().collect();
        self.shares.retain(|key, _| shares.contains_key(key));
        for (key, terms) in shares {
            let account = self.shares.entry(key).or_insert_with(|| Account::new(terms));
            account.set_terms(terms);
        }
    }

    /// Charges the time since the last step, and gives or ends leases. `activity` is that of each share now. Returns
    /// when the next step is due; `None` if none is until a share's activity changes.
    ///
    /// A step is due at once when a share begins to wait, has drained, or loses a process.
    pub fn step(&mut self, now: u64, activity: impl Fn(&K) -> Activity) -> Option<u64> {
        self.observe(now, activity);
        self.end_turns();
        self.begin_turn();
        self.set_freedom();
        self.next_step()
    }

    /// Takes what each share does now, and charges the time since the last step.
    fn observe(&mut self, now: u64, activity: impl Fn(&K) -> Activity) {
        let now = now.max(self.now);
        let completed: Vec<u64> = self.shares.values().map(|it| it.activity.completed).collect();
        for (key, account) in &mut self.shares {
            account.observe(now, activity(key));
        }
        self.pace(now, &completed);
        self.charge(now - self.now);
        self.now = now;
    }

    /// The lease of a share; none if the share is unknown.
    pub fn lease(&self, key: &K) -> Lease {
        self.shares.get(key).map_or(Lease::None, |account| self.lease_of(account))
    }

    /// What each share had of the GPU's time so far.
    pub fn times(&self) -> impl Iterator<Item = (&K, ShareTime)> {
        self.shares.iter().map(|(key, account)| (key, account.time(self.now)))
    }
}
