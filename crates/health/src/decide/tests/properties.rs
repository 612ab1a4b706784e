//! What holds whatever is reported, and that the checks notice deciders that are broken.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::world::{Decider, Script, World, out_of_service, script, script_of_one_job};
use crate::budget::Budget;
use crate::decide::{Decisions, Domain, Facts};
use crate::policy::Policy;
use crate::signal::{Observation, RecoveryAction, Report, Signal};
use crate::state::Track;
use crate::xid::XidClass;

/// Runs a script with a decider, then lets all end. Runs it a second time with each outcome reported again and again, which must decide the same.
fn holds(decider: &mut Decider<'_>, script: &Script) -> Result<(), String> {
    let mut world = World::new(script.resets_alone);
    let decisions = world.run(decider, &script.turns)?;
    world.settle(decider)?;
    let again = World::new(script.resets_alone).repeating().run(decider, &script.turns)?;
    if again == decisions { Ok(()) } else { Err("equal input, other decisions".into()) }
}

/// Runs a script of one job's errors, which fence nothing.
fn fences_nothing(decider: &mut Decider<'_>, script: &Script) -> Result<(), String> {
    let decisions = World::new(script.resets_alone).run(decider, &script.turns)?;
    match decisions.iter().find(|decisions| !out_of_service(decisions).is_empty()) {
        Some(decisions) => Err(format!("a job's error fenced {:?}", decisions.fences)),
        None => Ok(()),
    }
}

proptest! {
    #[test]
    fn what_must_hold_holds(script in script()) {
        prop_assert_eq!(holds(&mut Domain::decide, &script), Ok(()));
    }

    #[test]
    fn one_jobs_errors_fence_nothing(script in script_of_one_job()) {
        prop_assert_eq!(fences_nothing(&mut Domain::decide, &script), Ok(()));
    }

    #[test]
    fn a_domain_goes_on_from_its_stored_state(script in script()) {
        let mut stored = |domain: &mut Domain, policy: &Policy, facts: Facts<'_>, signals: &[Signal]| {
            let text = serde_json::to_string(domain).unwrap();
            *domain = serde_json::from_str(&text).unwrap();
            domain.decide(policy, facts, signals)
        };
        let run = |decider: &mut Decider<'_>| World::new(script.resets_alone).run(decider, &script.turns);
        prop_assert_eq!(run(&mut stored), run(&mut Domain::decide));
    }
}

/// What is wrong in the first scripts in which the checks notice anything; nothing if they never do.
fn noticed<S: Strategy<Value = Script>>(
    decider: &mut Decider<'_>,
    scripts: &S,
    check: impl Fn(&mut Decider<'_>, &Script) -> Result<(), String>,
) -> String {
    let mut runner = TestRunner::deterministic();
    let mut script = || scripts.new_tree(&mut runner).unwrap().current();
    (0..100).find_map(|_| check(decider, &script()).err()).unwrap_or_default()
}

#[test]
fn a_fence_that_ends_with_the_drivers_advice_is_noticed() {
    let mut broken =
        |domain: &mut Domain, policy: &Policy, facts: Facts<'_>, signals: &[Signal]| {
            let ends = Report::Observation(Observation::RecoveryAction(RecoveryAction::None));
            for signal in signals.iter().filter(|signal| signal.report == ends) {
                for device in facts.topology.devices(signal.unit) {
                    if let Some(known) = domain.devices.get_mut(device) {
                        known.track = Track::default();
                    }
                }
            }
            domain.decide(policy, facts, signals)
        };
    let what = noticed(&mut broken, &script(), holds);
    assert!(what.contains("is lost"), "{what}");
}

#[test]
fn remedies_beyond_the_budget_are_noticed() {
    let mut broken =
        |domain: &mut Domain, policy: &Policy, facts: Facts<'_>, signals: &[Signal]| {
            let budget = Budget { remedies_percent: 100, remedies_per_rack: 100, ..policy.budget };
            domain.decide(&Policy { budget, ..policy.clone() }, facts, signals)
        };
    let what = noticed(&mut broken, &script(), holds);
    assert!(what.starts_with("more than the budget"), "{what}");
}

#[test]
fn a_reset_under_clients_is_noticed() {
    let mut broken =
        |domain: &mut Domain, policy: &Policy, facts: Facts<'_>, signals: &[Signal]| {
            domain.decide(
                policy,
                Facts { occupied: &std::collections::BTreeSet::new(), ..facts },
                signals,
            )
        };
    let what = noticed(&mut broken, &script(), holds);
    assert!(what.ends_with("with clients"), "{what}");
}

#[test]
fn remedies_in_a_storm_are_noticed() {
    let mut broken =
        |domain: &mut Domain, policy: &Policy, facts: Facts<'_>, signals: &[Signal]| {
            let mut without = policy.clone();
            without.breaker.percent = 100;
            let decisions = domain.clone().decide(&without, facts, signals);
            let waits = domain.decide(policy, facts, signals).waits;
            Decisions { waits, ..decisions }
        };
    let what = noticed(&mut broken, &script(), holds);
    assert_eq!(what, "a remedy began in a storm");
}

#[test]
fn a_job_whose_errors_fence_devices_is_noticed() {
    let mut broken =
        |domain: &mut Domain, policy: &Policy, facts: Facts<'_>, signals: &[Signal]| {
            let mut blaming = policy.clone();
            blaming.xid_classes.insert(31, XidClass::Reset);
            domain.decide(&blaming, facts, signals)
        };
    let what = noticed(&mut broken, &script_of_one_job(), fences_nothing);
    assert!(what.starts_with("a job's error fenced"), "{what}");
}

#[test]
fn outcomes_that_get_lost_without_a_limit_are_noticed() {
    let mut broken =
        |domain: &mut Domain, policy: &Policy, facts: Facts<'_>, signals: &[Signal]| {
            let mut patient = policy.clone();
            patient.rules.limit = u64::MAX;
            let is_kept = |signal: &&Signal| !matches!(signal.report, Report::Outcome { .. });
            let kept: Vec<Signal> = signals.iter().filter(is_kept).cloned().collect();
            domain.decide(&patient, facts, &kept)
        };
    let what = noticed(&mut broken, &script(), holds);
    assert!(what.starts_with("neither returned nor retired"), "{what}");
}

#[test]
fn lost_outcomes_end_by_the_limit() {
    let mut deaf = |domain: &mut Domain, policy: &Policy, facts: Facts<'_>, signals: &[Signal]| {
        let is_kept = |signal: &&Signal| !matches!(signal.report, Report::Outcome { .. });
        let kept: Vec<Signal> = signals.iter().filter(is_kept).cloned().collect();
        domain.decide(policy, facts, &kept)
    };
    assert_eq!(noticed(&mut deaf, &script(), holds), "");
}

#[test]
fn decisions_that_depend_on_more_than_the_input_are_noticed() {
    let calls = Cell::new(0);
    let mut broken =
        |domain: &mut Domain, policy: &Policy, facts: Facts<'_>, signals: &[Signal]| {
            calls.set(calls.get() + 1);
            let mut moody = policy.clone();
            moody.evict = calls.get() % 7 != 0;
            domain.decide(&moody, facts, signals)
        };
    assert_eq!(noticed(&mut broken, &script(), holds), "equal input, other decisions");
}
