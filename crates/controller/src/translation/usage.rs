//! When a claim template was last needed, and what follows from it.
//!
//! The webhook renews the time before it admits a pod, once half of the time to keep is over. A template that was fresh then is kept
//! for the other half, in which the pod comes to be seen. So none is collected under a pod that was just admitted.

#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;

/// What is due for a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing.
    Nothing,
    /// Its time is renewed if a pod needs it.
    Renewal,
    /// It is renewed if a pod needs it, and otherwise deleted.
    Collection,
}

/// What is due for a template that was last needed at `last_used`, an RFC 3339 time. One without a time, or with one that is not
/// valid, is as one that was never needed. `keep` is the time that templates stay without a pod.
pub(crate) fn due(last_used: Option<&str>, keep: Duration, now: Timestamp) -> Due {
    let Some(last_used) = last_used.and_then(|text| text.parse::<Timestamp>().ok()) else {
        return Due::Collection;
    };
    // Another clock may be ahead.
    let age = Duration::try_from(now.duration_since(last_used)).unwrap_or_default();
    if age >= keep {
        Due::Collection
    } else if age >= keep / 2 {
        Due::Renewal
    } else {
        Due::Nothing
    }
}
