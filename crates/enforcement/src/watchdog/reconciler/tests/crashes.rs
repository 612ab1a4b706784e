//! Agents killed at any step of monitoring: the next agent completes the work.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use octavo_api::config::OverflowPolicy;
use octavo_guard_abi::SOCKET_FILE;
use octavo_guard_abi::limits::ShareGate;

use super::fixtures::{Fixture, Program};

/// Name of the test that plays the agent that is killed.
const SCRIPT: &str = "watchdog::reconciler::tests::crashes::an_agent_that_is_killed";
/// Arguments of the child: folder, policy, and the pid of a process over the limit.
const SHARES_FOLDER: &str = "OCTAVO_TEST_FOLDER";
const POLICY: &str = "OCTAVO_TEST_POLICY";
const PID: &str = "OCTAVO_TEST_PID";

const LIMIT: u64 = 1000;

fn policy(name: &str) -> OverflowPolicy {
    match name {
        "Freeze" => OverflowPolicy::Freeze,
        "Kill" => OverflowPolicy::Kill,
        _ => OverflowPolicy::Hold,
    }
}

/// Not a test of its own: runs through an overflow and its end for a parent test.
#[tokio::test]
async fn an_agent_that_is_killed() {
    let Some(folder) = std::env::var_os(SHARES_FOLDER) else { return };
    let policy = policy(&std::env::var(POLICY).unwrap());
    let program = Program::of(std::env::var(PID).unwrap().parse().unwrap());
    let mut fixture = Fixture::at(folder.as_ref());
    fixture.known_share("a", LIMIT, policy);
    fixture.adopt();
    for mebibytes in [10, 3000, 3000, 3000, 10, 10, 10] {
        fixture.look(&[(&program, mebibytes)]);
    }
}

#[tokio::test]
async fn the_next_agent_makes_whole_what_one_that_was_killed_began() {
    for (name, point) in [
        ("Hold", "watchdog.listening"),
        ("Hold", "watchdog.told-guards"),
        ("Hold", "watchdog.gate-set"),
        ("Freeze", "watchdog.gate-set"),
        ("Freeze", "watchdog.freezing"),
        ("Freeze", "watchdog.frozen"),
        ("Freeze", "watchdog.thawed"),
        ("Kill", "watchdog.killed"),
    ] {
        let mut fixture = Fixture::new();
        let share = fixture.share("a", LIMIT, policy(name));
        let mut program = fixture.program(&share, "/pods/a");
        Fixture::slot(&share, 0, &program, 10);
        let killed = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", SCRIPT, "--quiet"])
            .env(SHARES_FOLDER, fixture.path(""))
            .env(POLICY, name)
            .env(PID, program.pid().to_string())
            .env("OCTAVO_CRASH_AT", point)
            .output()
            .unwrap();
        assert_eq!(killed.status.signal(), Some(9), "{point} was not come by: {killed:?}");
        fixture.adopt();
        if name == "Kill" {
            assert_eq!(program.end(), Some(9));
        } else {
            fixture.look(&[(&program, 3000)]);
            fixture.look(&[(&program, 3000)]);
            assert_eq!(Fixture::live(&share).gate, ShareGate::Paused, "{point}");
            assert_eq!(fixture.frozen("/pods/a") == "1", name == "Freeze", "{point}");
        }
        let counted =
            |mebibytes| if name == "Kill" { Vec::new() } else { vec![(&program, mebibytes)] };
        fixture.look(&counted(10));
        fixture.look(&counted(10));
        assert_eq!(Fixture::live(&share).gate, ShareGate::Open, "{point}");
        assert_eq!(fixture.frozen("/pods/a"), "0", "{point}");
        let name = share.folder.file_name().unwrap().to_string_lossy().into_owned();
        let record = share.folder.with_file_name(format!(".{name}.frozen"));
        assert!(fs::symlink_metadata(record).is_err(), "{point}");
        assert!(fs::symlink_metadata(share.folder.join(SOCKET_FILE)).is_ok(), "{point}");
        fixture.give_back(&share);
    }
}
