//! Tests that use GPUs.

use super::*;

/// Orders by which GPUs are tested by the probe.
fn probed(mode: Mode) -> Orders {
    let orders = orders(mode);
    let policy = Policy { test: Test::Probe, ..orders.policy };
    Orders { policy, ..orders }
}

/// A node with a GPU that may be at fault, and that the driver has nothing against any more.
fn suspect(file: Option<RecordFile>) -> NodeHealth {
    let mut health = node(file, BOOT, 2);
    health.set_orders(probed(Mode::Fence), 1);
    health.answer(&uuid(0), &Ok(advice(RecoveryAction::DrainP2p)), 1);
    health.decide(1, |_| true);
    health.answer(&uuid(0), &Ok(well()), 2);
    health
}

fn results(run: &TestRun, result: &TestResult) -> Vec<(Attempt, String, TestResult)> {
    run.tests.iter().map(|(attempt, uuid)| (*attempt, uuid.clone(), result.clone())).collect()
}

fn shown(health: &NodeHealth) -> (&'static str, Option<Wait>, String) {
    let state = health.health().remove(&uuid(0)).unwrap();
    (state.fence.unwrap().state.name(), state.wait, state.message())
}

#[test]
fn a_gpu_returns_once_its_test_has_passed_and_the_driver_has_nothing_against_it() {
    let mut health = suspect(None);
    decide(&mut health, 2);
    assert_eq!(state(&health, 0), "Verifying", "the driver's word is not enough");
    let run = health.next_tests(0).unwrap();
    assert_eq!((run.tests.as_slice(), run.seconds), (&[(Attempt(1), uuid(0))][..], 60));
    assert_eq!(health.next_tests(0), None, "one at a time");
    // The test is a process on the GPU.
    health.decide(63, |_| true);
    assert!(!health.is_void(&run));
    health.tested(results(&run, &TestResult::Passed));
    decide(&mut health, 64);
    assert_eq!(state(&health, 0), "Probation");
    assert!(health.is_void(&run), "it has ended");
}

#[test]
fn what_a_test_found_is_shown_and_outlives_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let file = || Some(RecordFile::new(folder.path().join("health.json")));
    let mut health = suspect(file());
    decide(&mut health, 2);
    let run = health.next_tests(0).unwrap();
    let found = "memory: 7 words of memory are not as they were written";
    health.tested(results(&run, &TestResult::Failed(found.to_owned())));
    decide(&mut health, 64);
    assert_eq!(reason(&health, 0), Some(Reason::TestFailed));
    let message = shown(&health).2;
    assert!(message.contains(found) && message.contains("reset-function"), "{message}");
    health.store();
    let mut again = node(file(), BOOT, 2);
    decide(&mut again, 65);
    assert!(shown(&again).2.contains(found), "{}", shown(&again).2);
}

#[test]
fn a_test_that_ends_with_the_period_leaves_the_record_to_the_next_agent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("health.json");
    let mut health = suspect(Some(RecordFile::new(path.clone())));
    let periods = Periods::default();
    health.period = Some(periods.begin());
    decide(&mut health, 2);
    let run = health.next_tests(0).unwrap();
    assert!(path.exists(), "a test is recorded before it begins");
    periods.end();
    std::fs::write(&path, "of the next agent").unwrap();
    health.ended_early(&run);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "of the next agent");
}

#[test]
fn a_test_that_could_not_be_tried_says_why_and_comes_again_ever_more_seldom() {
    let mut health = suspect(None);
    let mut now = 2;
    for delay in [30, 60, 120] {
        decide(&mut health, now);
        let run = health.next_tests(0).unwrap();
        health.tested(results(&run, &TestResult::NotTried("no driver".to_owned())));
        decide(&mut health, now);
        let (state, wait, message) = shown(&health);
        assert_eq!(
            (state, wait),
            ("Fenced", Some(Wait::TestNotPossible)),
            "nothing is known of it"
        );
        assert!(message.contains("could not be tried: no driver"), "{message}");
        decide(&mut health, now + delay - 1);
        assert_eq!(health.next_tests(0), None);
        now += delay;
    }
    decide(&mut health, now);
    let run = health.next_tests(0).unwrap();
    health.tested(results(&run, &TestResult::Passed));
    decide(&mut health, now + 60);
    assert_eq!(state(&health, 0), "Probation");
}

#[test]
fn a_test_that_ends_the_agent_comes_again_ever_more_seldom() {
    let folder = tempfile::tempdir().unwrap();
    let file = || Some(RecordFile::new(folder.path().join("health.json")));
    let mut health = suspect(file());
    let mut now = 2;
    for delay in [30, 60, 120] {
        decide(&mut health, now);
        assert!(health.next_tests(now).is_some());
        // The agent is killed at once, and again, before the test has begun.
        for _ in 0..2 {
            health = node(file(), BOOT, 2);
            health.set_orders(probed(Mode::Fence), now + 1);
            health.answer(&uuid(0), &Ok(well()), now + 1);
            decide(&mut health, now + 1);
            assert_eq!(health.next_tests(now + 1), None);
            health.store();
        }
        let (state, wait, message) = shown(&health);
        assert_eq!((state, wait), ("Fenced", Some(Wait::TestNotPossible)));
        assert!(message.contains("the agent ended during the test"), "{message}");
        now += 1 + delay;
    }
    // Also if it does so at the end of the test.
    decide(&mut health, now);
    let run = health.next_tests(now).unwrap();
    now += run.seconds + 239;
    health = node(file(), BOOT, 2);
    health.set_orders(probed(Mode::Fence), now);
    health.answer(&uuid(0), &Ok(well()), now);
    decide(&mut health, now);
    assert_eq!(health.next_tests(now), None);
    assert!(shown(&health).2.contains("the agent ended during the test"));
    now += 240;
    // An agent that ends in order takes no try.
    decide(&mut health, now);
    let run = health.next_tests(now).unwrap();
    health.ended_early(&run);
    let mut next = node(file(), BOOT, 2);
    next.set_orders(probed(Mode::Fence), now);
    next.answer(&uuid(0), &Ok(well()), now);
    decide(&mut next, now);
    assert_eq!(next.next_tests(now), Some(run));
}

#[test]
fn a_gpu_in_mig_mode_is_not_passed_by_the_drivers_word() {
    let mut health = suspect(None);
    let mut gpus = testing::inventory(2).gpus;
    gpus[0] = testing::mig::gpu(0, true);
    gpus[0].uuid = uuid(0);
    health.set_gpus(&testing::found(&gpus), 0);
    decide(&mut health, 2);
    let (state, wait, message) = shown(&health);
    assert_eq!((state, wait, health.next_tests(0)), ("Suspect", Some(Wait::TestNotPossible), None));
    assert!(message.contains("MIG mode") && message.contains("Driver"), "{message}");
    let policy = Policy { test: Test::Driver, ..Policy::default() };
    health.set_orders(Orders { policy, ..Orders::default() }, 3);
    decide(&mut health, 3);
    assert_eq!(self::state(&health, 0), "Probation");
}

#[test]
fn a_test_waits_for_claims_and_for_orders_and_none_begins_where_a_policy_observes() {
    let mut health = NodeHealth::open(None, BOOT);
    health.set_gpus(&testing::inventory(1), 0);
    health.answer(&uuid(0), &Ok(advice(RecoveryAction::DrainP2p)), 1);
    decide(&mut health, 1);
    health.answer(&uuid(0), &Ok(well()), 2);
    decide(&mut health, 1_000_000);
    assert_eq!((state(&health, 0), health.next_tests(0)), ("Suspect", None), "no orders yet");
    assert!(shown(&health).2.contains("not known yet"));
    let held = Orders { held: [uuid(0)].into(), ..probed(Mode::Fence) };
    health.set_orders(held, 1_000_001);
    decide(&mut health, 1_000_001);
    assert_eq!((health.next_tests(0), shown(&health).1), (None, Some(Wait::Clients)));
    health.set_orders(probed(Mode::Observe), 1_000_002);
    decide(&mut health, 1_000_002);
    assert_eq!((health.next_tests(0), shown(&health).1), (None, Some(Wait::Observe)));
    health.set_orders(probed(Mode::Fence), 1_000_003);
    decide(&mut health, 1_000_003);
    let run = health.next_tests(0).unwrap();
    // A pod that tolerates the taint.
    health.set_orders(Orders { held: [uuid(0)].into(), ..probed(Mode::Fence) }, 1_000_004);
    decide(&mut health, 1_000_004);
    assert!(health.is_void(&run));
    assert_eq!((state(&health, 0), shown(&health).1), ("Fenced", Some(Wait::Clients)));
}

#[test]
fn a_test_goes_on_after_the_agent_with_its_number_and_all_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = || Some(RecordFile::new(folder.path().join("health.json")));
    let mut health = suspect(file());
    decide(&mut health, 2);
    let run = health.next_tests(0).unwrap();
    health.store();
    // The agent is away for longer than a test may take.
    let mut again = NodeHealth::open(file(), BOOT);
    again.set_gpus(&testing::inventory(2), 0);
    decide(&mut again, 1_000_000);
    assert_eq!((state(&again, 0), again.next_tests(0)), ("Verifying", None), "no orders yet");
    again.set_orders(probed(Mode::Fence), 2_000_000);
    decide(&mut again, 2_000_000);
    assert_eq!(again.next_tests(0), Some(run.clone()));
    again.tested(results(&run, &TestResult::Passed));
    decide(&mut again, 2_000_060);
    assert_eq!(state(&again, 0), "Probation");
}

#[test]
fn a_fault_just_before_a_test_goes_on_after_the_agent_is_none_from_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = || Some(RecordFile::new(folder.path().join("health.json")));
    let mut health = suspect(file());
    decide(&mut health, 2);
    assert!(health.next_tests(2).is_some() && health.store());
    let mut again = node(file(), BOOT, 2);
    again.set_orders(probed(Mode::Fence), 99);
    again.xid(&uuid(0), 48, LinkSeverity::Unknown, 99);
    decide(&mut again, 100);
    assert_eq!((state(&again, 0), reason(&again, 0)), ("Fenced", Some(Reason::Xid(48))));
}

#[test]
fn a_fault_or_a_word_ends_the_test_and_its_result_is_of_no_account() {
    for word in [Some(Word::Release), None] {
        let mut health = suspect(None);
        decide(&mut health, 2);
        let run = health.next_tests(0).unwrap();
        match word {
            Some(word) => {
                let words = [(uuid(0), (1, word))].into();
                health.set_orders(Orders { words, ..probed(Mode::Fence) }, 3);
            }
            None => {
                health.xid(&uuid(0), 48, LinkSeverity::Unknown, 3);
            }
        }
        decide(&mut health, 3);
        assert!(health.is_void(&run), "{word:?}");
        let before = state(&health, 0);
        health.tested(results(&run, &TestResult::Failed("it was ended".to_owned())));
        decide(&mut health, 4);
        assert_eq!(state(&health, 0), before);
    }
}

#[test]
fn a_run_that_ends_for_one_of_its_gpus_begins_again_for_the_others() {
    let mut health = node(None, BOOT, 2);
    health.set_orders(probed(Mode::Fence), 1);
    for index in 0..2 {
        health.answer(&uuid(index), &Ok(advice(RecoveryAction::DrainP2p)), 1);
        health.answer(&uuid(index), &Ok(well()), 2);
    }
    decide(&mut health, 2);
    let run = health.next_tests(0).unwrap();
    assert_eq!(run.tests.len(), 2, "both at once, since they are peers");
    health.xid(&uuid(1), 48, LinkSeverity::Unknown, 3);
    decide(&mut health, 3);
    assert!(health.is_void(&run));
    health.ended_early(&run);
    let rest = health.next_tests(0).unwrap();
    assert_eq!(rest.tests, [run.tests[0].clone()]);
}

#[test]
fn gpus_whose_test_together_could_not_be_tried_are_tested_one_by_one() {
    let mut health = node(None, BOOT, 3);
    health.set_orders(probed(Mode::Fence), 1);
    for index in 0..3 {
        health.answer(&uuid(index), &Ok(advice(RecoveryAction::DrainP2p)), 1);
        health.answer(&uuid(index), &Ok(well()), 2);
    }
    decide(&mut health, 2);
    let run = health.next_tests(2).unwrap();
    assert_eq!(run.tests.len(), 3);
    // CUDA hides one of them, and so the process sees none.
    let why = TestResult::NotTried("there is no GPU".to_owned());
    health.tested(results(&run, &why));
    let mut now = 10;
    for _ in 0..4 {
        decide(&mut health, now);
        let alone = health.next_tests(now).unwrap();
        assert_eq!((alone.tests.len(), health.next_tests(now)), (1, None), "one after the other");
        // However long the others wait.
        now += 1_000;
        decide(&mut health, now);
        assert_eq!(health.next_tests(now), None);
        let is_hidden = alone.tests[0].1 == uuid(0);
        health.tested(results(&alone, if is_hidden { &why } else { &TestResult::Passed }));
        decide(&mut health, now);
    }
    assert_eq!([1, 2].map(|index| state(&health, index)), ["Probation"; 2]);
    assert_eq!(state(&health, 0), "Verifying", "it holds up no other one, and is tried again");
}

#[test]
fn links_that_are_still_trained_end_no_test() {
    let mut health = suspect(None);
    health.driver_opened(2);
    let links = |active| octavo_gpu::NvLinkTelemetry {
        active,
        links: 18,
        ..octavo_gpu::NvLinkTelemetry::default()
    };
    let telemetry =
        |active| GpuTelemetry { nvlink: Some(links(active)), ..GpuTelemetry::default() };
    health.telemetry(&uuid(0), &telemetry(17), 3);
    decide(&mut health, 3);
    let run = health.next_tests(0).unwrap();
    health.tested(results(&run, &TestResult::Passed));
    decide(&mut health, 4);
    assert_eq!(state(&health, 0), "Verifying");
    health.telemetry(&uuid(0), &telemetry(18), 5);
    decide(&mut health, 5);
    assert_eq!(state(&health, 0), "Probation");
}

#[test]
fn the_driver_s_word_stays_necessary() {
    let mut health = suspect(None);
    decide(&mut health, 2);
    let run = health.next_tests(0).unwrap();
    let silent = DriverError::InUse { call: "nvmlDeviceGetFieldValues" };
    health.answer(&uuid(0), &Err(silent), 3);
    health.tested(results(&run, &TestResult::Passed));
    decide(&mut health, 62);
    assert_eq!(state(&health, 0), "Verifying", "it may answer yet");
    decide(&mut health, 1_000);
    assert_eq!((state(&health, 0), reason(&health, 0)), ("Fenced", Some(Reason::TestFailed)));
}

#[test]
fn a_test_ends_once_with_what_became_of_it() {
    for (result, outcome) in [
        (TestResult::Passed, TestOutcome::Passed),
        (TestResult::Failed("7 words of memory".to_owned()), TestOutcome::Failed),
        (TestResult::NotTried("no driver".to_owned()), TestOutcome::NotPossible),
    ] {
        let mut health = suspect(None);
        decide(&mut health, 2);
        let run = health.next_tests(2).unwrap();
        // The driver is closed for something else, and the test begins again.
        health.ended_early(&run);
        decide(&mut health, 9);
        let run = health.next_tests(9).unwrap();
        decide(&mut health, 10);
        assert!(health.take_ended().is_empty(), "it runs");
        health.tested(results(&run, &result));
        decide(&mut health, 69);
        let took = Some(Duration::from_mins(1));
        assert_eq!(health.take_ended(), [Ended::Test { outcome, took }]);
        health.tested(results(&run, &result));
        decide(&mut health, 70);
        assert!(health.take_ended().is_empty(), "{outcome:?}");
    }
}

#[test]
fn a_test_that_ends_without_a_result_is_put_off_stopped_or_out_of_time() {
    let held = Orders { held: [uuid(0)].into(), ..probed(Mode::Fence) };
    let words = [(uuid(0), (1, Word::Release))].into();
    let released = Orders { words, ..probed(Mode::Fence) };
    for (wanted, outcome) in [(held, TestOutcome::PutOff), (released, TestOutcome::Stopped)] {
        let mut health = suspect(None);
        decide(&mut health, 2);
        assert!(health.next_tests(2).is_some());
        health.set_orders(wanted, 5);
        decide(&mut health, 5);
        let took = Some(Duration::from_secs(3));
        assert_eq!(health.take_ended(), [Ended::Test { outcome, took }]);
    }
    let mut health = suspect(None);
    decide(&mut health, 2);
    assert!(health.next_tests(2).is_some());
    let limit = Policy::default().rules.limit + 60;
    decide(&mut health, 2 + limit);
    let took = Some(Duration::from_secs(limit));
    assert_eq!(health.take_ended(), [Ended::Test { outcome: TestOutcome::Failed, took }]);
}

fn with_errors(uncorrected: u64) -> GpuHealth {
    GpuHealth { uncorrected_errors: Some(uncorrected), ..well() }
}

/// What ends with a fault during the test of the first GPU, 3 s after its begin. NVSwitches join the node's GPUs.
fn ended_by(fault: impl FnOnce(&mut NodeHealth)) -> Vec<Ended> {
    let mut gpus = testing::inventory(2).gpus;
    for gpu in &mut gpus {
        gpu.nvlink = Some(NvLink { version: 4, links: 18, switched: true, peers: vec![] });
    }
    let mut health = suspect(None);
    health.set_gpus(&testing::found(&gpus), 2);
    health.answer(&uuid(0), &Ok(with_errors(0)), 2);
    decide(&mut health, 2);
    assert!(health.next_tests(2).is_some());
    fault(&mut health);
    decide(&mut health, 5);
    assert_eq!(state(&health, 0), "Fenced");
    health.take_ended()
}

#[test]
fn a_fault_of_the_gpu_fails_its_test_and_one_of_another_part_stops_it() {
    let took = Some(Duration::from_secs(3));
    let failed = [Ended::Test { outcome: TestOutcome::Failed, took }];
    let stopped = [Ended::Test { outcome: TestOutcome::Stopped, took }];
    let xid =
        |index, number, link| ended_by(|health| assert!(health.xid(&uuid(index), number, link, 5)));
    assert_eq!(xid(0, 48, LinkSeverity::Unknown), failed);
    assert_eq!(xid(0, 145, LinkSeverity::Fatal), failed);
    assert_eq!(xid(1, 145, LinkSeverity::Fatal), stopped, "it fences the island");
    assert_eq!(ended_by(|health| health.answer(&uuid(0), &Ok(with_errors(1)), 5)), failed);
    assert_eq!(ended_by(|health| health.answer(&uuid(0), &Err(lost()), 5)), failed);
    assert_eq!(ended_by(|health| health.switch_failed(5)), stopped);
}
