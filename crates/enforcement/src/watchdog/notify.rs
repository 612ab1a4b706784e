//! Reports to people: events, conditions, and their texts.

pub(super) mod event_throttle;
pub(super) mod logged;
pub(super) mod messages;
pub(super) mod notifier;
pub(super) mod swaps;
