//! The time of work on nodes, and what may begin before it.

use std::collections::BTreeMap;

use super::Plan;

/// When work on nodes is done, in seconds since 1970. The end is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    /// Its begin.
    pub start: u64,
    /// Its end, which is later.
    pub end: u64,
}

impl Window {
    /// Whether the work may be done at a time.
    pub fn is_open(self, now: u64) -> bool {
        (self.start..self.end).contains(&now)
    }

    /// Whether it is over at a time.
    pub fn is_over(self, now: u64) -> bool {
        self.end <= now
    }

    /// Whether what begins at a time and lasts at most some seconds is out of the way. `None`: nothing says how long it lasts. What
    /// gives way when asked needs no room.
    pub fn leaves_room(self, now: u64, lasts: Option<u64>) -> bool {
        let ends_before = lasts.is_some_and(|lasts| now.saturating_add(lasts) <= self.start);
        self.is_over(now) || ends_before
    }
}

/// The windows of a node that are not over at a time, with the names of their maintenances, soonest first. `plans` are those that are
/// valid, by name.
pub fn windows_of<'a>(
    plans: impl IntoIterator<Item = (&'a str, &'a Plan)>,
    node: &str,
    labels: &BTreeMap<String, String>,
    now: u64,
) -> Vec<(Window, &'a str)> {
    let plans = plans.into_iter();
    let of_node = plans.filter(|(_, plan)| !plan.window.is_over(now) && plan.selects(node, labels));
    let mut windows: Vec<_> = of_node.map(|(name, plan)| (plan.window, name)).collect();
    windows.sort_unstable();
    windows
}
