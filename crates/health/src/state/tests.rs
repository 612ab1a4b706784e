use super::*;
use crate::signal::{Attempt, Outcome, Word};

/// The device after events at times.
fn run(events: &[(u64, Event)]) -> Track {
    let rules = Rules::default();
    events.iter().fold(Track::default(), |track, (now, event)| step(&track, &rules, *event, *now))
}

const XID: Reason = Reason::Xid(48);

const FAULT: Event = Event::Failed { reason: XID, needs: Remedy::ResetFunction, is_own: true };

const RESET: Event =
    Event::RemedyBegins { remedy: Remedy::ResetFunction, attempt: ONE, is_own: true };

const REMEDIED: Event = ended(Outcome::Remedied);

const PASSED: Event = ended(Outcome::Passed);

const ONE: Attempt = Attempt(1);

const fn ended(outcome: Outcome) -> Event {
    Event::Ended { attempt: ONE, outcome }
}

#[test]
fn a_fault_is_fenced_reset_tested_and_returns() {
    let way = [(10, FAULT), (20, RESET), (30, REMEDIED), (90, PASSED), (90 + DAY, Event::Time)];
    let states: Vec<_> = (1..=way.len()).map(|end| run(&way[..end]).state.name()).collect();
    assert_eq!(states, ["Fenced", "Resetting", "Verifying", "Probation", "Healthy"]);
    let effects: Vec<_> = (1..=way.len()).map(|end| run(&way[..end]).state.effect(true)).collect();
    let out = Some(Effect::NoExecute);
    assert_eq!(effects, [out, out, out, Some(Effect::None), None]);
    assert_eq!(run(&way[..1]).state.effect(false), Some(Effect::NoSchedule));
}

#[test]
fn a_warning_is_watched_and_fades() {
    let warned = Event::Warned(Reason::RemapPending);
    let track = run(&[(10, warned), (20, warned)]);
    assert_eq!(track.state, State::Watch { reason: Reason::RemapPending });
    assert_eq!(track.state.effect(true), Some(Effect::None));
    let hot = run(&[(10, warned), (20, Event::Warned(Reason::Hot))]);
    assert_eq!(hot, track, "a remap waits whatever else is seen");
    let rules = Rules::default();
    assert_eq!(step(&track, &rules, Event::Time, 19 + DAY).state.name(), "Watch");
    assert_eq!(step(&track, &rules, Event::Time, 20 + DAY).state, State::Healthy);
    // It does not take a device out of probation or out of a fence.
    assert_eq!(run(&[(1, FAULT), (2, warned)]).state.name(), "Fenced");
}

#[test]
fn remedies_that_fail_climb_the_ladder_and_end_in_retirement() {
    let rules = Rules::default();
    let mut track = run(&[(0, FAULT)]);
    let mut remedies = Vec::new();
    while let Some(needs) = track.state.needs() {
        remedies.push(needs);
        track = step(
            &track,
            &rules,
            Event::RemedyBegins { remedy: needs, attempt: ONE, is_own: true },
            0,
        );
        track = step(&track, &rules, ended(Outcome::Refused), 0);
    }
    assert_eq!(remedies, rules.ladder.remedies());
    let reason = Reason::RemedyFailed(Remedy::PowerCycle);
    assert_eq!(track.state, State::Retired { reason });
}

#[test]
fn a_test_that_fails_calls_for_the_next_remedy() {
    let track = run(&[(0, FAULT), (0, RESET), (0, REMEDIED), (9, ended(Outcome::Failed))]);
    let next = State::Fenced { reason: Reason::TestFailed, needs: Remedy::ResetBus };
    assert_eq!(track.state, next);
    let track = run(&[(0, FAULT), (0, RESET), (0, REMEDIED), (9, FAULT)]);
    assert_eq!(track.state, State::Fenced { reason: XID, needs: Remedy::ResetBus });
}

#[test]
fn a_remedy_or_test_without_an_end_has_failed() {
    let rules = Rules::default();
    let resetting = run(&[(0, FAULT), (10, RESET)]);
    assert_eq!(step(&resetting, &rules, Event::Time, 9 + rules.limit), resetting);
    let late = step(&resetting, &rules, Event::Time, 10 + rules.limit);
    assert_eq!(late.state.needs(), Some(Remedy::ResetBus));
    let verifying = step(&resetting, &rules, REMEDIED, 20);
    assert_eq!(step(&verifying, &rules, Event::Time, 79 + rules.limit), verifying);
    let late = step(&verifying, &rules, Event::Time, 80 + rules.limit);
    assert_eq!(late.state.reason(), Some(Reason::TestFailed));
}

#[test]
fn relapses_double_the_test_and_the_third_retires() {
    let rules = Rules::default();
    let mut track = Track::default();
    let mut lengths = Vec::new();
    for now in (0..).step_by(3_600).take(4) {
        track = step(&track, &rules, FAULT, now);
        lengths.push(track.test_length(&rules));
        for event in [RESET, REMEDIED, PASSED] {
            track = step(&track, &rules, event, now);
        }
    }
    assert_eq!(lengths, [60, 120, 240, 480]);
    assert_eq!(track.state, State::Retired { reason: Reason::Relapsed });
}

#[test]
fn a_fault_long_after_the_return_is_no_relapse() {
    let way = [(0, FAULT), (0, RESET), (0, REMEDIED), (0, PASSED)];
    let back = run(&way);
    let rules = Rules::default();
    assert_eq!(step(&back, &rules, FAULT, 7 * DAY).relapses, 1);
    assert_eq!(step(&back, &rules, FAULT, 7 * DAY + 1).relapses, 0);
    let peer = Event::Failed { reason: XID, needs: Remedy::ResetFunction, is_own: false };
    assert_eq!(step(&back, &rules, peer, 1).relapses, 0);
}

#[test]
fn only_an_operator_returns_what_an_operator_fenced() {
    let fence = Event::Word(Word::Fence);
    let held = run(&[(0, fence), (1, Event::TestBegins(ONE)), (2, PASSED)]);
    assert_eq!(held.state, State::Fenced { reason: Reason::Operator, needs: Remedy::Test });
    let released = step(&held, &Rules::default(), Event::Word(Word::Release), 3);
    assert_eq!((released.state, released.is_held), (State::Probation, false));
    // During a remedy the word waits for its end.
    let held = run(&[(0, FAULT), (0, RESET), (1, fence), (2, REMEDIED), (3, PASSED)]);
    assert_eq!(held.state.name(), "Fenced");
    let back = run(&[(0, FAULT), (0, RESET), (1, Event::Word(Word::Release))]);
    assert_eq!(back.state.name(), "Resetting");
}

#[test]
fn a_retired_device_returns_by_word_and_burn_in() {
    let retired = run(&[(0, Event::Word(Word::Retire))]);
    assert_eq!(retired.state, State::Retired { reason: Reason::Operator });
    let rules = Rules::default();
    assert_eq!(step(&retired, &rules, FAULT, 1), retired);
    assert_eq!(step(&retired, &rules, Event::Word(Word::Fence), 1), retired);
    let release = Event::Word(Word::Release);
    let pending = step(&retired, &rules, release, 1);
    assert_eq!(pending.state.needs(), Some(Remedy::Test));
    assert_eq!(step(&pending, &rules, release, 2), pending, "it waits for its burn-in");
    let tested = step(&pending, &rules, Event::TestBegins(ONE), 2);
    assert_eq!(tested.test_length(&rules), 2 * HOUR);
    assert_eq!(step(&tested, &rules, release, 2), tested);
    let passed = step(&tested, &rules, PASSED, 2);
    assert_eq!((passed.state, passed.test_length(&rules)), (State::Probation, 60));
    let failed = step(&tested, &rules, ended(Outcome::Failed), 2);
    assert_eq!(failed.state, State::Retired { reason: Reason::TestFailed });
    assert_eq!(step(&pending, &rules, Event::Time, DAY), pending);
}

#[test]
fn a_row_remap_that_failed_retires() {
    let failed =
        Event::Failed { reason: Reason::RemapFailed, needs: Remedy::Replace, is_own: true };
    let retired = State::Retired { reason: Reason::RemapFailed };
    assert_eq!(run(&[(0, failed)]).state, retired);
    assert_eq!(run(&[(0, FAULT), (1, failed)]).state, retired);
    let resetting = run(&[(0, FAULT), (1, RESET), (2, failed)]);
    assert_eq!(resetting.state.name(), "Resetting", "the remedy runs on");
    let rules = Rules::default();
    for end in [REMEDIED, ended(Outcome::Refused)] {
        assert_eq!(step(&resetting, &rules, end, 3).state, retired);
    }
    assert_eq!(step(&resetting, &rules, Event::Time, 1 + rules.limit).state, retired);
    let worded = run(&[(0, FAULT), (1, RESET), (2, Event::Word(Word::Retire)), (3, REMEDIED)]);
    assert_eq!(worded.state, State::Retired { reason: Reason::Operator });
}

#[test]
fn a_harsher_need_wins_and_a_milder_one_changes_nothing() {
    let reboot = Event::Failed { reason: Reason::Lost, needs: Remedy::Reboot, is_own: true };
    let track = run(&[(0, FAULT), (5, reboot), (9, FAULT)]);
    assert_eq!(track.state, State::Fenced { reason: Reason::Lost, needs: Remedy::Reboot });
    assert_eq!(track.since, 0, "the fence is as old as its first fault");
}

#[test]
fn a_clock_that_goes_backwards_ends_nothing_early() {
    let track = run(&[(DAY, FAULT), (10, RESET), (5, Event::Time)]);
    assert_eq!(track.state.name(), "Resetting");
    assert_eq!(track.since, 5, "its limit does not wait for a day");
    let rules = Rules::default();
    assert_eq!(step(&track, &rules, Event::Time, 4 + rules.limit).state.name(), "Resetting");
    assert_eq!(step(&track, &rules, Event::Time, 5 + rules.limit).state.name(), "Fenced");
}

#[test]
fn reports_that_come_twice_change_nothing() {
    let once = run(&[(0, FAULT), (1, RESET), (2, REMEDIED)]);
    assert_eq!(run(&[(0, FAULT), (1, RESET), (2, REMEDIED), (3, REMEDIED)]), once);
    let once = run(&[(0, FAULT)]);
    assert_eq!(run(&[(0, FAULT), (3, FAULT), (4, REMEDIED), (5, PASSED)]), once);
}

#[test]
fn an_outcome_of_another_attempt_changes_nothing() {
    let rules = Rules::default();
    let next = Event::RemedyBegins { remedy: Remedy::ResetBus, attempt: Attempt(2), is_own: true };
    let resetting = run(&[(0, FAULT), (1, RESET), (2, ended(Outcome::Refused)), (3, next)]);
    assert_eq!(step(&resetting, &rules, ended(Outcome::Refused), 4), resetting);
    assert_eq!(step(&resetting, &rules, REMEDIED, 4), resetting);
    let second = |outcome| Event::Ended { attempt: Attempt(2), outcome };
    let verifying = step(&resetting, &rules, second(Outcome::Remedied), 4);
    assert_eq!(step(&verifying, &rules, PASSED, 5), verifying, "a late one");
    assert_eq!(step(&verifying, &rules, second(Outcome::Passed), 5).state, State::Probation);
}

#[test]
fn what_was_seen_before_a_test_is_no_fault_of_the_test() {
    let rules = Rules::default();
    let verifying = run(&[(0, FAULT), (10, RESET), (20, REMEDIED)]);
    assert_eq!(step(&verifying, &rules, FAULT, 19), verifying);
    assert_eq!(step(&verifying, &rules, FAULT, 20).state.name(), "Fenced");
    let worn = Event::Failed { reason: XID, needs: Remedy::Replace, is_own: true };
    assert_eq!(step(&verifying, &rules, worn, 19).state.name(), "Retired");
}

#[test]
fn a_suspicion_during_a_test_loses_neither_burn_in_nor_ladder() {
    let rules = Rules::default();
    let sign = Event::Suspected { reason: Reason::Xid(54), needs: Remedy::Test, is_own: true };
    let released = run(&[(0, Event::Word(Word::Retire)), (1, Event::Word(Word::Release))]);
    let test = |track: &Track| step(track, &rules, Event::TestBegins(ONE), 2);
    let again = test(&step(&test(&released), &rules, sign, 3));
    assert_eq!(again.state.name(), "Verifying");
    assert_eq!(again.test_length(&rules), 2 * HOUR);
    let reset = run(&[(0, FAULT), (1, RESET), (2, REMEDIED), (3, sign)]);
    assert_eq!(reset.state.needs(), Some(Remedy::Test));
    let failed = step(&test(&reset), &rules, ended(Outcome::Failed), 4);
    assert_eq!(failed.state.needs(), Some(Remedy::ResetBus));
}

#[test]
fn signs_that_need_a_reset_are_relapses_and_a_drained_peer_has_none() {
    let rules = Rules::default();
    let sign = |needs, is_own| Event::Suspected { reason: Reason::LinkDown, needs, is_own };
    let back = run(&[(0, FAULT), (0, RESET), (0, REMEDIED), (0, PASSED)]);
    let relapsed = step(&back, &rules, sign(Remedy::ResetFunction, true), 1);
    assert_eq!(relapsed.relapses, 1);
    assert_eq!(step(&relapsed, &rules, FAULT, 2).relapses, 1, "one fault counts once");
    assert_eq!(step(&back, &rules, sign(Remedy::Test, true), 1).relapses, 0);
    let drained = [(0, sign(Remedy::Test, false)), (1, RESET), (2, REMEDIED), (3, PASSED)];
    assert_eq!(step(&run(&drained), &rules, FAULT, 4).relapses, 0);
    // The third in a row retires once the device is idle.
    let worn = Track { relapses: 2, ..back };
    let suspect = step(&worn, &rules, sign(Remedy::ResetFunction, true), 1);
    assert_eq!(suspect.state.name(), "Suspect");
    let retired = step(&suspect, &rules, RESET, 2);
    assert_eq!(retired.state, State::Retired { reason: Reason::Relapsed });
}

#[test]
fn a_device_that_makes_room_takes_the_reason_of_its_own_sign() {
    let sign = |reason| Event::Suspected { reason, needs: Remedy::Test, is_own: true };
    let room = sign(Reason::PeerRemedy);
    let own = sign(Reason::Xid(54));
    let is_own = |events: &[(u64, Event)]| run(events).state.reason() == Some(Reason::Xid(54));
    assert!(is_own(&[(1, room), (2, own)]) && is_own(&[(1, own), (2, room)]));
    // Its test could not be tried.
    let not_tried = ended(Outcome::NotTried);
    let fenced = [(1, room), (2, Event::TestBegins(ONE)), (3, not_tried)];
    let fence = State::Fenced { reason: Reason::PeerRemedy, needs: Remedy::Test };
    assert_eq!(run(&fenced).state, fence);
    let sign = (4, own);
    let fence = State::Fenced { reason: Reason::Xid(54), needs: Remedy::Test };
    assert_eq!(run(&[&fenced[..], &[sign]].concat()).state, fence);
}

#[test]
fn a_device_with_a_network_card_at_fault_takes_the_reason_of_its_own_sign() {
    let sign = |reason| Event::Suspected { reason, needs: Remedy::Test, is_own: false };
    let (card, own) = (sign(Reason::Nic), sign(Reason::Xid(54)));
    let reason = |events: &[(u64, Event)]| run(events).state.reason();
    assert_eq!(reason(&[(1, card), (2, own)]), Some(Reason::Xid(54)));
    assert_eq!(reason(&[(1, own), (2, card)]), Some(Reason::Xid(54)));
    let verifying = run(&[(0, FAULT), (1, RESET), (2, REMEDIED)]);
    assert_eq!(step(&verifying, &Rules::default(), card, 3), verifying, "its test goes on");
    let once = run(&[(1, card)]);
    assert_eq!(run(&[(1, card), (20, card)]), once, "a sign that lasts changes nothing");
}
