mod contexts;

use octavo_guard_abi::state::Damage;
use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
/// Limit of the share in these tests: 2 % of it are 200 MiB, 10 % are 1,000 MiB.
const LIMIT: u64 = 10_000 * MIB;

fn process(pid: u32) -> Process {
    Process { pid, start_time: u64::from(pid) * 10 }
}

fn used(pid: u32, mebibytes: u64, slot: Option<u64>) -> ProcessUsage {
    ProcessUsage {
        process: process(pid),
        driver_bytes: Some(mebibytes * MIB),
        slot_bytes: slot.map(|slot| slot * MIB),
        context_bytes: 0,
        has_unknown: false,
        is_new: false,
        is_ending: false,
    }
}

/// The same with a context that was counted for so much, in mebibytes.
fn with_context(used: ProcessUsage, mebibytes: u64, is_new: bool) -> ProcessUsage {
    ProcessUsage { context_bytes: mebibytes * MIB, is_new, ..used }
}

fn sample(at: u64, processes: Vec<ProcessUsage>) -> Sample {
    let slots = sum(processes.iter().filter_map(|used| used.slot_bytes));
    Sample {
        at: Duration::from_millis(at),
        limit_bytes: LIMIT,
        processes: Some(processes),
        slots_bytes: Ok(slots),
        context_bytes: None,
    }
}

/// One process with so much, all of it in its slot.
fn simple(at: u64, mebibytes: u64) -> Sample {
    sample(at, vec![used(1, mebibytes, Some(mebibytes))])
}

/// Actions in few words.
fn words(actions: &[Action]) -> String {
    let pids = |processes: &[Process]| {
        let pids: Vec<_> = processes.iter().map(|process| process.pid.to_string()).collect();
        pids.join("+")
    };
    let words = actions.iter().map(|action| match action {
        Action::Gate(gate) => format!("{gate:?}"),
        Action::Freeze(processes) => format!("freeze {}", pids(processes)),
        Action::Thaw => "thaw".to_owned(),
        Action::Kill(processes) => format!("kill {}", pids(processes)),
        Action::Notify(Notice::Overflow { response, .. }) => format!("tell {}", response.as_str()),
        Action::Notify(Notice::Within) => "tell within".to_owned(),
        Action::Notify(Notice::Tampered(_) | Notice::StillFenced) => "tell tampered".to_owned(),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn overflow(policy: OverflowPolicy) -> OverflowState {
    OverflowState::new(policy, ShareGate::Open, false)
}

/// Runs polls of one process: milliseconds, mebibytes, expected actions.
fn check(policy: OverflowPolicy, looks: &[(u64, u64, &str)]) {
    let mut overflow = overflow(policy);
    for (at, mebibytes, expected) in looks {
        let actions = overflow.step(&simple(*at, *mebibytes));
        assert_eq!(words(&actions), *expected, "{policy:?} at {at} ms with {mebibytes} MiB");
    }
}

#[test]
fn what_is_within_the_tolerance_is_left_alone() {
    check(
        OverflowPolicy::Kill,
        &[(0, 0, ""), (200, 10_000, ""), (400, 10_200, ""), (600, 10_200, ""), (5000, 10_200, "")],
    );
}

#[test]
fn a_small_share_has_sixty_four_mebibytes_of_tolerance() {
    let mut overflow = overflow(OverflowPolicy::Hold);
    let look = |at, mebibytes| Sample { limit_bytes: 1000 * MIB, ..simple(at, mebibytes) };
    assert_eq!(overflow.step(&look(0, 1064)), []);
    assert_eq!(overflow.step(&look(200, 1064)), []);
    assert_eq!(overflow.step(&look(400, 1065)), []);
    assert_eq!(words(&overflow.step(&look(600, 1065))), "Paused, tell hold");
}

#[test]
fn one_look_over_the_limit_is_no_reason() {
    check(
        OverflowPolicy::Kill,
        &[(0, 20_000, ""), (200, 9_000, ""), (400, 9_000, ""), (600, 20_000, ""), (800, 9_000, "")],
    );
}

#[test]
fn two_looks_over_the_limit_hold_the_gate_and_two_under_it_open_it() {
    check(
        OverflowPolicy::Hold,
        &[
            (0, 10_300, ""),
            (200, 10_300, "Paused, tell hold"),
            (400, 10_300, ""),
            (2000, 30_000, ""),
            (2200, 30_000, ""),
            (2400, 9_999, ""),
            (2600, 30_000, ""),
            (2800, 10_000, ""),
            (3000, 9_999, "Open, tell within"),
            (3200, 9_999, ""),
        ],
    );
}

#[test]
fn what_is_within_the_tolerance_lets_a_share_go_on() {
    for (policy, held, below_looks) in [
        (OverflowPolicy::Hold, "Paused, tell hold", "Open, tell within"),
        (OverflowPolicy::Freeze, "Paused, freeze 1, tell freeze", "thaw, Open, tell within"),
    ] {
        check(
            policy,
            &[(0, 30_000, ""), (200, 30_000, held), (400, 10_200, ""), (600, 10_200, below_looks)],
        );
    }
}

#[test]
fn who_frees_memory_before_every_other_look_is_caught() {
    check(
        OverflowPolicy::Hold,
        &[
            (0, 20_000, ""),
            (200, 0, ""),
            (400, 20_000, ""),
            (600, 0, ""),
            (800, 20_000, "Paused, tell hold"),
        ],
    );
}

#[test]
fn a_large_excess_is_stopped_at_the_second_look() {
    check(
        OverflowPolicy::Kill,
        &[
            (0, 11_001, ""),
            (200, 11_001, "Paused, kill 1, tell kill"),
            (400, 0, ""),
            (600, 0, "Open, tell within"),
        ],
    );
    check(
        OverflowPolicy::Freeze,
        &[
            (0, 11_001, ""),
            (200, 11_001, "Paused, freeze 1, tell freeze"),
            (400, 11_001, ""),
            (10_000, 11_001, ""),
            (10_200, 9_000, ""),
            (10_400, 9_000, "thaw, Open, tell within"),
        ],
    );
}

#[test]
fn a_smaller_excess_is_stopped_within_a_second() {
    for (policy, done) in [
        (OverflowPolicy::Kill, "kill 1, tell kill"),
        (OverflowPolicy::Freeze, "freeze 1, tell freeze"),
    ] {
        check(
            policy,
            &[
                (5000, 10_500, ""),
                (5200, 10_500, "Paused, tell hold"),
                (5400, 10_500, ""),
                (5600, 10_500, ""),
                (5800, 10_500, done),
            ],
        );
    }
}

#[test]
fn who_wants_reports_only_gets_one() {
    check(
        OverflowPolicy::Report,
        &[
            (0, 30_000, ""),
            (200, 30_000, "tell report"),
            (400, 30_000, ""),
            (5000, 30_000, ""),
            (5200, 9_000, ""),
            (5400, 9_000, "tell within"),
            (5600, 30_000, "tell report"),
        ],
    );
}

#[test]
fn victims_are_processes_without_slot_then_largest_discrepancy() {
    let looks = |at| {
        sample(
            at,
            vec![
                used(1, 6_000, Some(6_000)),
                used(2, 4_000, Some(1_000)),
                used(3, 100, None),
                used(4, 3_000, Some(2_900)),
            ],
        )
    };
    let mut overflow = overflow(OverflowPolicy::Kill);
    assert_eq!(overflow.step(&looks(0)), []);
    // 13,100 without 100 and 4,000 are below the limit.
    assert_eq!(words(&overflow.step(&looks(200))), "Paused, kill 3+2, tell kill");
}

#[test]
fn no_more_are_killed_while_those_who_were_are_on_their_way() {
    let all = |at| sample(at, vec![used(1, 9_000, Some(9_000)), used(2, 4_000, None)]);
    let mut overflow = overflow(OverflowPolicy::Kill);
    assert_eq!(overflow.step(&all(0)), []);
    assert_eq!(words(&overflow.step(&all(200))), "Paused, kill 2, tell kill");
    assert_eq!(words(&overflow.step(&all(400))), "");
    assert_eq!(words(&overflow.step(&all(2000))), "");
    // One that does not go is tried again.
    assert_eq!(words(&overflow.step(&all(2200))), "kill 2", "it was told");
    assert_eq!(words(&overflow.step(&all(4200))), "kill 2");
    // Once it is gone another one may follow.
    let other = |at| sample(at, vec![used(1, 9_000, Some(9_000)), used(3, 4_000, None)]);
    assert_eq!(words(&overflow.step(&other(4400))), "kill 3, tell kill");
}

#[test]
fn who_is_ending_is_not_held_against_the_share() {
    let mut overflow = overflow(OverflowPolicy::Kill);
    for at in [0, 200, 400, 2000] {
        let mut look = sample(at, vec![used(1, 9_000, Some(9_000)), used(2, 9_000, None)]);
        look.processes.as_mut().unwrap()[1].is_ending = true;
        assert_eq!(overflow.step(&look), []);
        // Existing memory counts fully: nothing of it is excused.
        assert_eq!(look.untracked_bytes(), Some(9_000 * MIB));
    }
}

#[test]
fn newcomers_of_a_frozen_share_are_frozen_and_failures_are_repeated() {
    let mut overflow = overflow(OverflowPolicy::Freeze);
    overflow.step(&simple(0, 20_000));
    assert_eq!(words(&overflow.step(&simple(200, 20_000))), "Paused, freeze 1, tell freeze");
    let two = |at| sample(at, vec![used(1, 20_000, None), used(2, 5, None)]);
    assert_eq!(words(&overflow.step(&two(400))), "freeze 2");
    assert_eq!(words(&overflow.step(&two(600))), "");
    overflow.record_freeze_failure(&[process(2)]);
    assert_eq!(words(&overflow.step(&two(800))), "freeze 2");
    overflow.step(&simple(1000, 5));
    assert_eq!(words(&overflow.step(&simple(1200, 5))), "thaw, Open, tell within");
    overflow.record_thaw_failure();
    assert_eq!(words(&overflow.step(&simple(1400, 5))), "thaw");
    assert_eq!(words(&overflow.step(&simple(1600, 5))), "");
}

#[test]
fn a_damaged_state_fences_for_good_and_the_rest_goes_on() {
    let mut overflow = overflow(OverflowPolicy::Kill);
    let damage = StateDamage::Damaged(Damage::Magic);
    let broken = |at, mebibytes| Sample { slots_bytes: Err(damage), ..simple(at, mebibytes) };
    assert_eq!(
        overflow.step(&broken(0, 10)),
        [Action::Gate(ShareGate::Fenced), Action::Notify(Notice::Tampered(damage))]
    );
    assert_eq!(overflow.step(&broken(200, 10)), []);
    assert_eq!(overflow.gate(), ShareGate::Fenced);
    // A file that looks intact again is not trusted, and an excess is stopped nevertheless.
    assert_eq!(overflow.step(&simple(400, 20_000)), []);
    assert_eq!(words(&overflow.step(&simple(600, 20_000))), "kill 1, tell kill");
    assert_eq!(overflow.step(&simple(800, 0)), []);
    assert_eq!(words(&overflow.step(&simple(1000, 0))), "tell within");
    assert_eq!(overflow.gate(), ShareGate::Fenced);
}

#[test]
fn a_driver_that_tells_nothing_changes_nothing() {
    let mut overflow = overflow(OverflowPolicy::Hold);
    overflow.step(&simple(0, 20_000));
    overflow.step(&simple(200, 20_000));
    for at in [400, 600, 800] {
        let silent = Sample { processes: None, ..simple(at, 0) };
        assert_eq!(overflow.step(&silent), []);
        assert_eq!((silent.driver_bytes(), silent.untracked_bytes()), (None, None));
    }
    assert_eq!(overflow.gate(), ShareGate::Paused);
}

#[test]
fn a_process_of_unknown_size_opens_no_gate_and_is_taken_at_its_word() {
    let mut overflow = overflow(OverflowPolicy::Hold);
    overflow.step(&simple(0, 20_000));
    overflow.step(&simple(200, 20_000));
    let unknown = |at| {
        let mut look = sample(at, vec![used(1, 100, Some(50)), used(2, 0, Some(700))]);
        look.processes.as_mut().unwrap()[1].driver_bytes = None;
        look
    };
    assert_eq!(overflow.step(&unknown(400)), []);
    assert_eq!(overflow.step(&unknown(600)), []);
    assert_eq!(overflow.gate(), ShareGate::Paused);
    assert_eq!(unknown(600).untracked_bytes(), Some(50 * MIB));
}

#[test]
fn new_agent_continues_the_previous_agents_state() {
    let mut held = OverflowState::new(OverflowPolicy::Hold, ShareGate::Paused, false);
    let held_still =
        Notice::Overflow { driver_bytes: 7, response: Response::Held, has_failed: false };
    assert_eq!(held.inherited(7), Some(held_still));
    assert_eq!(overflow(OverflowPolicy::Hold).inherited(7), None);
    assert_eq!(words(&held.step(&simple(0, 20_000))), "");
    assert_eq!(words(&held.step(&simple(200, 5))), "");
    assert_eq!(words(&held.step(&simple(400, 5))), "Open, tell within");
    // Killed between writing down and freezing, and between freezing and the gate: both become whole.
    let mut frozen = OverflowState::new(OverflowPolicy::Freeze, ShareGate::Open, true);
    frozen.step(&simple(0, 20_000));
    assert_eq!(words(&frozen.step(&simple(200, 20_000))), "freeze 1");
    assert_eq!(frozen.gate(), ShareGate::Paused);
    let mut frozen = OverflowState::new(OverflowPolicy::Freeze, ShareGate::Paused, true);
    frozen.step(&simple(0, 5));
    assert_eq!(words(&frozen.step(&simple(200, 5))), "thaw, Open, tell within");
    let fenced = OverflowState::new(OverflowPolicy::Freeze, ShareGate::Fenced, false);
    assert_eq!(fenced.inherited(7), Some(Notice::StillFenced));
}

#[test]
fn what_no_slot_says_is_untracked_and_never_less_than_nothing() {
    let look = sample(0, vec![used(1, 500, Some(400)), used(2, 70, None)]);
    assert_eq!(look.untracked_bytes(), Some(170 * MIB));
    let lying = Sample { slots_bytes: Ok(u64::MAX), ..look };
    assert_eq!(lying.untracked_bytes(), Some(0));
}

prop_compose! {
    fn any_process()(
        pid in 1u32..6,
        mebibytes in prop_oneof![Just(None), (0u64..12_000).prop_map(Some)],
        slot in prop_oneof![Just(None), any::<u64>().prop_map(Some), (0u64..12_000).prop_map(|m| Some(m * MIB))],
        context in prop_oneof![Just(0), Just(256), 0u64..12_000],
        is_new in any::<bool>(),
        is_ending in any::<bool>(),
    ) -> ProcessUsage {
        let driver_bytes = mebibytes.map(|m| m * MIB);
        let used = used(pid, 0, None);
        let used = ProcessUsage { driver_bytes, slot_bytes: slot, is_ending, ..used };
        with_context(used, context, is_new)
    }
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let slots = prop_oneof![
        8 => any::<u64>().prop_map(Ok),
        1 => Just(Err(StateDamage::Gone)),
    ];
    let processes = prop_oneof![
        8 => prop::collection::vec(any_process(), 0..4).prop_map(Some),
        1 => Just(None),
    ];
    let known = prop::option::of(0u64..2000);
    (0u64..3000, processes, slots, known).prop_map(|(at, processes, slots_bytes, known)| {
        let processes = processes.map(|mut all| {
            all.sort_by_key(|used| used.process);
            all.dedup_by_key(|used| used.process);
            all
        });
        let context_bytes = known.map(|mebibytes| mebibytes * MIB);
        let at = Duration::from_millis(at);
        Sample { at, limit_bytes: LIMIT, processes, slots_bytes, context_bytes }
    })
}

fn any_policy() -> impl Strategy<Value = OverflowPolicy> {
    prop::sample::select(vec![
        OverflowPolicy::Hold,
        OverflowPolicy::Freeze,
        OverflowPolicy::Kill,
        OverflowPolicy::Report,
    ])
}

proptest! {
    #[test]
    fn whatever_is_seen_the_rules_hold(
        policy in any_policy(),
        steps in prop::collection::vec(any_sample(), 1..40),
    ) {
        let mut overflow = overflow(policy);
        let (mut at, mut is_fenced, mut is_frozen) = (Duration::ZERO, false, false);
        let mut looks_over = 0;
        for mut look in steps {
            // Time goes on.
            at += look.at;
            look.at = at;
            let living = look.processes.iter().flatten().filter(|used| !used.is_ending);
            let living: Vec<_> = living.copied().collect();
            let bytes = sum(living.iter().filter_map(|used| used.driver_bytes));
            let is_over = bytes > LIMIT + LIMIT / TOLERANCE_DIVISOR;
            // The surplus of contexts may be excused, and what no call asked for is tolerated.
            let refs: Vec<_> = living.iter().collect();
            let allowed = look.tolerated(&refs, true).max(look.excused(&refs, true));
            let is_well = bytes - allowed <= LIMIT + LIMIT / TOLERANCE_DIVISOR;
            looks_over += u32::from(is_over);
            let before = overflow.gate();
            for action in overflow.step(&look) {
                match action {
                    Action::Kill(processes) => {
                        prop_assert_eq!(policy, OverflowPolicy::Kill);
                        prop_assert!(is_over && looks_over >= 2 && !processes.is_empty());
                        for process in processes {
                            prop_assert!(living.iter().any(|used| used.process == process));
                        }
                    }
                    Action::Freeze(processes) => {
                        prop_assert_eq!(policy, OverflowPolicy::Freeze);
                        prop_assert!(is_over && looks_over >= 2 && !processes.is_empty());
                        is_frozen = true;
                    }
                    Action::Thaw => {
                        prop_assert!(is_frozen && is_well && look.processes.is_some());
                        is_frozen = false;
                    }
                    Action::Gate(ShareGate::Open) => {
                        prop_assert!(before == ShareGate::Paused && is_well);
                    }
                    Action::Gate(ShareGate::Paused) => {
                        prop_assert!(policy != OverflowPolicy::Report && is_over && looks_over >= 2);
                    }
                    Action::Gate(ShareGate::Fenced) => prop_assert!(look.slots_bytes.is_err()),
                    Action::Notify(_) => {}
                }
            }
            is_fenced |= look.slots_bytes.is_err();
            // One that is fenced stays so.
            prop_assert_eq!(overflow.gate() == ShareGate::Fenced, is_fenced);
        }
    }

    #[test]
    fn a_share_that_stays_over_is_stopped_within_a_second_of_the_first_look(
        excess in (LIMIT / TOLERANCE_DIVISOR / MIB + 1)..50_000u64,
        offset in 0u64..10_000,
    ) {
        for policy in [OverflowPolicy::Kill, OverflowPolicy::Freeze] {
            let mut overflow = overflow(policy);
            let mut is_stopped = false;
            for look in 0..5 {
                let actions = overflow.step(&simple(offset + look * 200, 10_000 + excess));
                is_stopped |= actions.iter().any(|a| matches!(a, Action::Kill(_) | Action::Freeze(_)));
            }
            prop_assert!(is_stopped, "{policy:?}");
        }
    }
}
