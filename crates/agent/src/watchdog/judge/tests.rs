mod crashes;
mod stage;

use std::os::unix::net::UnixStream;
use std::time::Duration;

use octavo_api::config::OverflowPolicy;
use octavo_gpu::{DriverError, GpuProcess};
use octavo_guard_abi::limits::Gate;
use octavo_guard_abi::message::Kind;
use octavo_guard_abi::{SOCKET_FILE, STATE_FILE};
use stage::{MIB, Program, Stage};

use crate::enforcement::BackendKind;

/// What the shares of these tests may have.
const LIMIT: u64 = 1000;

#[tokio::test]
async fn what_no_slot_says_is_told_to_the_guards() {
    let mut stage = Stage::new();
    let share = stage.share("a", LIMIT, OverflowPolicy::Kill);
    let program = stage.program(&share, "/pods/a");
    Stage::slot(&share, 0, &program, 400);
    stage.adopt();
    // One look may have come between an allocation and its slot.
    stage.look(&[(&program, 500)]);
    assert_eq!(
        (Stage::live(&share).untracked_bytes, Stage::live(&share).driver_bytes),
        (0, 500 * MIB)
    );
    stage.look(&[(&program, 600)]);
    stage.look(&[(&program, 500)]);
    let live = Stage::live(&share);
    assert_eq!(
        (live.gate, live.untracked_bytes, live.driver_bytes),
        (Gate::Open, 100 * MIB, 500 * MIB)
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
        assert_eq!(stage.metric(name, &share), Some(value), "{name}");
    }
    stage.look(&[(&program, 300)]);
    assert_eq!(Stage::live(&share).untracked_bytes, 0);
    assert_eq!(stage.metric("memory_peak_bytes", &share), Some(600 * MIB));
    // Where the driver does not answer what was known goes on to hold.
    for _ in 0..3 {
        stage.look(&[(&program, 450)]);
    }
    stage.look_blind();
    assert_eq!(Stage::live(&share).untracked_bytes, 50 * MIB);
    assert_eq!(stage.told(), [""; 0]);
}

#[tokio::test]
async fn what_was_freed_while_the_driver_counted_is_not_taken_for_untracked() {
    let mut stage = Stage::new();
    let share = stage.share("a", LIMIT, OverflowPolicy::Kill);
    let program = stage.program(&share, "/pods/a");
    stage.adopt();
    stage.look(&[]);
    for _ in 0..5 {
        Stage::slot(&share, 0, &program, 800);
        stage.judge().look_ahead();
        Stage::slot(&share, 0, &program, 10);
        stage.look(&[(&program, 800)]);
        assert_eq!(Stage::live(&share).untracked_bytes, 0);
    }
}

#[tokio::test]
async fn who_goes_round_the_guard_is_killed_and_its_neighbours_are_not() {
    let mut stage = Stage::new();
    let share = stage.share("a", LIMIT, OverflowPolicy::Kill);
    let other = stage.share("b", LIMIT, OverflowPolicy::Kill);
    let mut honest = stage.program(&share, "/pods/a");
    let mut rogue = stage.program(&share, "/pods/a");
    let mut neighbour = stage.program(&other, "/pods/b");
    Stage::slot(&share, 0, &honest, 900);
    Stage::slot(&other, 0, &neighbour, 1000);
    stage.adopt();
    let over: &[(&Program, u64)] = &[(&honest, 900), (&rogue, 500), (&neighbour, 1000)];
    stage.look(over);
    assert_eq!(Stage::live(&share).gate, Gate::Open);
    stage.look(over);
    assert_eq!(Stage::live(&share).gate, Gate::Held);
    assert_eq!(rogue.end(), Some(9));
    assert!(honest.is_alive() && neighbour.is_alive());
    let told = stage.told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("a MemoryOverflow MemoryOverflow=true: the driver counts 1400 MiB"),
        "{told:?}"
    );
    assert_eq!(stage.overflows("kill", &share), Some(1));
    let under: &[(&Program, u64)] = &[(&honest, 900), (&neighbour, 1000)];
    stage.look(under);
    assert_eq!(Stage::live(&share).gate, Gate::Held);
    stage.look(under);
    assert_eq!((Stage::live(&share).gate, Stage::live(&share).epoch), (Gate::Open, 2));
    assert_eq!(Stage::live(&other).epoch, 0);
    assert!(stage.told()[1].starts_with("a MemoryWithinLimit MemoryOverflow=false"));
}

#[tokio::test]
async fn a_context_that_is_larger_than_was_thought_is_learned_and_punished_by_nobody() {
    let mut stage = Stage::new();
    let share = stage.share("a", LIMIT, OverflowPolicy::Kill);
    let other = stage.share("b", LIMIT, OverflowPolicy::Kill);
    let mut old = stage.program(&share, "/pods/a");
    Stage::slot(&share, 0, &old, 740);
    Stage::context(&share, 0, 256);
    stage.adopt();
    stage.look(&[(&old, 740)]);
    assert_eq!((Stage::counted_context(&share), Stage::counted_context(&other)), (256, 256));
    let mut new = stage.program(&share, "/pods/a");
    Stage::slot(&share, 1, &new, 256);
    Stage::context(&share, 1, 256);
    for _ in 0..10 {
        stage.look(&[(&old, 740), (&new, 556)]);
    }
    assert!(old.is_alive() && new.is_alive());
    assert_eq!((Stage::live(&share).gate, stage.told()), (Gate::Open, Vec::new()));
    assert_eq!(Stage::live(&share).untracked_bytes, 300 * MIB, "the next allocation is refused");
    assert_eq!((Stage::counted_context(&share), Stage::counted_context(&other)), (556, 556));
    // Another agent finds what was learned.
    stage.restart();
    for _ in 0..6 {
        stage.look(&[(&old, 740), (&new, 556)]);
    }
    assert!(old.is_alive() && new.is_alive());
    // What takes more than a context does is what it always was.
    stage.look(&[(&old, 740), (&new, 900)]);
    stage.look(&[(&old, 740), (&new, 900)]);
    assert_eq!(new.end(), Some(9));
    assert!(old.is_alive());
    assert_eq!(Stage::counted_context(&share), 556);
}

#[tokio::test]
async fn a_container_is_frozen_and_goes_on_when_it_has_less() {
    let mut stage = Stage::new();
    let share = stage.share("a", LIMIT, OverflowPolicy::Freeze);
    let program = stage.program(&share, "/pods/a");
    Stage::slot(&share, 0, &program, 10);
    stage.adopt();
    stage.look(&[(&program, 3000)]);
    stage.look(&[(&program, 3000)]);
    assert_eq!(stage.frozen("/pods/a"), "1");
    // An agent that starts anew knows.
    stage.restart();
    stage.look(&[(&program, 3000)]);
    stage.look(&[(&program, 3000)]);
    assert_eq!((stage.frozen("/pods/a"), Stage::live(&share).gate), ("1".to_owned(), Gate::Held));
    stage.look(&[(&program, 10)]);
    stage.look(&[(&program, 10)]);
    assert_eq!((stage.frozen("/pods/a"), Stage::live(&share).gate), ("0".to_owned(), Gate::Open));
}

#[tokio::test]
async fn a_container_that_cannot_be_frozen_is_not_told_to_be() {
    let mut stage = Stage::new();
    let share = stage.share("a", LIMIT, OverflowPolicy::Freeze);
    let program = stage.program(&share, "/pods/a");
    std::fs::remove_file(stage.path("cgroup/pods/a/cgroup.freeze")).unwrap();
    stage.adopt();
    for _ in 0..10 {
        stage.look(&[(&program, 3000)]);
    }
    let told = stage.told();
    assert_eq!(told.len(), 1, "once: {told:?}");
    assert!(told[0].contains("could not all be frozen"), "{told:?}");
    assert_eq!(
        (stage.overflows("freeze", &share), stage.overflows("hold", &share)),
        (None, Some(1))
    );
    assert_eq!(Stage::live(&share).gate, Gate::Held);
}

#[tokio::test]
async fn two_shares_of_a_gpu_in_one_container_are_held_to_what_they_have_together() {
    let mut stage = Stage::new();
    let (first, second) = (
        stage.share("a", LIMIT, OverflowPolicy::Kill),
        stage.share("b", LIMIT, OverflowPolicy::Kill),
    );
    let mut honest = stage.program_of_two([&first, &second], "/pods/a");
    let mut rogue = stage.program_of_two([&first, &second], "/pods/a");
    Stage::slot(&first, 0, &honest, 900);
    Stage::slot(&second, 0, &honest, 500);
    stage.adopt();
    for _ in 0..10 {
        stage.look(&[(&honest, 1500), (&rogue, 400)]);
    }
    assert_eq!((Stage::live(&first).gate, Stage::live(&second).gate), (Gate::Open, Gate::Open));
    let driver = |share| Stage::live(share).driver_bytes;
    assert_eq!(driver(&first) + driver(&second), 1900 * MIB);
    assert!(driver(&first) >= 900 * MIB && driver(&second) >= 500 * MIB);
    assert_eq!(stage.told(), [""; 0]);
    for _ in 0..3 {
        stage.look(&[(&honest, 1500), (&rogue, 1900)]);
    }
    assert_eq!(rogue.end(), Some(9));
    assert!(honest.is_alive());
}

#[tokio::test]
async fn a_ledger_that_is_made_longer_is_cut_back_at_every_look() {
    let mut stage = Stage::new();
    let share = stage.share("a", LIMIT, OverflowPolicy::Kill);
    stage.adopt();
    stage.look(&[]);
    let path = share.folder.join(STATE_FILE);
    let size = || std::fs::metadata(&path).unwrap().len();
    let usual = size();
    for length in [1 << 30, 1 << 31] {
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
        stage.look(&[]);
        assert_eq!((size(), Stage::live(&share).gate), (usual, Gate::Fenced));
    }
    let told = stage.told();
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("is cut back to its size"), "{told:?}");
}

#[tokio::test]
async fn a_share_whose_folder_is_gone_first_leaves_nothing_frozen() {
    let mut stage = Stage::new();
    let share = stage.share("a", LIMIT, OverflowPolicy::Freeze);
    let program = stage.program(&share, "/pods/a");
    stage.adopt();
    stage.look(&[(&program, 3000)]);
    stage.look(&[(&program, 3000)]);
    assert_eq!(stage.frozen("/pods/a"), "1");
    std::fs::rename(&share.folder, stage.path("gone")).unwrap();
    std::fs::create_dir(&share.folder).unwrap();
    stage.give_back(&share);
    assert_eq!(stage.frozen("/pods/a"), "0");
}

#[tokio::test]
async fn a_share_that_is_given_back_while_it_is_held_leaves_nothing() {
    let mut stage = Stage::new();
    let share = stage.share("a", LIMIT, OverflowPolicy::Freeze);
    let program = stage.program(&share, "/pods/a");
    stage.adopt();
    stage.look(&[(&program, 3000)]);
    stage.look(&[(&program, 3000)]);
    assert_eq!(stage.frozen("/pods/a"), "1");
    stage.give_back(&share);
    assert_eq!(stage.frozen("/pods/a"), "0");
    assert!(!stage.metrics().contains("octavo_agent_share_memory_limit_bytes{"));
    assert!(!stage.metrics().contains("octavo_agent_foreign_processes{"));
    assert!(stage.judge().gpus().is_empty());
    stage.look(&[]);
}

#[tokio::test]
async fn a_container_that_writes_over_its_ledger_is_fenced_alone() {
    let mut stage = Stage::new();
    let share = stage.share("a", LIMIT, OverflowPolicy::Kill);
    let other = stage.share("b", LIMIT, OverflowPolicy::Kill);
    stage.adopt();
    stage.look(&[]);
    let path = share.folder.join(STATE_FILE);
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(10).unwrap();
    stage.look(&[]);
    assert_eq!(Stage::live(&share).gate, Gate::Fenced);
    assert_eq!(Stage::live(&other).gate, Gate::Open);
    let told = stage.told();
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with("a StateTampered Enforced=false: the ledger of share"), "{told:?}");
    // Also for the next agent, and though the guards' words of it are gone.
    stage.restart();
    for _ in 0..3 {
        stage.look(&[]);
    }
    assert_eq!(Stage::live(&share).gate, Gate::Fenced);
    assert!(
        stage.told()[1].starts_with("a StateTampered Enforced=false: share s of gpu-0 is fenced")
    );
    assert_eq!((stage.metric("gate", &share), stage.metric("gate", &other)), (Some(2), Some(0)));
}

#[tokio::test]
async fn a_ledger_that_is_gone_is_damage_when_it_stays_away() {
    let mut stage = Stage::new();
    let share = stage.share("a", LIMIT, OverflowPolicy::Kill);
    stage.adopt();
    stage.look(&[]);
    let (path, away) = (share.folder.join(STATE_FILE), share.folder.join("away"));
    std::fs::rename(&path, &away).unwrap();
    for _ in 0..3 {
        stage.look(&[]);
    }
    std::fs::rename(&away, &path).unwrap();
    stage.look(&[]);
    assert_eq!(Stage::live(&share).gate, Gate::Open);
    std::fs::remove_file(&path).unwrap();
    for _ in 0..10 {
        stage.look(&[]);
    }
    assert_eq!(Stage::live(&share).gate, Gate::Fenced);
}

#[tokio::test]
async fn what_guards_say_is_counted_told_and_heeded() {
    let mut stage = Stage::new();
    let share = stage.share("a", LIMIT, OverflowPolicy::Kill);
    stage.adopt();
    stage.look(&[]);
    let mut guard = UnixStream::connect(share.folder.join(SOCKET_FILE)).unwrap();
    Stage::say(&mut guard, Kind::Hello, 1, "");
    Stage::say(&mut guard, Kind::Refused, 3, "");
    Stage::say(&mut guard, Kind::Unknown, 1, "cuMemAllocWonder");
    stage.look_until(|stage| stage.metric("unknown_calls_total", &share) == Some(1)).await;
    assert_eq!(stage.metric("refused_allocations_total", &share), Some(3));
    let told = stage.told();
    assert_eq!(told.len(), 1);
    assert!(
        told[0].starts_with("a UnknownDriverFunction")
            && told[0].contains("cuMemAllocWonder (refused)")
    );
    // More of them are told together, later.
    Stage::say(&mut guard, Kind::Unknown, 0, "cuMemAllocTwo");
    Stage::say(&mut guard, Kind::Unknown, 0, "cuMemAllocThree");
    stage.look_until(|stage| stage.metric("unknown_calls_total", &share) == Some(3)).await;
    assert_eq!(stage.told().len(), 1);
    stage.pass(Duration::from_mins(1));
    stage.look(&[]);
    assert!(
        stage.told()[1].contains("cuMemAllocThree (let through), cuMemAllocTwo"),
        "{:?}",
        stage.told()
    );
    Stage::say(&mut guard, Kind::Tampered, 1, "");
    stage.look_until(|_| Stage::live(&share).gate == Gate::Fenced).await;
}

#[tokio::test]
async fn a_process_of_no_share_is_told_of_once() {
    let mut stage = Stage::new();
    let share = stage.share("a", LIMIT, OverflowPolicy::Kill);
    let program = stage.program(&share, "/pods/a");
    let stranger = stage.stranger("/system/stranger");
    stage.adopt();
    for _ in 0..3 {
        stage.look(&[(&program, 10), (&stranger, 5000)]);
    }
    assert_eq!(stage.told(), [format!("foreign {}: {}", share.gpu_uuid, stranger.pid())]);
    assert!(
        stage.metrics().contains("octavo_agent_foreign_processes{node=\"node\",gpu=\"GPU-1\"} 1\n")
    );
    assert_eq!(Stage::live(&share).driver_bytes, 10 * MIB, "it is not the share's");
    stage.look(&[(&program, 10)]);
    assert!(
        stage.metrics().contains("octavo_agent_foreign_processes{node=\"node\",gpu=\"GPU-1\"} 0\n")
    );
    // One that is gone, with a pid that nobody has, is no stranger.
    let gone = Stage::gone();
    stage.look(&[(&program, 10), (&gone, 7)]);
    assert_eq!(stage.told().len(), 1);
}

#[tokio::test]
async fn shares_without_a_guard_are_watched_without_a_ledger_or_not_at_all() {
    let mut stage = Stage::new();
    let mut by_driver = stage.share("a", LIMIT, OverflowPolicy::Kill);
    let mut open = stage.share("b", LIMIT, OverflowPolicy::Kill);
    by_driver.backend = Some(BackendKind::Driver);
    open.backend = Some(BackendKind::Off);
    stage.set(&by_driver);
    stage.set(&open);
    std::fs::remove_file(by_driver.folder.join(STATE_FILE)).unwrap();
    let mut held = stage.program(&by_driver, "/pods/a");
    let mut free = stage.program(&open, "/pods/b");
    stage.adopt();
    for _ in 0..8 {
        stage.look(&[(&held, 900), (&free, 9000)]);
    }
    assert_eq!(Stage::live(&by_driver).gate, Gate::Open);
    assert_eq!(stage.told(), [""; 0], "what is free has no limit, and is no stranger either");
    stage.look(&[(&held, 2000), (&free, 9000)]);
    stage.look(&[(&held, 2000), (&free, 9000)]);
    assert_eq!(held.end(), Some(9));
    assert!(free.is_alive());
}

#[tokio::test]
async fn a_share_whose_files_come_later_is_watched_from_then_on() {
    let mut stage = Stage::new();
    let share = stage.share("a", LIMIT, OverflowPolicy::Kill);
    let away = stage.path("away");
    std::fs::rename(&share.folder, &away).unwrap();
    stage.adopt();
    stage.look(&[]);
    std::fs::rename(&away, &share.folder).unwrap();
    stage.look(&[]);
    stage.look(&[]);
    assert_eq!(stage.metric("memory_limit_bytes", &share), Some(LIMIT * MIB));
    assert!(share.folder.join(SOCKET_FILE).exists());
    assert_eq!(stage.told(), [""; 0]);
}

#[tokio::test]
async fn that_nothing_is_seen_is_said_of_each_share_once_and_taken_back() {
    let mut stage = Stage::new();
    let share = stage.share("a", LIMIT, OverflowPolicy::Kill);
    let program = stage.program(&share, "/pods/a");
    Stage::slot(&share, 0, &program, 10);
    stage.adopt();
    let listed = |pid, used_bytes| Ok(vec![GpuProcess { pid, used_bytes }]);
    let lost = Err(DriverError::NotSupported { call: "nvmlDeviceGetComputeRunningProcesses_v3" });
    for (said, word) in [
        (lost, "driver-refuses"),
        (listed(program.pid(), None), "no-bytes"),
        (listed(Stage::gone().pid(), Some(1)), "no-host-pid"),
    ] {
        let before = stage.told().len();
        stage.told_so(9, &said);
        assert_eq!(stage.told().len(), before, "it may pass");
        stage.told_so(30, &said);
        let told = stage.told().split_off(before);
        let [of_gpu, of_share] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!(*of_gpu, format!("sight GPU-1: {word}"));
        assert!(of_share.starts_with("a NotWatched Enforced=unknown: "), "{of_share}");
        let line =
            format!("octavo_agent_watch_blind{{node=\"node\",gpu=\"GPU-1\",reason=\"{word}\"}} 1");
        let metrics = stage.metrics();
        assert!(metrics.contains(&line), "{metrics}");
        assert_eq!(metrics.matches("octavo_agent_watch_blind{").count(), 1);
    }
    // A share that comes meanwhile hears it, too.
    let late = stage.share("late", LIMIT, OverflowPolicy::Kill);
    stage.adopt();
    stage.told_so(1, &listed(Stage::gone().pid(), Some(1)));
    assert!(stage.told().last().unwrap().starts_with("late NotWatched Enforced=unknown"));
    let before = stage.told().len();
    for _ in 0..30 {
        stage.look(&[(&program, 10)]);
    }
    let told = stage.told().split_off(before);
    assert_eq!(told[0], "sight GPU-1: sees");
    assert!(told[1].starts_with("a Watched Enforced=true") && told[2].starts_with("late Watched"));
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(!stage.metrics().contains("octavo_agent_watch_blind{"));
    stage.give_back(&share);
    stage.give_back(&late);
}

#[tokio::test]
async fn processes_whose_mounts_may_not_be_read_are_nobody_s_fault_and_told() {
    let mut stage = Stage::new();
    let share = stage.share("a", LIMIT, OverflowPolicy::Kill);
    let stranger = stage.stranger("/elsewhere");
    stage.adopt();
    stage.hide_mounts(&stranger);
    for _ in 0..20 {
        stage.look(&[(&stranger, 500)]);
    }
    let told = stage.told();
    assert_eq!(told[0], "sight GPU-1: unreadable-proc");
    assert!(told[1].contains("SYS_PTRACE"), "{told:?}");
    assert_eq!(told.len(), 2, "it is not called a stranger: {told:?}");
    stage.give_back(&share);
}
