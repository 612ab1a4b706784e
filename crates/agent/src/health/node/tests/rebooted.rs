//! Reboots by the agent.

use serde_json::json;

use super::*;
use crate::health::Policies;
use crate::health::orders::Stops;

/// A lost GPU whose reboot by the agent is permitted, and its record.
fn rebooting(file: RecordFile) -> NodeHealth {
    let mut health = node(Some(file), BOOT, 2);
    health.set_orders(by_agent(), 1);
    health.answer(&uuid(0), &Err(lost()), 1);
    decide(&mut health, 1);
    health
}

fn by_agent() -> Orders {
    let mut wanted = orders(Mode::Act);
    wanted.policy.by_person.clear();
    wanted.permits.insert(uuid(0), permit(0, Remedy::Reboot));
    wanted
}

#[test]
fn a_reboot_ends_with_the_next_boot_and_all_gpus_are_tested() {
    let folder = tempfile::tempdir().unwrap();
    let file = || RecordFile::new(folder.path().join("health.json"));
    let mut health = rebooting(file());
    let applied = (Attempt(1), Remedy::Reboot, vec![uuid(0), uuid(1)]);
    assert_eq!(health.next_remedy(), Some(applied));
    // Half an hour later. The node of another boot is there, and so is its GPU.
    let now = 100_000;
    let mut rebooted = node(Some(file()), "next", 2);
    rebooted.set_orders(by_agent(), now);
    for index in 0..2 {
        rebooted.answer(&uuid(index), &Ok(well()), now);
    }
    decide(&mut rebooted, now);
    assert_eq!((state(&rebooted, 0), state(&rebooted, 1)), ("Probation", "Probation"));
    assert_eq!(rebooted.next_remedy(), None);
    let passed = Ended::Test { outcome: TestOutcome::Passed, took: Some(Duration::ZERO) };
    let reboot = ended(RemedyOutcome::Remedied, Some(now - 1));
    assert_eq!(rebooted.take_ended(), [reboot, passed, passed], "one remedy of two GPUs");
}

/// The end of the reboot, which took so many seconds.
fn ended(outcome: RemedyOutcome, took: Option<u64>) -> Ended {
    Ended::Remedy { remedy: Remedy::Reboot, outcome, took: took.map(Duration::from_secs) }
}

#[test]
fn a_reboot_that_ends_before_it_begins_by_the_clock_has_no_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = || RecordFile::new(folder.path().join("health.json"));
    assert!(rebooting(file()).next_remedy().is_some());
    let mut rebooted = node(Some(file()), "next", 2);
    decide(&mut rebooted, 0);
    let reboot = ended(RemedyOutcome::Remedied, None);
    assert_eq!(rebooted.take_ended().first(), Some(&reboot));
}

#[test]
fn a_new_agent_in_the_same_boot_neither_repeats_the_reboot_nor_takes_it_for_done() {
    let folder = tempfile::tempdir().unwrap();
    let file = || RecordFile::new(folder.path().join("health.json"));
    let mut health = rebooting(file());
    assert!(health.next_remedy().is_some());
    let mut again = node(Some(file()), BOOT, 2);
    again.set_orders(by_agent(), 2);
    again.answer(&uuid(0), &Ok(well()), 2);
    decide(&mut again, 2);
    assert_eq!((state(&again, 0), again.next_remedy()), ("Resetting", None));
    assert!(again.take_ended().is_empty());
    // The reboot does not come.
    let limit = Policy::default().rules.limit;
    decide(&mut again, 1 + limit);
    assert_eq!(again.take_ended(), [ended(RemedyOutcome::TimedOut, Some(limit))]);
    assert_eq!(reason(&again, 0), Some(Reason::RemedyFailed(Remedy::Reboot)));
    let shown = again.devices(&testing::inventory(2).gpus, 1 + limit);
    assert_eq!((shown[0].needs, shown[1].needs), (Some(Remedy::PowerCycle), Some(Remedy::Test)));
}

#[test]
fn an_agent_that_takes_the_node_over_does_not_repeat_the_reboot() {
    let folder = tempfile::tempdir().unwrap();
    let file = || RecordFile::new(folder.path().join("health.json"));
    let mut health = rebooting(file());
    assert!(health.next_remedy().is_some());
    let gpus = testing::inventory(2).gpus;
    let mut newcomer = NodeHealth::observer(Some(file()), BOOT);
    newcomer.set_gpus(&testing::found(&gpus), 0);
    newcomer.serve(Periods::default().begin(), Some(&testing::found(&gpus)), 0);
    newcomer.set_orders(by_agent(), 2);
    decide(&mut newcomer, 2);
    assert_eq!((state(&newcomer, 0), newcomer.next_remedy()), ("Resetting", None));
}

#[test]
fn a_gpu_in_mig_mode_that_made_room_returns_without_a_person() {
    let folder = tempfile::tempdir().unwrap();
    let file = || RecordFile::new(folder.path().join("health.json"));
    let mut wanted = by_agent();
    wanted.policy.test = Test::Probe;
    let mut gpus = testing::inventory(2).gpus;
    gpus[1] = testing::mig::gpu(1, true);
    gpus[1].uuid = uuid(1);
    let mut health = NodeHealth::open(Some(file()), BOOT);
    health.set_gpus(&testing::found(&gpus), 0);
    health.set_orders(wanted.clone(), 1);
    health.answer(&uuid(0), &Err(lost()), 1);
    decide(&mut health, 1);
    assert!(health.next_remedy().is_some());
    assert_eq!(state(&health, 1), "Resetting");
    let mut rebooted = NodeHealth::open(Some(file()), "next");
    rebooted.set_gpus(&testing::found(&gpus), 0);
    rebooted.set_orders(wanted, 100);
    for index in 0..2 {
        rebooted.answer(&uuid(index), &Ok(well()), 100);
    }
    decide(&mut rebooted, 100);
    assert_eq!((state(&rebooted, 0), state(&rebooted, 1)), ("Verifying", "Probation"));
}

#[test]
fn gpus_do_not_make_room_in_a_storm_or_beyond_the_budget() {
    let (storm, budget) = (
        json!({"nodes": 100, "remedies": 0, "breakerOpenUntil": "1970-01-01T00:30:00Z"}),
        json!({"nodes": 100, "remedies": 5}),
    );
    for status in [storm, budget] {
        let policy = json!({
            "apiVersion": "octavo.dev/v1alpha1", "kind": "HealthPolicy", "metadata": {"name": "p"},
            "spec": {"nodeSelector": {"pool": "a"}, "mode": "Act", "rebootBy": "Agent"},
            "status": status,
        });
        let mut policies = Policies::default();
        policies.insert(&serde_json::from_value(policy).unwrap());
        let chosen = policies.choose(&[("pool".to_owned(), "a".to_owned())].into());
        let mut health = node(None, BOOT, 2);
        let wanted = Orders { policy: chosen.policy, stops: chosen.stops, ..Orders::default() };
        health.set_orders(wanted.clone(), 1);
        health.answer(&uuid(0), &Err(lost()), 1);
        decide(&mut health, 1);
        assert_eq!((state(&health, 0), state(&health, 1)), ("Fenced", "Healthy"), "{status}");
        health.set_orders(Orders { stops: Stops::default(), ..wanted }, 2);
        decide(&mut health, 2);
        assert_eq!(state(&health, 1), "Suspect", "{status}");
    }
}

#[test]
fn a_reboot_waits_for_the_pods_of_other_gpus() {
    let folder = tempfile::tempdir().unwrap();
    let file = RecordFile::new(folder.path().join("health.json"));
    let mut health = node(Some(file), BOOT, 2);
    let held = || [uuid(1)].into();
    health.set_orders(Orders { permits: BTreeMap::new(), held: held(), ..by_agent() }, 1);
    health.answer(&uuid(0), &Err(lost()), 1);
    decide(&mut health, 1);
    health.set_orders(Orders { held: held(), ..by_agent() }, 2);
    for now in 2..4 {
        decide(&mut health, now);
        assert_eq!(health.next_remedy(), None);
    }
    health.set_orders(by_agent(), 4);
    decide(&mut health, 4);
    assert!(health.next_remedy().is_some());
}
