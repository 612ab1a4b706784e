//! Several processes, threads, forks and crashes.

use octavo_guard_abi::state::{self, SLOTS};

use crate::container::{Container, GIB, Interposition, MIB, eventually};

#[test]
fn processes_share_one_limit() {
    let container = Container::of(8 * GIB);
    let mut one = container.ready(Interposition::Proxy);
    let mut other = container.ready(Interposition::Proxy);
    assert_eq!(one.allocate(5 * GIB), 0);
    assert_eq!(other.allocate(3 * GIB), 2);
    assert_eq!(other.allocate(2 * GIB), 0);
    assert_eq!(container.slots("one").len(), 2);
    assert_eq!(container.used("one"), 7 * GIB + 512 * MIB);
}

#[test]
fn a_killed_process_gives_everything_back_at_once() {
    let container = Container::of(8 * GIB);
    let mut one = container.ready(Interposition::Proxy);
    let mut other = container.ready(Interposition::Proxy);
    assert_eq!(one.allocate(5 * GIB), 0);
    assert_eq!(other.allocate(5 * GIB), 2);
    one.kill();
    assert_eq!(other.allocate(5 * GIB), 0);
    assert_eq!(container.used("one"), 5 * GIB + 256 * MIB);
}

#[test]
fn what_a_killed_process_had_is_seen_as_free() {
    let container = Container::of(8 * GIB);
    let mut one = container.ready(Interposition::Proxy);
    let mut other = container.ready(Interposition::Proxy);
    assert_eq!(one.allocate(5 * GIB), 0);
    assert_eq!(other.say("info"), format!("0 {} {}", 3 * GIB - 512 * MIB, 8 * GIB));
    one.kill();
    // A query sees it a moment later.
    let all = format!("0 {} {}", 8 * GIB - 256 * MIB, 8 * GIB);
    eventually("the dead have nothing", || other.say("info") == all);
}

#[test]
fn a_newcomer_takes_the_slot_of_the_dead_and_nothing_of_what_it_had() {
    let container = Container::of(8 * GIB);
    let mut one = container.ready(Interposition::Proxy);
    assert_eq!(one.allocate(5 * GIB), 0);
    one.kill();
    let mut other = container.ready(Interposition::Proxy);
    let slots = container.slots("one");
    assert_eq!((slots.len(), slots[0].index, slots[0].used_bytes), (1, 0, 256 * MIB));
    assert_eq!(slots[0].pid, u64::from(other.id()));
    assert_eq!(other.allocate(7 * GIB), 0);
}

#[test]
fn processes_that_race_are_never_granted_more_than_there_is() {
    let container = Container::of(4 * GIB);
    let mut programs: Vec<_> = (0..8).map(|_| container.ready(Interposition::Proxy)).collect();
    for (seed, program) in programs.iter_mut().enumerate() {
        program.tell(&format!("storm {} 5000", seed + 1));
    }
    let mut granted = 0;
    for program in &mut programs {
        let answer = program.hear();
        granted += answer
            .strip_prefix("0 ")
            .and_then(|count| count.parse::<u64>().ok())
            .expect("a number");
    }
    assert!(granted > 1000, "{granted}");
    assert_eq!(container.used("one"), 8 * 256 * MIB);
}

#[test]
fn processes_that_are_killed_at_any_step_leave_nothing_behind() {
    let container = Container::of(4 * GIB);
    let mut survivor = container.ready(Interposition::Proxy);
    for round in 0..25_u64 {
        let mut victims: Vec<_> = (0..3).map(|_| container.ready(Interposition::Proxy)).collect();
        for (seed, victim) in victims.iter_mut().enumerate() {
            victim.tell(&format!("storm {} 100000000", round * 3 + seed as u64 + 1));
        }
        // At a different time in each round: first when any victim has an allocation, then some
        // polls later.
        eventually("the storm is on", || container.used("one") > 4 * 256 * MIB);
        for _ in 0..round {
            container.used("one");
        }
        for victim in victims {
            victim.kill();
        }
        // Everything but its own context is free at once.
        assert_eq!(survivor.allocate(4 * GIB - 256 * MIB), 0, "round {round}");
        assert_eq!(survivor.say(&format!("free {round}")), "0");
    }
    assert_eq!(container.used("one"), 256 * MIB);
}

#[test]
fn threads_of_a_process_keep_one_account() {
    let container = Container::of(4 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    let answer = program.say("threads 8");
    assert!(answer.starts_with("0 ") && answer != "0 0", "{answer}");
    assert_eq!(container.used("one"), 256 * MIB);
}

#[test]
fn a_child_of_a_fork_has_a_slot_of_its_own() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    assert_eq!(program.allocate(3 * GIB), 0);
    program.tell(&format!("fork alloc {GIB};alloc {};free 0;alloc {}", 5 * GIB, 4 * GIB));
    assert_eq!(program.hear(), "0 0");
    assert_eq!(program.hear(), "2 -1");
    assert_eq!(program.hear(), "0");
    assert_eq!(program.hear(), "0 1");
    assert_eq!(program.hear(), "forked 0");
    // The child's memory ended with it; the parent's is unchanged.
    let own: Vec<_> = container
        .slots("one")
        .into_iter()
        .filter(|slot| slot.pid == u64::from(program.id()))
        .collect();
    assert_eq!(own[0].used_bytes, 3 * GIB + 256 * MIB);
    assert_eq!(program.allocate(4 * GIB), 0);
    assert_eq!(program.say("free 0"), "0");
}

#[test]
fn an_idle_child_does_not_keep_its_parents_slot() {
    // With the C library, and without it.
    for request in ["idle", "clone"] {
        let container = Container::of(8 * GIB);
        let mut program = container.ready(Interposition::Proxy);
        assert_eq!(program.allocate(6 * GIB), 0);
        let child = program.say(request);
        program.kill();
        let mut other = container.ready(Interposition::Proxy);
        assert_eq!(other.allocate(6 * GIB), 0, "{request}");
        let id = child.strip_prefix("0 ").expect("a process");
        std::process::Command::new("kill").args(["-9", id]).status().expect("killed");
    }
}

#[test]
fn exec_starts_with_an_empty_slot() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    assert_eq!(program.allocate(6 * GIB), 0);
    assert_eq!(program.say("exec"), "0");
    assert_eq!(program.say("init"), "0");
    assert_eq!(program.say("retain 0"), "0");
    assert_eq!(program.allocate(7 * GIB), 0);
    assert_eq!(container.used("one"), 7 * GIB + 256 * MIB);
}

#[test]
fn a_process_that_starts_programs_keeps_its_account() {
    let container = Container::of(8 * GIB);
    for interposition in [Interposition::Proxy, Interposition::Preload] {
        let mut program = container.ready(interposition);
        assert_eq!(program.allocate(6 * GIB), 0);
        assert_eq!(program.say("spawn"), "0");
        assert_eq!(program.allocate(2 * GIB), 2);
        assert_eq!(program.say("free 0"), "0");
        assert_eq!(container.used("one"), 256 * MIB);
        program.kill();
    }
}

#[test]
fn a_process_that_closes_all_files_keeps_its_slot() {
    let container = Container::of(8 * GIB);
    let mut one = container.ready(Interposition::Proxy);
    let mut other = container.ready(Interposition::Proxy);
    assert_eq!(one.allocate(5 * GIB), 0);
    assert_eq!(one.say("close"), "0");
    assert_eq!(other.allocate(5 * GIB), 2);
    assert_eq!(one.say("free 0"), "0");
    assert_eq!(other.allocate(5 * GIB), 0);
}

#[test]
fn a_process_that_keeps_closing_files_keeps_its_slot() {
    let container = Container::of(8 * GIB);
    let mut one = container.ready(Interposition::Proxy);
    let mut other = container.ready(Interposition::Proxy);
    assert_eq!(one.say("closing"), "0");
    assert_eq!(one.allocate(5 * GIB), 0);
    for _ in 0..100 {
        // Both check slots of dead processes before a refusal.
        assert_eq!(other.allocate(5 * GIB), 2);
        assert_eq!(one.allocate(5 * GIB), 2);
    }
    assert_eq!(container.used("one"), 5 * GIB + 512 * MIB);
    one.kill();
    assert_eq!(other.allocate(5 * GIB), 0);
}

#[test]
fn no_descriptor_is_kept_where_there_is_no_agent() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    // Except briefly: the link may just be connecting to the agent.
    eventually("nothing is open", || program.say("descriptors") == "0 0 0");
}

#[test]
fn a_process_without_a_free_slot_has_no_gpu() {
    let container = Container::of(8 * GIB);
    let mut holder = container.start(Interposition::None, "dlsym");
    let fill = format!(
        "fill {} {} {SLOTS}",
        container.folder("one").join("state").display(),
        state::lock_offset(0)
    );
    assert_eq!(holder.say(&fill), "0");
    let mut program = container.start(Interposition::Proxy, "dlsym");
    assert_eq!(program.say("init"), "100");
    holder.kill();
    // It may retry.
    assert_eq!(program.say("init"), "0");
}

#[test]
fn two_hundred_and_fifty_six_processes_have_a_slot_each() {
    let container = Container::of(80 * GIB);
    let mut programs: Vec<_> =
        (0..256).map(|_| container.start(Interposition::Proxy, "dlsym")).collect();
    for program in &mut programs {
        program.tell("init");
    }
    for program in &mut programs {
        assert_eq!(program.hear(), "0");
    }
    let mut slots: Vec<_> =
        container.slots("one").iter().map(|slot| (slot.index, slot.pid)).collect();
    slots.dedup();
    assert_eq!(slots.len(), 256);
    for program in &mut programs {
        program.tell("retain 0");
    }
    for program in &mut programs {
        assert_eq!(program.hear(), "0");
    }
    assert_eq!(container.used("one"), 64 * GIB);
    programs.truncate(1);
    assert_eq!(programs[0].allocate(70 * GIB), 0);
}
