//! Network cards.

use octavo_gpu::{Mig, NetworkPort};
use octavo_health::policy::NetworkCards;

use super::*;
use crate::health::CardLook;

/// A card with one port that serves some GPUs.
fn card(number: u8, gpus: &[u32], is_active: bool) -> CardLook {
    let zero = Some(0);
    let port = NetworkPort { is_active, symbol_errors: zero, recoveries: zero, downs: zero };
    CardLook {
        pci: format!("0000:{number:02x}:00.0").parse().unwrap(),
        name: format!("mlx5_{number}"),
        gpus: gpus.iter().map(|index| uuid(*index)).collect(),
        ports: [(1, Some(port))].into(),
    }
}

/// A node with a card for each of its two GPUs, all up.
fn with_cards(file: Option<RecordFile>) -> NodeHealth {
    let mut health = node(file, BOOT, 2);
    health.nics(&[card(0, &[0], true), card(1, &[1], true)], 0);
    decide(&mut health, 0);
    assert_eq!(health.health(), Health::new());
    health
}

/// Two looks at the cards of GPU 0 and GPU 1, of which the first may be down.
fn look(health: &mut NodeHealth, is_active: bool, now: u64) {
    for at in [now, now + 10] {
        health.nics(&[card(0, &[0], is_active), card(1, &[1], true)], at);
        decide(health, at);
    }
}

fn shown(health: &NodeHealth, index: u32) -> (&'static str, Option<Wait>, u64) {
    let attempt = health.record.domain.devices[&DeviceId(index)].track.attempt.0;
    (state(health, index), health.health().get(&uuid(index)).and_then(|it| it.wait), attempt)
}

#[test]
fn a_gpu_waits_untested_for_its_network_card_and_returns_after_a_test() {
    let mut health = with_cards(None);
    health.nics(&[card(0, &[0], false), card(1, &[1], true)], 10);
    decide(&mut health, 10);
    assert_eq!(state(&health, 0), "Healthy", "it may be up again at once");
    for now in [20, 100, 10_000] {
        look(&mut health, false, now);
        assert_eq!(shown(&health, 0), ("Suspect", Some(Wait::TestNotPossible), 0));
        assert_eq!((reason(&health, 0), state(&health, 1)), (Some(Reason::Nic), "Healthy"));
    }
    let message = health.health()[&uuid(0)].message();
    let expected = "a network card of the GPU has errors, or its port is down; \
                    the test waits: port 1 of the network card mlx5_0 is down; it needs the remedy test";
    assert_eq!(message, expected);
    look(&mut health, true, 20_000);
    assert_eq!(shown(&health, 0), ("Probation", None, 1));
    look(&mut health, false, 30_000);
    assert_eq!(state(&health, 0), "Suspect");
}

#[test]
fn pods_on_the_gpu_run_to_their_end() {
    let mut health = with_cards(None);
    for now in [10, 20] {
        health.nics(&[card(0, &[0], false), card(1, &[1], true)], now);
        health.decide(now, |_| true);
    }
    assert_eq!(shown(&health, 0), ("Suspect", Some(Wait::Clients), 0));
    let message = health.health()[&uuid(0)].message();
    assert!(message.contains("mlx5_0 is down"), "{message}");
    health.nics(&[card(0, &[0], true), card(1, &[1], true)], 30);
    health.decide(30, |_| true);
    assert_eq!(shown(&health, 0).1, Some(Wait::Clients));
    decide(&mut health, 40);
    assert_eq!(shown(&health, 0), ("Probation", None, 1));
}

/// A test of the first GPU runs. Its card is down at one look, and none is reported yet.
fn down_in_a_test() -> (NodeHealth, TestRun) {
    let mut health = with_cards(None);
    let mut wanted = orders(Mode::Fence);
    wanted.policy.test = Test::Probe;
    health.set_orders(wanted, 1);
    health.answer(&uuid(0), &Ok(advice(RecoveryAction::DrainP2p)), 1);
    health.decide(1, |_| true);
    health.answer(&uuid(0), &Ok(well()), 2);
    decide(&mut health, 2);
    let run = health.next_tests(2).unwrap();
    health.nics(&[card(0, &[0], false), card(1, &[1], true)], 10);
    (health, run)
}

#[test]
fn a_test_that_passes_while_the_card_is_down_returns_nothing() {
    let (mut health, run) = down_in_a_test();
    let passed = (run.tests[0].0, uuid(0), TestResult::Passed);
    health.tested(vec![passed]);
    decide(&mut health, 10);
    assert_eq!(shown(&health, 0), ("Fenced", Some(Wait::TestNotPossible), 1));
    assert_eq!(health.next_tests(10), None);
    look(&mut health, false, 20);
    assert_eq!(shown(&health, 0), ("Fenced", Some(Wait::TestNotPossible), 1), "once alone");
    look(&mut health, true, 40);
    let run = health.next_tests(50).unwrap();
    health.tested(vec![(run.tests[0].0, uuid(0), TestResult::Passed)]);
    decide(&mut health, 120);
    assert_eq!(shown(&health, 0), ("Probation", None, 2));
}

#[test]
fn a_test_that_found_a_fault_of_the_gpu_has_failed_whatever_the_card_is() {
    let (mut health, run) = down_in_a_test();
    health.tested(vec![(run.tests[0].0, uuid(0), TestResult::Failed("memory".to_owned()))]);
    decide(&mut health, 10);
    assert_eq!(reason(&health, 0), Some(Reason::TestFailed));
}

#[test]
fn neither_a_new_agent_nor_a_boot_lets_a_gpu_return_while_its_card_is_down() {
    let folder = tempfile::tempdir().unwrap();
    let file = || Some(RecordFile::new(folder.path().join("health.json")));
    let mut health = with_cards(file());
    look(&mut health, false, 10);
    assert!(health.store());
    let mut again = node(file(), BOOT, 2);
    decide(&mut again, 30);
    assert_eq!(
        shown(&again, 0),
        ("Suspect", Some(Wait::TestNotPossible), 0),
        "before its first look"
    );
    look(&mut again, false, 40);
    assert!(again.store());
    let mut rebooted = node(file(), "other", 2);
    rebooted.answer(&uuid(0), &Ok(well()), 60);
    look(&mut rebooted, false, 60);
    assert_eq!(shown(&rebooted, 0), ("Suspect", Some(Wait::TestNotPossible), 0));
    look(&mut rebooted, true, 80);
    assert_eq!(shown(&rebooted, 0), ("Probation", None, 1));
}

#[test]
fn a_card_that_is_well_causes_no_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("health.json");
    let gpus = testing::inventory(2).gpus;
    let mut health = with_cards(Some(RecordFile::new(path.clone())));
    assert!(health.store());
    let (text, devices) = (std::fs::read_to_string(&path).unwrap(), health.devices(&gpus, 0));
    for now in 1..20 {
        let mut look = card(0, &[0], true);
        let port = look.ports.get_mut(&1).unwrap().as_mut().unwrap();
        (port.symbol_errors, port.recoveries) = (Some(now), Some(now / 10));
        health.nics(&[look, card(1, &[1], true)], 10 * now);
        decide(&mut health, 10 * now);
        assert!(health.store());
    }
    assert_eq!(
        (std::fs::read_to_string(&path).unwrap(), health.devices(&gpus, 0)),
        (text, devices)
    );
}

#[test]
fn a_release_accepts_the_card_and_the_other_gpus_of_it_are_tested() {
    let mut health = node(None, BOOT, 3);
    for (now, is_active) in [(0, true), (10, false), (20, false)] {
        health.nics(&[card(0, &[0, 1], is_active), card(1, &[1, 2], true)], now);
        decide(&mut health, now);
    }
    assert_eq!([0, 1, 2].map(|index| state(&health, index)), ["Suspect", "Suspect", "Healthy"]);
    let mut wanted = orders(Mode::Fence);
    wanted.words.insert(uuid(0), (1, Word::Release));
    health.set_orders(wanted, 30);
    for now in [30, 40, 50] {
        health.nics(&[card(0, &[0, 1], false), card(1, &[1, 2], true)], now);
        decide(&mut health, now);
    }
    assert_eq!(
        (shown(&health, 0), shown(&health, 1)),
        (("Probation", None, 0), ("Probation", None, 1))
    );
}

#[test]
fn a_policy_may_ignore_network_cards() {
    let mut health = with_cards(None);
    look(&mut health, false, 10);
    assert_eq!(state(&health, 0), "Suspect");
    let mut wanted = orders(Mode::Fence);
    wanted.policy.network_cards = NetworkCards::Ignore;
    health.set_orders(wanted, 30);
    assert!(!health.reads_nics());
    look(&mut health, false, 30);
    assert_eq!(shown(&health, 0), ("Probation", None, 1));
    // Until the policy is known, it may be one of these.
    let mut health = NodeHealth::open(None, BOOT);
    health.set_gpus(&testing::inventory(2), 0);
    look(&mut health, true, 0);
    look(&mut health, false, 20);
    assert_eq!(health.health(), Health::new());
}

#[test]
fn a_gpu_in_mig_mode_returns_once_its_card_is_well() {
    let mut gpus = testing::inventory(2).gpus;
    gpus[0].mig = Some(Mig { enabled: true, pending: true });
    let mut health = NodeHealth::open(None, BOOT);
    health.set_gpus(&testing::found(&gpus), 0);
    let mut wanted = orders(Mode::Fence);
    wanted.policy.test = Test::Probe;
    health.set_orders(wanted, 0);
    look(&mut health, true, 0);
    look(&mut health, false, 20);
    assert_eq!(shown(&health, 0), ("Suspect", Some(Wait::TestNotPossible), 0));
    look(&mut health, true, 40);
    assert_eq!(shown(&health, 0), ("Probation", None, 1));
}

#[test]
fn a_newcomer_keeps_what_it_saw_of_cards_that_the_record_does_not_have() {
    let gpus = testing::inventory(2).gpus;
    let mut newcomer = NodeHealth::observer(None, BOOT);
    newcomer.set_gpus(&testing::found(&gpus), 0);
    look(&mut newcomer, true, 0);
    newcomer.serve(Periods::default().begin(), Some(&testing::found(&gpus)), 0);
    newcomer.set_orders(orders(Mode::Fence), 20);
    look(&mut newcomer, false, 20);
    assert_eq!(state(&newcomer, 0), "Suspect");
}

#[test]
fn what_is_known_of_a_card_stays_while_its_gpus_are_away() {
    let mut health = with_cards(None);
    look(&mut health, false, 10);
    health.nics(&[card(0, &[], false), card(1, &[1], true)], 30);
    decide(&mut health, 30);
    assert_eq!(shown(&health, 0), ("Suspect", Some(Wait::TestNotPossible), 0));
    health.nics(&[card(1, &[1], true)], 40);
    decide(&mut health, 40);
    let message = health.health()[&uuid(0)].message();
    assert!(message.contains("mlx5_0 is not there any more"), "{message}");
}
