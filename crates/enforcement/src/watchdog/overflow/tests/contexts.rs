//! The context size of a new process before it is known.

use super::*;

/// A share of 1,000 MiB, nearly full, to which a process with a context comes.
fn context_comes(at: u64, context: u64, is_new: bool, known: Option<u64>) -> Sample {
    let old = with_context(used(1, 740, Some(740)), 256, false);
    let new = with_context(used(2, context, Some(256)), 256, is_new);
    let sample = sample(at, vec![old, new]);
    Sample { limit_bytes: 1000 * MIB, context_bytes: known.map(|size| size * MIB), ..sample }
}

#[test]
fn known_context_surplus_is_excused() {
    let mut overflow = overflow(OverflowPolicy::Kill);
    for at in [0, 200, 400] {
        assert_eq!(overflow.step(&context_comes(at, 556, true, None)), [], "at {at} ms");
    }
    // The context size is known by then.
    for at in (600..10_000).step_by(200) {
        assert_eq!(overflow.step(&context_comes(at, 556, false, Some(556))), [], "at {at} ms");
    }
    // More than that is more than a context, and no call may have asked for it.
    assert_eq!(words(&overflow.step(&context_comes(10_000, 756, false, Some(556)))), "");
    let actions = overflow.step(&context_comes(10_200, 756, false, Some(556)));
    assert_eq!(words(&actions), "tell refuse");
    // Still more is more than the driver takes by itself.
    assert_eq!(words(&overflow.step(&context_comes(10_400, 1256, false, Some(556)))), "");
    let actions = overflow.step(&context_comes(10_600, 1256, false, Some(556)));
    assert_eq!(words(&actions), "Paused, kill 2, tell kill");
}

/// A share of 10,000 MiB that is full, of one process with a context of 556 MiB, which has grown by so much.
fn grown(at: u64, mebibytes: u64) -> Sample {
    let used = with_context(used(1, 10_000 + mebibytes, Some(10_000)), 556, false);
    Sample { context_bytes: Some(556 * MIB), ..sample(at, vec![used]) }
}

#[test]
fn memory_that_no_call_asked_for_is_refused_under_every_policy_and_ends_no_process() {
    for (policy, response) in [
        (OverflowPolicy::Report, "tell report"),
        (OverflowPolicy::Hold, "tell refuse"),
        (OverflowPolicy::Freeze, "tell refuse"),
        (OverflowPolicy::Kill, "tell refuse"),
    ] {
        let mut overflow = overflow(policy);
        assert_eq!(words(&overflow.step(&grown(0, 400))), "");
        assert_eq!(words(&overflow.step(&grown(200, 400))), response, "{policy:?}");
        // It is reported once, however long it lasts.
        for at in (400..60_000).step_by(200) {
            assert_eq!(words(&overflow.step(&grown(at, 700))), "", "{policy:?} at {at} ms");
        }
        assert_eq!(overflow.gate(), ShareGate::Open);
        assert_eq!(words(&overflow.step(&grown(60_000, 100))), "");
        assert_eq!(words(&overflow.step(&grown(60_200, 100))), "tell within");
    }
}

#[test]
fn who_may_go_round_the_guard_has_no_such_growth() {
    type Change = fn(&mut Sample);
    let changes: [(&str, Change); 4] = [
        ("more than the driver takes by itself", |sample| *sample = grown(0, 2000)),
        ("functions that the guard does not know", |sample| {
            sample.processes.as_mut().unwrap()[0].has_unknown = true;
        }),
        ("no context", |sample| sample.processes.as_mut().unwrap()[0].context_bytes = 0),
        ("another process without a slot", |sample| {
            sample.processes.as_mut().unwrap().push(used(2, 600, None));
        }),
    ];
    for (what, change) in changes {
        let mut overflow = overflow(OverflowPolicy::Kill);
        let mut at = 0;
        let mut step = || {
            let mut sample = grown(at, 400);
            change(&mut sample);
            sample.at = Duration::from_millis(at);
            at += 200;
            words(&overflow.step(&sample))
        };
        let all: Vec<String> = (0..6).map(|_| step()).collect();
        assert!(all.join(" ").contains("kill"), "{what}: {all:?}");
        let has_other = what.starts_with("another");
        assert!(!has_other || all.join(" ").contains("kill 2, "), "the other one alone: {all:?}");
    }
}

#[test]
fn many_processes_grow_together_by_a_part_of_the_share_at_most() {
    let many = |at| {
        let processes = (1..=30).map(|pid| with_context(used(pid, 900, Some(340)), 300, false));
        sample(at, processes.collect())
    };
    let mut overflow = overflow(OverflowPolicy::Kill);
    assert_eq!(words(&overflow.step(&many(0))), "");
    assert!(words(&overflow.step(&many(200))).contains("kill"));
}

#[test]
fn a_new_process_that_goes_round_the_guard_is_stopped_within_a_second() {
    // An excess beyond any context is not excused.
    let mut overflow = overflow(OverflowPolicy::Kill);
    assert_eq!(words(&overflow.step(&context_comes(0, 3000, true, None))), "");
    let actions = overflow.step(&context_comes(200, 3000, true, None));
    assert_eq!(words(&actions), "Paused, kill 2, tell kill");
    // An excess within a context's size is excused until the size is fed back.
    let mut overflow = self::overflow(OverflowPolicy::Kill);
    for at in [0, 200, 400, 600] {
        let is_new = at < 600;
        assert_eq!(words(&overflow.step(&context_comes(at, 900, is_new, Some(300)))), "", "{at}");
    }
    let actions = overflow.step(&context_comes(800, 900, false, Some(300)));
    assert_eq!(words(&actions), "Paused, kill 2, tell kill");
}

#[test]
fn starting_new_processes_does_not_excuse_a_share_forever() {
    let mut overflow = overflow(OverflowPolicy::Kill);
    let mut reported = Vec::new();
    for at in (0..2000).step_by(200) {
        reported.push(words(&overflow.step(&context_comes(at, 900, true, None))));
    }
    assert_eq!(reported[..5], [""; 5]);
    assert_eq!(reported[5], "Paused, kill 2, tell kill");
}

#[test]
fn many_contexts_at_once_are_excused_up_to_a_part_of_the_share() {
    let many = |at| {
        let processes = (1..=30).map(|pid| with_context(used(pid, 556, Some(256)), 256, false));
        Sample { context_bytes: Some(556 * MIB), ..sample(at, processes.collect()) }
    };
    let mut overflow = overflow(OverflowPolicy::Hold);
    assert_eq!(words(&overflow.step(&many(0))), "");
    assert_eq!(words(&overflow.step(&many(200))), "Paused, tell hold");
}

#[test]
fn who_has_no_context_in_its_slot_is_excused_nothing() {
    let mut overflow = overflow(OverflowPolicy::Kill);
    let look = |at| {
        let rogue = with_context(used(2, 700, Some(10)), 0, true);
        let sample = sample(at, vec![used(1, 900, Some(900)), rogue]);
        Sample { limit_bytes: 1000 * MIB, context_bytes: Some(600 * MIB), ..sample }
    };
    assert_eq!(words(&overflow.step(&look(0))), "");
    assert_eq!(words(&overflow.step(&look(200))), "Paused, kill 2, tell kill");
}

#[test]
fn a_share_that_was_stopped_goes_on_when_only_growth_is_left() {
    let with_rogue = |at| {
        let mut sample = grown(at, 400);
        sample.processes.as_mut().unwrap().push(used(2, 600, None));
        sample
    };
    for (policy, stopped, go_on) in [
        (OverflowPolicy::Kill, "Paused, kill 2, tell kill", "Open, tell refuse"),
        (OverflowPolicy::Freeze, "Paused, freeze 1+2, tell freeze", "thaw, Open, tell refuse"),
    ] {
        let mut overflow = overflow(policy);
        let all: Vec<String> =
            (0..6).map(|look| words(&overflow.step(&with_rogue(look * 200)))).collect();
        assert!(all.join("; ").contains(stopped.trim_start_matches("Paused, ")), "{all:?}");
        assert_eq!(words(&overflow.step(&grown(1200, 400))), "");
        assert_eq!(words(&overflow.step(&grown(1400, 400))), go_on, "{policy:?}");
        assert_eq!(overflow.gate(), ShareGate::Open);
    }
}
