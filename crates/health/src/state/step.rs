//! One step of a device's state.

use super::{Rules, State, Track};
use crate::reason::Reason;
use crate::remedy::Remedy;
use crate::signal::{Attempt, Outcome, Word};

/// What happens to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A warning.
    Warned(Reason),
    /// A sign that it may be at fault.
    Suspected {
        /// The sign.
        reason: Reason,
        /// What it needs.
        needs: Remedy,
        /// Whether the sign is its own, or of a part around it.
        is_own: bool,
    },
    /// A fault.
    Failed {
        /// The fault.
        reason: Reason,
        /// What it needs.
        needs: Remedy,
        /// Whether the fault is its own, or of a part around it.
        is_own: bool,
    },
    /// A remedy begins; its clients are gone.
    RemedyBegins {
        /// Which.
        remedy: Remedy,
        /// Its number.
        attempt: Attempt,
        /// Whether the device itself needs it. Otherwise it makes room for the remedy of another one.
        is_own: bool,
    },
    /// Its test begins; its clients are gone.
    TestBegins(Attempt),
    /// A remedy or test ended.
    Ended {
        /// Which.
        attempt: Attempt,
        /// How.
        outcome: Outcome,
    },
    /// Others applied a remedy: it was no attempt.
    RemediedByOthers,
    /// An operator decided.
    Word(Word),
    /// Time passed.
    Time,
}

/// The device after an event. An event that does not fit the state changes nothing, so a report that comes twice does no harm.
///
/// A time before the last change counts as the time of the change; [`Event::Time`] restarts the limits from it.
/// What was seen before a test is no result of it.
#[must_use]
pub fn step(track: &Track, rules: &Rules, event: Event, now: u64) -> Track {
    if is_before_test(track, event, now) {
        return *track;
    }
    if event == Event::Time && now < track.since {
        return Track { since: now, ..*track };
    }
    let now = now.max(track.since);
    let changed = match event {
        Event::Warned(reason) => warned(track, reason, now),
        Event::Suspected { reason, needs, is_own } => {
            suspected(track, rules, reason, needs, is_own, now)
        }
        Event::Failed { reason, needs, is_own } => failed(track, rules, reason, needs, is_own, now),
        Event::RemedyBegins { remedy, attempt, is_own } => {
            let tried = if is_own { remedy.max(track.tried) } else { track.tried };
            begun(&Track { tried, attempt, ..*track }, rules, remedy, now)
        }
        Event::TestBegins(attempt) => test_begun(track, attempt, now),
        Event::Ended { attempt, outcome } if attempt == track.attempt => {
            ended(track, rules, outcome, now)
        }
        Event::Ended { .. } => None,
        Event::RemediedByOthers => remedied_by_others(track),
        Event::Word(word) => worded(track, word, now),
        Event::Time => time(track, rules, now),
    };
    changed.unwrap_or(*track)
}

/// Whether an event says what the remedy before a running test may have mended. A need of another board is not mended.
fn is_before_test(track: &Track, event: Event, now: u64) -> bool {
    let is_mendable = match event {
        Event::Suspected { .. } => true,
        Event::Failed { needs, .. } => needs != Remedy::Replace,
        _ => false,
    };
    is_mendable && now < track.since && matches!(track.state, State::Verifying { .. })
}

fn warned(track: &Track, reason: Reason, now: u64) -> Option<Track> {
    let reason = match track.state {
        // It waits for a reset, whatever else is seen.
        State::Watch { reason: Reason::RemapPending } => Reason::RemapPending,
        State::Healthy | State::Watch { .. } => reason,
        _ => return None,
    };
    Some(to(track, State::Watch { reason }, now))
}

fn suspected(
    track: &Track,
    rules: &Rules,
    reason: Reason,
    needs: Remedy,
    is_own: bool,
    now: u64,
) -> Option<Track> {
    // What needs more than a test is a fault.
    let is_fault = is_own && needs != Remedy::Test;
    // A suspicion alone replaces nothing.
    let needs = match rules.ladder.at_least(needs) {
        Remedy::Replace => Remedy::Test,
        needs => needs,
    };
    let track = &if is_fault { at_fault(track, rules, now) } else { *track };
    match track.state {
        State::Healthy | State::Watch { .. } | State::Probation => {
            Some(to(track, State::Suspect { reason, needs }, now))
        }
        // What was out of service for another part has a reason of its own now.
        State::Suspect { reason: old, needs: before } if needs > before || old.is_of_others() => {
            Some(stay(track, State::Suspect { reason, needs: needs.max(before) }))
        }
        State::Fenced { reason: old, needs: before } if needs > before || old.is_of_others() => {
            let needs = not_milder(track, needs.max(before));
            Some(stay(track, State::Fenced { reason, needs }))
        }
        // A card says nothing of the device, whose test goes on.
        State::Verifying { .. } if reason == Reason::Nic => Some(*track),
        // The test says nothing any more.
        State::Verifying { .. } => Some(fenced(track, reason, not_milder(track, needs), now)),
        State::Suspect { .. } => Some(*track),
        _ => None,
    }
}

/// A device with a fault of its own. It counts as a relapse if it is the first since a return not long ago.
fn at_fault(track: &Track, rules: &Rules, now: u64) -> Track {
    if track.has_failed {
        return *track;
    }
    let is_relapse =
        track.returned.is_some_and(|returned| now - returned.min(now) <= rules.relapse);
    let relapses = if is_relapse { track.relapses.saturating_add(1) } else { 0 };
    Track { has_failed: true, relapses, ..*track }
}

/// Whether a device failed too often soon after its return.
fn is_beyond_repair(track: &Track, rules: &Rules) -> bool {
    track.has_failed && track.relapses >= rules.last_relapse
}

fn failed(
    track: &Track,
    rules: &Rules,
    reason: Reason,
    needs: Remedy,
    is_own: bool,
    now: u64,
) -> Option<Track> {
    let needs = rules.ladder.at_least(needs);
    // Errors during a remedy are its effect, and those of a fence are of the fault before it.
    let is_first = track.state.may_run() || matches!(track.state, State::Verifying { .. });
    let track = &if is_own && is_first { at_fault(track, rules, now) } else { *track };
    match track.state {
        State::Healthy
        | State::Watch { .. }
        | State::Probation
        | State::Suspect { .. }
        | State::Verifying { .. }
            if is_own && is_beyond_repair(track, rules) =>
        {
            Some(to(track, State::Retired { reason: Reason::Relapsed }, now))
        }
        State::Healthy | State::Watch { .. } | State::Probation | State::Suspect { .. } => {
            let needs = track.state.needs().map_or(needs, |before| before.max(needs));
            Some(fenced(track, reason, needs, now))
        }
        State::Fenced { needs: before, .. } if needs == Remedy::Replace => {
            Some(fenced(track, reason, needs.max(before), now))
        }
        State::Fenced { needs: before, .. } if needs > before => {
            Some(stay(track, State::Fenced { reason, needs: not_milder(track, needs) }))
        }
        // A fault of its own during a test is a test that failed.
        State::Verifying { .. } if is_own => {
            Some(fenced(track, reason, needs.max(rules.ladder.after(track.tried)), now))
        }
        State::Verifying { .. } => Some(fenced(track, reason, not_milder(track, needs), now)),
        // The remedy runs on, so the device stays where budget and island see it.
        State::Resetting { .. } if needs == Remedy::Replace => Some(retiring(track, reason)),
        // Errors during a remedy are its effect. The test finds those that last.
        State::Resetting { .. } | State::Fenced { .. } | State::Retired { .. } => None,
    }
}

fn begun(track: &Track, rules: &Rules, remedy: Remedy, now: u64) -> Option<Track> {
    match track.state {
        // A sign retires nothing while work goes on; the device is idle now.
        State::Suspect { .. } if is_beyond_repair(track, rules) => {
            Some(to(track, State::Retired { reason: Reason::Relapsed }, now))
        }
        State::Suspect { reason, .. } | State::Fenced { reason, .. } => {
            Some(to(track, State::Resetting { reason, remedy }, now))
        }
        _ => None,
    }
}

fn test_begun(track: &Track, attempt: Attempt, now: u64) -> Option<Track> {
    let track = &Track { attempt, ..*track };
    match track.state {
        State::Suspect { reason, needs: Remedy::Test }
        | State::Fenced { reason, needs: Remedy::Test } => {
            Some(to(track, State::Verifying { reason, after: Remedy::Test }, now))
        }
        _ => None,
    }
}

fn ended(track: &Track, rules: &Rules, outcome: Outcome, now: u64) -> Option<Track> {
    match (track.state, outcome) {
        (State::Resetting { .. }, Outcome::Remedied | Outcome::Refused)
            if let Some(reason) = track.retires =>
        {
            Some(to(track, State::Retired { reason }, now))
        }
        (State::Resetting { reason, remedy }, Outcome::Remedied) => {
            let track = &Track { tried: remedy.max(track.tried), ..*track };
            Some(to(track, State::Verifying { reason, after: remedy }, now))
        }
        // It was another device's, so this one climbs no ladder.
        (State::Resetting { reason, remedy }, Outcome::Refused) if remedy > track.tried => {
            let needs = match reason {
                reason if reason.is_of_others() => Remedy::Test,
                _ => rules.ladder.after(track.tried),
            };
            Some(fenced(track, reason, needs, now))
        }
        (State::Resetting { remedy, .. }, Outcome::Refused) => {
            let needs = rules.ladder.after(track.tried);
            Some(fenced(track, Reason::RemedyFailed(remedy), needs, now))
        }
        (State::Verifying { .. }, Outcome::Passed) if track.is_held => {
            Some(to(track, State::Fenced { reason: Reason::Operator, needs: Remedy::Test }, now))
        }
        (State::Verifying { .. }, Outcome::Passed) => Some(returned(track, now)),
        (State::Verifying { reason, .. }, Outcome::NotTried) => {
            Some(to(track, State::Fenced { reason, needs: Remedy::Test }, now))
        }
        (State::Verifying { .. }, Outcome::Failed) => {
            let track = &at_fault(track, rules, now);
            Some(fenced(track, Reason::TestFailed, rules.ladder.after(track.tried), now))
        }
        _ => None,
    }
}

/// A device that needs no more than its test.
fn remedied_by_others(track: &Track) -> Option<Track> {
    let needs = Remedy::Test;
    match track.state {
        State::Suspect { reason, .. } => Some(stay(track, State::Suspect { reason, needs })),
        State::Fenced { reason, .. } => Some(stay(track, State::Fenced { reason, needs })),
        _ => None,
    }
}

fn worded(track: &Track, word: Word, now: u64) -> Option<Track> {
    let held = |is_held| Track { is_held, ..*track };
    match (word, track.state) {
        (Word::Fence | Word::Retire, State::Retired { .. }) => None,
        (Word::Retire, State::Resetting { .. }) => Some(retiring(&held(false), Reason::Operator)),
        (Word::Retire, _) => {
            Some(to(&held(false), State::Retired { reason: Reason::Operator }, now))
        }
        // What is out of service already goes on with its reason, and does not return.
        (Word::Fence, State::Fenced { .. } | State::Resetting { .. } | State::Verifying { .. }) => {
            Some(held(true))
        }
        (Word::Fence, state) => {
            let needs = state.needs().unwrap_or(Remedy::Test);
            Some(to(&held(true), State::Fenced { reason: Reason::Operator, needs }, now))
        }
        (Word::Release, State::Retired { reason }) => {
            let track =
                Track { relapses: 0, has_failed: true, tried: Remedy::Replace, ..held(false) };
            Some(to(&track, State::Fenced { reason, needs: Remedy::Test }, now))
        }
        // A burn-in that waits or runs goes on.
        (Word::Release, State::Fenced { .. } | State::Verifying { .. })
            if track.tried == Remedy::Replace =>
        {
            Some(held(false))
        }
        (Word::Release, State::Suspect { .. } | State::Fenced { .. } | State::Verifying { .. }) => {
            Some(returned(&held(false), now))
        }
        (Word::Release, State::Watch { .. }) => Some(to(track, State::Healthy, now)),
        (Word::Release, _) => {
            let retires = track.retires.filter(|reason| *reason != Reason::Operator);
            Some(Track { retires, ..held(false) })
        }
    }
}

fn time(track: &Track, rules: &Rules, now: u64) -> Option<Track> {
    let passed = now - track.since;
    match track.state {
        State::Watch { .. } if passed >= rules.watch => Some(to(track, State::Healthy, now)),
        State::Probation if passed >= rules.probation => Some(to(track, State::Healthy, now)),
        State::Resetting { .. } if passed >= rules.limit => {
            ended(track, rules, Outcome::Refused, now)
        }
        State::Verifying { .. }
            if passed >= rules.limit.saturating_add(track.test_length(rules)) =>
        {
            ended(track, rules, Outcome::Failed, now)
        }
        _ => None,
    }
}

/// What a device needs that is not milder than what was tried. No remedy is like a replacement.
fn not_milder(track: &Track, needs: Remedy) -> Remedy {
    if needs == Remedy::Test || track.tried == Remedy::Replace {
        needs
    } else {
        needs.max(track.tried)
    }
}

/// In its remedy, and for good out of service after it.
fn retiring(track: &Track, reason: Reason) -> Track {
    Track { retires: track.retires.or(Some(reason)), ..*track }
}

/// Out of service, for good if it is to be replaced.
fn fenced(track: &Track, reason: Reason, needs: Remedy, now: u64) -> Track {
    if needs == Remedy::Replace {
        to(track, State::Retired { reason }, now)
    } else {
        to(track, State::Fenced { reason, needs }, now)
    }
}

fn returned(track: &Track, now: u64) -> Track {
    let returned = if track.has_failed { Some(now) } else { track.returned };
    Track { returned, has_failed: false, tried: Remedy::Test, ..to(track, State::Probation, now) }
}

fn to(track: &Track, state: State, now: u64) -> Track {
    let retires = track.retires.filter(|_| matches!(state, State::Resetting { .. }));
    Track { state, since: now, retires, ..*track }
}

fn stay(track: &Track, state: State) -> Track {
    Track { state, ..*track }
}
