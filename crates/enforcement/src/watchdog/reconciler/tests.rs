mod crashes;
mod fixtures;
mod time;

use std::os::unix::net::UnixStream;
use std::time::Duration;

use fixtures::{Fixture, MIB, Program};
use octavo_api::config::OverflowPolicy;
use octavo_gpu::{DriverError, GpuProcess};
use octavo_guard_abi::limits::ShareGate;
use octavo_guard_abi::message::Kind;
use octavo_guard_abi::{SOCKET_FILE, STATE_FILE};

use crate::backend::BackendKind;

/// Limit of the shares in these tests.
const LIMIT: u64 = 1000;

#[tokio::test]
async fn untracked_bytes_are_written_for_the_guards() {
    let mut fixture = Fixture::new();
    let share = fixture.share("a", LIMIT, OverflowPolicy::Kill);
    let program = fixture.program(&share, "/pods/a");
    Fixture::slot(&share, 0, &program, 400);
    fixture.adopt();
    // One poll may fall between an allocation and its slot.
    fixture.look(&[(&program, 500)]);
    assert_eq!(
        (Fixture::live(&share).untracked_bytes, Fixture::live(&share).driver_bytes),
        (0, 500 * MIB)
    );
    fixture.look(&[(&program, 600)]);
    fixture.look(&[(&program, 500)]);
    let live = Fixture::live(&share);
    assert_eq!(
        (live.gate, live.untracked_bytes, live.driver_bytes),
        (ShareGate::Open, 100 * MIB, 500 * MIB)
    );
    for (name, value) in [
        ("memory_limit_bytes", 1000 * MIB),
        ("memory_used_bytes", 400 * MIB),
        ("memory_driver_bytes", 500 * MIB),
        ("memory_untracked_bytes", 100 * MIB),
        ("memory_peak_bytes", 600 * MIB),
        ("processes", 1),
        ("gate", 0),
    ] {
        assert_eq!(fixture.metric(name, &share), Some(value), "{name}");
    }
    fixture.look(&[(&program, 300)]);
    assert_eq!(Fixture::live(&share).untracked_bytes, 0);
    assert_eq!(fixture.metric("memory_peak_bytes", &share), Some(600 * MIB));
    // Without an answer of the driver the former values stay.
    for _ in 0..3 {
        fixture.look(&[(&program, 450)]);
    }
    fixture.look_blind();
    assert_eq!(Fixture::live(&share).untracked_bytes, 50 * MIB);
    assert_eq!(fixture.reported(), [""; 0]);
}

#[tokio::test]
async fn what_was_freed_while_the_driver_counted_is_not_taken_for_untracked() {
    let mut fixture = Fixture::new();
    let share = fixture.share("a", LIMIT, OverflowPolicy::Kill);
    let program = fixture.program(&share, "/pods/a");
    fixture.adopt();
    fixture.look(&[]);
    for _ in 0..5 {
        Fixture::slot(&share, 0, &program, 800);
        fixture.reconciler().sample_slots();
        Fixture::slot(&share, 0, &program, 10);
        fixture.look(&[(&program, 800)]);
        assert_eq!(Fixture::live(&share).untracked_bytes, 0);
    }
}

#[tokio::test]
async fn who_goes_round_the_guard_is_killed_and_its_neighbours_are_not() {
    let mut fixture = Fixture::new();
    let share = fixture.share("a", LIMIT, OverflowPolicy::Kill);
    let other = fixture.share("b", LIMIT, OverflowPolicy::Kill);
    let mut honest = fixture.program(&share, "/pods/a");
    let mut rogue = fixture.program(&share, "/pods/a");
    let mut neighbour = fixture.program(&other, "/pods/b");
    Fixture::slot(&share, 0, &honest, 900);
    Fixture::slot(&other, 0, &neighbour, 1000);
    fixture.adopt();
    let over: &[(&Program, u64)] = &[(&honest, 900), (&rogue, 500), (&neighbour, 1000)];
    fixture.look(over);
    assert_eq!(Fixture::live(&share).gate, ShareGate::Open);
    fixture.look(over);
    assert_eq!(Fixture::live(&share).gate, ShareGate::Paused);
    assert_eq!(rogue.end(), Some(9));
    assert!(honest.is_alive() && neighbour.is_alive());
    let reported = fixture.reported();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        reported[0].starts_with("a MemoryOverflow MemoryOverflow=true: the driver counts 1400 MiB"),
        "{reported:?}"
    );
    assert_eq!(fixture.overflows("kill", &share), Some(1));
    let under: &[(&Program, u64)] = &[(&honest, 900), (&neighbour, 1000)];
    fixture.look(under);
    assert_eq!(Fixture::live(&share).gate, ShareGate::Paused);
    fixture.look(under);
    assert_eq!((Fixture::live(&share).gate, Fixture::live(&share).epoch), (ShareGate::Open, 2));
    assert_eq!(Fixture::live(&other).epoch, 0);
    assert!(fixture.reported()[1].starts_with("a MemoryWithinLimit MemoryOverflow=false"));
}

#[tokio::test]
async fn larger_context_is_learned_without_punishing_the_share() {
    let mut fixture = Fixture::new();
    let share = fixture.share("a", LIMIT, OverflowPolicy::Kill);
    let other = fixture.share("b", LIMIT, OverflowPolicy::Kill);
    let mut old = fixture.program(&share, "/pods/a");
    Fixture::slot(&share, 0, &old, 740);
    Fixture::context(&share, 0, 256);
    fixture.adopt();
    fixture.look(&[(&old, 740)]);
    assert_eq!((Fixture::counted_context(&share), Fixture::counted_context(&other)), (256, 256));
    let mut new = fixture.program(&share, "/pods/a");
    Fixture::slot(&share, 1, &new, 256);
    Fixture::context(&share, 1, 256);
    for _ in 0..10 {
        fixture.look(&[(&old, 740), (&new, 556)]);
    }
    assert!(old.is_alive() && new.is_alive());
    assert_eq!((Fixture::live(&share).gate, fixture.reported()), (ShareGate::Open, Vec::new()));
    assert_eq!(Fixture::live(&share).untracked_bytes, 300 * MIB, "the next allocation is refused");
    assert_eq!((Fixture::counted_context(&share), Fixture::counted_context(&other)), (556, 556));
    // Another agent finds the learned size.
    fixture.restart();
    for _ in 0..6 {
        fixture.look(&[(&old, 740), (&new, 556)]);
    }
    assert!(old.is_alive() && new.is_alive());
    // An excess beyond a context is handled as before.
    fixture.look(&[(&old, 740), (&new, 1500)]);
    fixture.look(&[(&old, 740), (&new, 1500)]);
    assert_eq!(new.end(), Some(9));
    assert!(old.is_alive());
    assert_eq!(Fixture::counted_context(&share), 556);
}

#[tokio::test]
async fn a_container_is_frozen_and_goes_on_when_it_has_less() {
    let mut fixture = Fixture::new();
    let share = fixture.share("a", LIMIT, OverflowPolicy::Freeze);
    let program = fixture.program(&share, "/pods/a");
    Fixture::slot(&share, 0, &program, 10);
    fixture.adopt();
    fixture.look(&[(&program, 3000)]);
    fixture.look(&[(&program, 3000)]);
    assert_eq!(fixture.frozen("/pods/a"), "1");
    // A restarted agent knows the size.
    fixture.restart();
    fixture.look(&[(&program, 3000)]);
    fixture.look(&[(&program, 3000)]);
    assert_eq!(
        (fixture.frozen("/pods/a"), Fixture::live(&share).gate),
        ("1".to_owned(), ShareGate::Paused)
    );
    fixture.look(&[(&program, 10)]);
    fixture.look(&[(&program, 10)]);
    assert_eq!(
        (fixture.frozen("/pods/a"), Fixture::live(&share).gate),
        ("0".to_owned(), ShareGate::Open)
    );
}

#[tokio::test]
async fn failed_freeze_is_not_reported_as_frozen() {
    let mut fixture = Fixture::new();
    let share = fixture.share("a", LIMIT, OverflowPolicy::Freeze);
    let program = fixture.program(&share, "/pods/a");
    std::fs::remove_file(fixture.path("cgroup/pods/a/cgroup.freeze")).unwrap();
    fixture.adopt();
    for _ in 0..10 {
        fixture.look(&[(&program, 3000)]);
    }
    let reported = fixture.reported();
    assert_eq!(reported.len(), 1, "once: {reported:?}");
    assert!(reported[0].contains("could not be frozen"), "{reported:?}");
    assert_eq!(
        (fixture.overflows("freeze", &share), fixture.overflows("hold", &share)),
        (None, Some(1))
    );
    assert_eq!(Fixture::live(&share).gate, ShareGate::Paused);
}

#[tokio::test]
async fn two_shares_in_one_container_are_held_to_their_sum() {
    let mut fixture = Fixture::new();
    let (first, second) = (
        fixture.share("a", LIMIT, OverflowPolicy::Kill),
        fixture.share("b", LIMIT, OverflowPolicy::Kill),
    );
    let mut honest = fixture.program_of_two([&first, &second], "/pods/a");
    let mut rogue = fixture.program_of_two([&first, &second], "/pods/a");
    Fixture::slot(&first, 0, &honest, 900);
    Fixture::slot(&second, 0, &honest, 500);
    fixture.adopt();
    for _ in 0..10 {
        fixture.look(&[(&honest, 1500), (&rogue, 400)]);
    }
    assert_eq!(
        (Fixture::live(&first).gate, Fixture::live(&second).gate),
        (ShareGate::Open, ShareGate::Open)
    );
    let driver = |share| Fixture::live(share).driver_bytes;
    assert_eq!(driver(&first) + driver(&second), 1900 * MIB);
    assert!(driver(&first) >= 900 * MIB && driver(&second) >= 500 * MIB);
    assert_eq!(fixture.reported(), [""; 0]);
    for _ in 0..3 {
        fixture.look(&[(&honest, 1500), (&rogue, 1900)]);
    }
    assert_eq!(rogue.end(), Some(9));
    assert!(honest.is_alive());
}

#[tokio::test]
async fn a_ledger_that_is_made_longer_is_cut_back_at_every_look() {
    let mut fixture = Fixture::new();
    let share = fixture.share("a", LIMIT, OverflowPolicy::Kill);
    fixture.adopt();
    fixture.look(&[]);
    let path = share.folder.join(STATE_FILE);
    let size = || std::fs::metadata(&path).unwrap().len();
    let usual = size();
    for length in [1 << 30, 1 << 31] {
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
        fixture.look(&[]);
        assert_eq!((size(), Fixture::live(&share).gate), (usual, ShareGate::Fenced));
    }
    let reported = fixture.reported();
    assert_eq!(reported.len(), 1);
    assert!(reported[0].contains("was truncated"), "{reported:?}");
}

#[tokio::test]
async fn a_share_whose_folder_is_gone_first_leaves_nothing_frozen() {
    let mut fixture = Fixture::new();
    let share = fixture.share("a", LIMIT, OverflowPolicy::Freeze);
    let program = fixture.program(&share, "/pods/a");
    fixture.adopt();
    fixture.look(&[(&program, 3000)]);
    fixture.look(&[(&program, 3000)]);
    assert_eq!(fixture.frozen("/pods/a"), "1");
    std::fs::rename(&share.folder, fixture.path("gone")).unwrap();
    std::fs::create_dir(&share.folder).unwrap();
    fixture.give_back(&share);
    assert_eq!(fixture.frozen("/pods/a"), "0");
}

#[tokio::test]
async fn a_share_that_is_given_back_while_it_is_held_leaves_nothing() {
    let mut fixture = Fixture::new();
    let share = fixture.share("a", LIMIT, OverflowPolicy::Freeze);
    let program = fixture.program(&share, "/pods/a");
    fixture.adopt();
    fixture.look(&[(&program, 3000)]);
    fixture.look(&[(&program, 3000)]);
    assert_eq!(fixture.frozen("/pods/a"), "1");
    fixture.give_back(&share);
    assert_eq!(fixture.frozen("/pods/a"), "0");
    assert!(!fixture.metrics().contains("octavo_agent_share_memory_limit_bytes{"));
    assert!(!fixture.metrics().contains("octavo_agent_foreign_processes{"));
    assert!(fixture.reconciler().gpus().is_empty());
    fixture.look(&[]);
}

#[tokio::test]
async fn a_container_that_writes_over_its_ledger_is_fenced_alone() {
    let mut fixture = Fixture::new();
    let share = fixture.share("a", LIMIT, OverflowPolicy::Kill);
    let other = fixture.share("b", LIMIT, OverflowPolicy::Kill);
    fixture.adopt();
    fixture.look(&[]);
    let path = share.folder.join(STATE_FILE);
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(10).unwrap();
    fixture.look(&[]);
    assert_eq!(Fixture::live(&share).gate, ShareGate::Fenced);
    assert_eq!(Fixture::live(&other).gate, ShareGate::Open);
    let reported = fixture.reported();
    assert_eq!(reported.len(), 1);
    assert!(
        reported[0].starts_with("a StateTampered Enforced=false: the ledger of share"),
        "{reported:?}"
    );
    // Also for the next agent, and though the guards' words of it are gone.
    fixture.restart();
    for _ in 0..3 {
        fixture.look(&[]);
    }
    assert_eq!(Fixture::live(&share).gate, ShareGate::Fenced);
    assert!(
        fixture.reported()[1]
            .starts_with("a StateTampered Enforced=false: share s of gpu-0 is fenced")
    );
    assert_eq!(
        (fixture.metric("gate", &share), fixture.metric("gate", &other)),
        (Some(2), Some(0))
    );
}

#[tokio::test]
async fn a_ledger_that_is_gone_is_damage_when_it_stays_away() {
    let mut fixture = Fixture::new();
    let share = fixture.share("a", LIMIT, OverflowPolicy::Kill);
    fixture.adopt();
    fixture.look(&[]);
    let (path, away) = (share.folder.join(STATE_FILE), share.folder.join("away"));
    std::fs::rename(&path, &away).unwrap();
    for _ in 0..3 {
        fixture.look(&[]);
    }
    std::fs::rename(&away, &path).unwrap();
    fixture.look(&[]);
    assert_eq!(Fixture::live(&share).gate, ShareGate::Open);
    std::fs::remove_file(&path).unwrap();
    for _ in 0..10 {
        fixture.look(&[]);
    }
    assert_eq!(Fixture::live(&share).gate, ShareGate::Fenced);
}

#[tokio::test]
async fn guard_reports_are_counted_reported_and_acted_on() {
    let mut fixture = Fixture::new();
    let share = fixture.share("a", LIMIT, OverflowPolicy::Kill);
    fixture.adopt();
    fixture.look(&[]);
    let mut guard = UnixStream::connect(share.folder.join(SOCKET_FILE)).unwrap();
    Fixture::say(&mut guard, Kind::Hello, 1, "");
    Fixture::say(&mut guard, Kind::Refused, 3, "");
    Fixture::say(&mut guard, Kind::Unknown, 1, "cuMemAllocWonder");
    fixture.look_until(|fixture| fixture.metric("unknown_calls_total", &share) == Some(1)).await;
    assert_eq!(fixture.metric("refused_allocations_total", &share), Some(3));
    let reported = fixture.reported();
    assert_eq!(reported.len(), 1);
    assert!(
        reported[0].starts_with("a UnknownDriverFunction")
            && reported[0].contains("cuMemAllocWonder (refused)")
    );
    // Several of them are reported together, later.
    Fixture::say(&mut guard, Kind::Unknown, 0, "cuMemAllocTwo");
    Fixture::say(&mut guard, Kind::Unknown, 0, "cuMemAllocThree");
    fixture.look_until(|fixture| fixture.metric("unknown_calls_total", &share) == Some(3)).await;
    assert_eq!(fixture.reported().len(), 1);
    fixture.advance(Duration::from_mins(1));
    fixture.look(&[]);
    assert!(
        fixture.reported()[1].contains("cuMemAllocThree (let through), cuMemAllocTwo"),
        "{:?}",
        fixture.reported()
    );
    Fixture::say(&mut guard, Kind::Tampered, 1, "");
    fixture.look_until(|_| Fixture::live(&share).gate == ShareGate::Fenced).await;
}

#[tokio::test]
async fn foreign_process_is_reported_once() {
    let mut fixture = Fixture::new();
    let share = fixture.share("a", LIMIT, OverflowPolicy::Kill);
    let program = fixture.program(&share, "/pods/a");
    let stranger = fixture.stranger("/system/stranger");
    fixture.adopt();
    for _ in 0..3 {
        fixture.look(&[(&program, 10), (&stranger, 5000)]);
    }
    assert_eq!(fixture.reported(), [format!("foreign {}: {}", share.gpu_uuid, stranger.pid())]);
    assert!(
        fixture
            .metrics()
            .contains("octavo_agent_foreign_processes{node=\"node\",gpu=\"GPU-1\"} 1\n")
    );
    assert_eq!(Fixture::live(&share).driver_bytes, 10 * MIB, "it is not the share's");
    fixture.look(&[(&program, 10)]);
    assert!(
        fixture
            .metrics()
            .contains("octavo_agent_foreign_processes{node=\"node\",gpu=\"GPU-1\"} 0\n")
    );
    // An exited process with an unused pid is not foreign.
    let gone = Fixture::gone();
    fixture.look(&[(&program, 10), (&gone, 7)]);
    assert_eq!(fixture.reported().len(), 1);
}

#[tokio::test]
async fn shares_without_a_guard_are_watched_without_a_ledger_or_not_at_all() {
    let mut fixture = Fixture::new();
    let mut by_driver = fixture.share("a", LIMIT, OverflowPolicy::Kill);
    let mut open = fixture.share("b", LIMIT, OverflowPolicy::Kill);
    by_driver.backend = Some(BackendKind::Driver);
    open.backend = Some(BackendKind::Off);
    fixture.set(&by_driver);
    fixture.set(&open);
    std::fs::remove_file(by_driver.folder.join(STATE_FILE)).unwrap();
    let mut held = fixture.program(&by_driver, "/pods/a");
    let mut free = fixture.program(&open, "/pods/b");
    fixture.adopt();
    for _ in 0..8 {
        fixture.look(&[(&held, 900), (&free, 9000)]);
    }
    assert_eq!(Fixture::live(&by_driver).gate, ShareGate::Open);
    assert_eq!(fixture.reported(), [""; 0], "what is free has no limit, and is no stranger either");
    fixture.look(&[(&held, 2000), (&free, 9000)]);
    fixture.look(&[(&held, 2000), (&free, 9000)]);
    assert_eq!(held.end(), Some(9));
    assert!(free.is_alive());
}

#[tokio::test]
async fn a_share_whose_files_come_later_is_watched_from_then_on() {
    let mut fixture = Fixture::new();
    let share = fixture.share("a", LIMIT, OverflowPolicy::Kill);
    let away = fixture.path("away");
    std::fs::rename(&share.folder, &away).unwrap();
    fixture.adopt();
    fixture.look(&[]);
    std::fs::rename(&away, &share.folder).unwrap();
    fixture.look(&[]);
    fixture.look(&[]);
    assert_eq!(fixture.metric("memory_limit_bytes", &share), Some(LIMIT * MIB));
    assert!(share.folder.join(SOCKET_FILE).exists());
    assert_eq!(fixture.reported(), [""; 0]);
}

#[tokio::test]
async fn blind_spot_is_reported_once_per_share_and_withdrawn() {
    let mut fixture = Fixture::new();
    let share = fixture.share("a", LIMIT, OverflowPolicy::Kill);
    let program = fixture.program(&share, "/pods/a");
    Fixture::slot(&share, 0, &program, 10);
    fixture.adopt();
    let listed = |pid, used_bytes| Ok(vec![GpuProcess { pid, used_bytes }]);
    let lost = Err(DriverError::NotSupported { call: "nvmlDeviceGetComputeRunningProcesses_v3" });
    for (message, word) in [
        (lost, "driver-refuses"),
        (listed(program.pid(), None), "no-bytes"),
        (listed(Fixture::gone().pid(), Some(1)), "no-host-pid"),
    ] {
        let before = fixture.reported().len();
        fixture.answer_repeatedly(9, &message);
        assert_eq!(fixture.reported().len(), before, "it may pass");
        fixture.answer_repeatedly(30, &message);
        let reported = fixture.reported().split_off(before);
        let [of_gpu, of_share] = reported.as_slice() else { panic!("{reported:?}") };
        assert_eq!(*of_gpu, format!("sight GPU-1: {word}"));
        assert!(of_share.starts_with("a NotWatched Enforced=unknown: "), "{of_share}");
        let line =
            format!("octavo_agent_watch_blind{{node=\"node\",gpu=\"GPU-1\",reason=\"{word}\"}} 1");
        let metrics = fixture.metrics();
        assert!(metrics.contains(&line), "{metrics}");
        assert_eq!(metrics.matches("octavo_agent_watch_blind{").count(), 1);
    }
    // A share added meanwhile gets the report, too.
    let late = fixture.share("late", LIMIT, OverflowPolicy::Kill);
    fixture.adopt();
    fixture.answer_repeatedly(1, &listed(Fixture::gone().pid(), Some(1)));
    assert!(fixture.reported().last().unwrap().starts_with("late NotWatched Enforced=unknown"));
    let before = fixture.reported().len();
    for _ in 0..30 {
        fixture.look(&[(&program, 10)]);
    }
    let reported = fixture.reported().split_off(before);
    assert_eq!(reported[0], "sight GPU-1: sees");
    assert!(
        reported[1].starts_with("a Watched Enforced=true")
            && reported[2].starts_with("late Watched")
    );
    assert_eq!(reported.len(), 3, "{reported:?}");
    assert!(!fixture.metrics().contains("octavo_agent_watch_blind{"));
    fixture.give_back(&share);
    fixture.give_back(&late);
}

#[tokio::test]
async fn processes_with_unreadable_mounts_are_reported_but_not_blamed() {
    let mut fixture = Fixture::new();
    let share = fixture.share("a", LIMIT, OverflowPolicy::Kill);
    let stranger = fixture.stranger("/elsewhere");
    fixture.adopt();
    fixture.hide_mounts(&stranger);
    for _ in 0..20 {
        fixture.look(&[(&stranger, 500)]);
    }
    let reported = fixture.reported();
    assert_eq!(reported[0], "sight GPU-1: unreadable-proc");
    assert!(reported[1].contains("SYS_PTRACE"), "{reported:?}");
    assert_eq!(reported.len(), 2, "it is not called a stranger: {reported:?}");
    fixture.give_back(&share);
}
