//! Ends of remedies and tests.

use super::*;

fn remedy(outcome: RemedyOutcome, took: Option<Duration>) -> Ended {
    Ended::Remedy { remedy: Remedy::ResetFunction, outcome, took }
}

/// A test by the driver's word, which ends at once.
fn passed() -> Ended {
    Ended::Test { outcome: TestOutcome::Passed, took: Some(Duration::ZERO) }
}

/// A node whose agent resets a GPU since the time 1.
fn resetting(file: RecordFile) -> NodeHealth {
    let mut health = node(Some(file), BOOT, 2);
    let mut wanted = orders(Mode::Act);
    wanted.permits.insert(uuid(0), permit(0, Remedy::ResetFunction));
    health.set_orders(wanted, 1);
    health.xid(&uuid(0), 48, LinkSeverity::Unknown, 1);
    decide(&mut health, 1);
    assert!(health.next_remedy().is_some());
    decide(&mut health, 2);
    assert!(health.take_ended().is_empty(), "it runs");
    health
}

#[test]
fn a_remedy_ends_once_however_often_that_is_reported() {
    let took = Duration::from_millis(1_500);
    for (outcome, ended) in [
        (Outcome::Remedied, vec![remedy(RemedyOutcome::Remedied, Some(took)), passed()]),
        (Outcome::Refused, vec![remedy(RemedyOutcome::Refused, Some(took))]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut health = resetting(RecordFile::new(folder.path().join("health.json")));
        health.ended(Attempt(1), outcome, took, 3);
        decide(&mut health, 3);
        assert_eq!(health.take_ended(), ended);
        for now in 4..6 {
            health.ended(Attempt(1), outcome, took, now);
            decide(&mut health, now);
            assert!(health.take_ended().is_empty(), "{outcome:?}");
        }
    }
}

#[test]
fn a_remedy_whose_end_comes_after_its_time_has_timed_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut health = resetting(RecordFile::new(folder.path().join("health.json")));
    let limit = Policy::default().rules.limit;
    decide(&mut health, limit);
    assert!(health.take_ended().is_empty());
    decide(&mut health, 1 + limit);
    let took = Duration::from_secs(limit);
    assert_eq!(health.take_ended(), [remedy(RemedyOutcome::TimedOut, Some(took))]);
    health.ended(Attempt(1), Outcome::Remedied, took, 2 + limit);
    decide(&mut health, 2 + limit);
    assert!(health.take_ended().is_empty());
}

#[test]
fn a_remedy_whose_agent_died_was_interrupted_and_has_no_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = || RecordFile::new(folder.path().join("health.json"));
    drop(resetting(file()));
    for boot in [BOOT, "next"] {
        let mut again = node(Some(file()), boot, 2);
        again.answer(&uuid(0), &Ok(well()), 100);
        decide(&mut again, 100);
        assert_eq!(again.take_ended(), [remedy(RemedyOutcome::Interrupted, None), passed()]);
    }
}

#[test]
fn ends_are_those_of_the_agent_that_has_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let file = || RecordFile::new(folder.path().join("health.json"));
    let gpus = testing::inventory(2);
    let mut newcomer = NodeHealth::observer(Some(file()), BOOT);
    newcomer.set_gpus(&gpus, 0);
    newcomer.answer(&uuid(1), &Ok(advice(RecoveryAction::DrainP2p)), 1);
    newcomer.decide(1, |_| true);
    newcomer.answer(&uuid(1), &Ok(well()), 2);
    decide(&mut newcomer, 2);
    assert_eq!(state(&newcomer, 1), "Probation", "the driver's word is its test");
    assert!(newcomer.take_ended().is_empty());
    drop(resetting(file()));
    newcomer.serve(Periods::default().begin(), Some(&gpus), 3);
    newcomer.answer(&uuid(0), &Ok(well()), 3);
    decide(&mut newcomer, 3);
    let ended = newcomer.take_ended();
    assert_eq!(ended.first(), Some(&remedy(RemedyOutcome::Interrupted, None)));
}
