use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc::channel;

use super::*;

const TIMEOUT: Duration = Duration::from_mins(1);

fn run() -> TestRun {
    let tests = [(Attempt(4), "GPU-a".to_owned()), (Attempt(5), "GPU-b".to_owned())].into();
    TestRun { tests, seconds: 60 }
}

/// A program that stands in for this one.
fn program(script: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("octavo");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// What is sent about a run of a program.
fn results_of(script: &str) -> Vec<(Attempt, String, TestResult)> {
    let folder = program(script);
    let (sender, inbox) = channel();
    let command = command(&folder.path().join("octavo"), Path::new("/"), &["GPU-a", "GPU-b"], 60);
    let _running = start(command, run(), "node".to_owned(), sender).unwrap();
    match inbox.recv_timeout(TIMEOUT) {
        Ok(Message::Health(HealthMessage::Tested(results))) => results,
        _ => panic!("no results"),
    }
}

fn reported(gpus: &str, code: i32) -> Vec<TestResult> {
    let script =
        format!("cat <<E\n{{\"verdict\": \"failed\", \"gpus\": [{gpus}]}}\nE\nexit {code}");
    results_of(&script).into_iter().map(|(.., result)| result).collect()
}

const PASSED: &str = r#"{"uuid": "GPU-a", "verdict": "passed", "checks": []}"#;

#[test]
fn each_gpu_has_its_own_result() {
    let failed = r#"{"uuid": "GPU-b", "verdict": "failed", "checks": [
        {"check": "facts", "verdict": "passed"},
        {"check": "memory", "verdict": "failed", "message": "7 words are wrong", "mismatches": 7}]}"#;
    let found = reported(&format!("{PASSED}, {failed}"), 1);
    let failed = TestResult::Failed("memory: 7 words are wrong".to_owned());
    assert_eq!(found, [TestResult::Passed, failed]);
}

#[test]
fn a_gpu_that_was_not_tried_or_is_not_named_is_neither_passed_nor_failed() {
    let not_tried = r#"{"uuid": "GPU-b", "verdict": "notTried", "checks": [
        {"check": "memory", "verdict": "notTried", "message": "no memory\nat all"}]}"#;
    let found = reported(&format!("{PASSED}, {not_tried}"), 3);
    assert_eq!(found[1], TestResult::NotTried("memory: no memory".to_owned()));
    let found = reported(PASSED, 0);
    assert!(matches!(&found[1], TestResult::NotTried(why) if why.contains("name")), "{found:?}");
    let results = results_of(r#"echo '{"message": "no driver", "gpus": []}'; exit 3"#);
    assert_eq!(results[0].2, TestResult::NotTried("no driver".to_owned()));
}

#[test]
fn a_program_without_a_report_says_nothing_of_its_gpus() {
    for (script, found) in [
        ("echo error: no such command >&2; exit 2", "error: no such command"),
        ("exit 0", "exit status: 0"),
        ("kill -KILL $$", "signal: 9"),
    ] {
        for (_, gpu, result) in results_of(script) {
            let TestResult::NotTried(why) = result else { panic!("{gpu}: {result:?}") };
            assert!(why.contains(found), "{why}");
        }
    }
    let (sender, inbox) = channel();
    let command = command(Path::new("/no/such/program"), Path::new("/"), &["GPU-a"], 60);
    let _running = start(command, run(), "node".to_owned(), sender).unwrap();
    let Ok(Message::Health(HealthMessage::Tested(results))) = inbox.recv_timeout(TIMEOUT) else {
        panic!("no results")
    };
    assert!(
        matches!(&results[0].2, TestResult::NotTried(why) if why.contains("cannot be started"))
    );
}

#[test]
fn the_program_gets_driver_gpus_and_time_and_sees_no_other_gpu() {
    let script = r#"echo "{\"message\": \"$* $CUDA_VISIBLE_DEVICES\", \"gpus\": []}""#;
    let TestResult::NotTried(found) = results_of(script).remove(0).2 else { panic!() };
    assert_eq!(
        found,
        "probe verify --of-agent -o json --gpus=GPU-a,GPU-b --seconds=60 --driver-root / GPU-a,GPU-b"
    );
}

#[test]
fn a_test_that_is_not_wanted_ends_with_all_its_processes() {
    let folder = program("sleep 600 & echo $! $$ > $0.pids.new; mv $0.pids.new $0.pids; wait");
    let (sender, inbox) = channel();
    let program = folder.path().join("octavo");
    let command = command(&program, Path::new("/"), &["GPU-a"], 60);
    let mut running = start(command, run(), "node".to_owned(), sender).unwrap();
    let pids = program.with_extension("pids");
    let begin = Instant::now();
    let pids = loop {
        if let Ok(pids) = std::fs::read_to_string(&pids) {
            break pids;
        }
        assert!(begin.elapsed() < TIMEOUT);
        thread::yield_now();
    };
    let thread = running.thread.take().unwrap();
    drop(running);
    thread.join().unwrap();
    assert!(inbox.try_recv().is_err(), "it has no result");
    let runs = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // A process that has ended may wait for its parent.
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
    };
    while pids.split_whitespace().any(runs) {
        assert!(begin.elapsed() < TIMEOUT, "{pids}");
        thread::yield_now();
    }
}
