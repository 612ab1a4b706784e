//! The mode: immediate, pending and rejected changes.

use std::slice;
use std::time::Duration;

use octavo_gpu::{Driver as _, DriverError, GpuEvent, Inventory, Mig};
use octavo_machine::{Event, EventKind};

use super::{at, profiles, with_mode_on};
use crate::node::Node;

#[test]
fn on_an_a100_the_mode_waits_for_a_reset() {
    let node = Node::shipped("dgx-a100-40");
    let (driver, uuid) = (node.open(), node.uuid(3));
    let wished = Mig { enabled: false, pending: true };
    assert_eq!(driver.set_mig_mode(&uuid, true), Ok(wished));
    assert_eq!(driver.set_mig_mode(&uuid, true), Ok(wished), "asking again changes nothing");
    let inventory = Inventory::read(&driver).unwrap();
    assert_eq!(inventory.gpus[3].mig, Some(wished));
    let profile = &driver.mig_profiles(&uuid).unwrap()[0];
    let early = driver.create_mig(&uuid, profile, profile.placements[0]);
    assert!(matches!(early, Err(DriverError::NotSupported { .. })), "{early:?}");

    node.edit(|state| state.reboot(&node.machine));
    let inventory = Inventory::read(&driver).unwrap();
    assert_eq!(inventory.gpus[3].mig, Some(Mig { enabled: true, pending: true }));
    driver.create_mig(&uuid, profile, profile.placements[0]).unwrap();
    // A reboot keeps the mode and destroys the instances.
    node.edit(|state| state.reboot(&node.machine));
    assert_eq!(driver.mig_instances(&uuid).unwrap(), []);
    let wished = Mig { enabled: true, pending: false };
    assert_eq!(driver.set_mig_mode(&uuid, false), Ok(wished));
    assert_eq!(driver.set_mig_mode(&uuid, true), Ok(Mig { enabled: true, pending: true }));
}

#[test]
fn on_an_h100_a_reboot_ends_the_mode() {
    let (node, driver, uuid) = with_mode_on("dgx-h100");
    let profile = &profiles(&driver, &uuid)["7g.80gb"];
    driver.create_mig(&uuid, profile, at(profile, 0)).unwrap();
    node.edit(|state| state.reboot(&node.machine));
    let inventory = Inventory::read(&driver).unwrap();
    assert_eq!(inventory.gpus[0].mig, Some(Mig { enabled: false, pending: false }));
    assert_eq!(inventory.gpus[0].mig_instances, []);
    assert!(
        std::fs::read_dir(node.proc_root().join("driver/nvidia/capabilities/gpu0/mig"))
            .unwrap()
            .next()
            .is_none()
    );
}

#[test]
fn a_change_ends_the_gpu_s_events_and_may_give_it_another_minor_number() {
    const SOON: Duration = Duration::from_secs(20);
    let xid = |gpu, data| Event {
        gpu,
        kind: EventKind::Xid,
        data,
        gpu_instance: None,
        compute_instance: None,
    };
    let node = Node::shipped("dgx-h100");
    let (driver, uuid) = (node.open(), node.uuid(2));
    let mut before = driver.events().unwrap();
    node.edit(|state| state.gpus.entry(2).or_default().next_minor = Some(9));
    assert_eq!((driver.minor(&uuid), driver.mig_mode_changes()), (Ok(2), 0));
    driver.set_mig_mode(&uuid, true).unwrap();
    assert_eq!((driver.minor(&uuid), driver.mig_mode_changes()), (Ok(9), 1));
    driver.set_mig_mode(&uuid, true).unwrap();
    assert_eq!(driver.mig_mode_changes(), 1, "the mode is there, nothing is changed");

    node.edit(|state| state.events = vec![xid(2, 31), xid(1, 48)]);
    let of = |event: Option<GpuEvent>| event.unwrap().uuid.unwrap();
    assert_eq!(of(before.wait(SOON).unwrap()), node.uuid(1), "the other GPU's only");
    let mut after = driver.events().unwrap();
    node.edit(|state| state.events.push(xid(2, 79)));
    assert_eq!(of(after.wait(SOON).unwrap()), uuid);

    // Capabilities lie under the new number.
    let profile = &profiles(&driver, &uuid)["1g.10gb"];
    let made = driver.create_mig(&uuid, profile, at(profile, 0)).unwrap();
    let caps = |minor| octavo_gpu::mig::caps(&node.proc_root(), minor, made.gpu_instance, 0);
    assert!(caps(9).is_ok() && caps(2).is_err());
}

#[test]
fn a_gpu_with_instances_keeps_its_mode() {
    let (_node, driver, uuid) = with_mode_on("dgx-h100");
    let profile = &profiles(&driver, &uuid)["1g.10gb"];
    let made = driver.create_mig(&uuid, profile, at(profile, 0)).unwrap();
    let refused = driver.set_mig_mode(&uuid, false);
    assert!(matches!(refused, Err(DriverError::InUse { .. })), "{refused:?}");
    assert_eq!(driver.mig_instances(&uuid).unwrap(), slice::from_ref(&made));
    driver.destroy_mig(&uuid, made.gpu_instance).unwrap();
    driver.set_mig_mode(&uuid, false).unwrap();
}

#[test]
fn a_gpu_in_use_keeps_its_mig_mode() {
    for machine in ["dgx-h100", "dgx-a100-40"] {
        let node = Node::shipped(machine);
        let (driver, uuid) = (node.open(), node.uuid(0));
        node.edit(|state| state.gpus.entry(0).or_default().processes = 1);
        let refused = driver.set_mig_mode(&uuid, true);
        assert!(matches!(refused, Err(DriverError::InUse { .. })), "{refused:?}");
        let mig = Inventory::read(&driver).unwrap().gpus[0].mig;
        assert_eq!(mig, Some(Mig { enabled: false, pending: false }), "{machine}");
        node.edit(|state| state.gpus.entry(0).or_default().processes = 0);
        assert!(driver.set_mig_mode(&uuid, true).unwrap().pending);
    }
}

#[test]
fn a_mode_that_is_as_wanted_is_not_asked_for_again() {
    let (node, driver, uuid) = with_mode_on("dgx-h100");
    node.edit(|state| {
        let gpu = state.gpus.entry(0).or_default();
        gpu.processes = 1;
        gpu.failing_calls = [("nvmlDeviceSetMigMode".to_owned(), 999)].into();
    });
    assert_eq!(driver.set_mig_mode(&uuid, true), Ok(Mig { enabled: true, pending: true }));
    let refused = driver.set_mig_mode(&uuid, false);
    assert!(matches!(refused, Err(DriverError::Failed { code: 999, .. })), "{refused:?}");
}

#[test]
fn a_wish_of_before_stays_when_the_gpu_is_in_use() {
    let node = Node::shipped("dgx-a100-40");
    let (driver, uuid) = (node.open(), node.uuid(0));
    driver.set_mig_mode(&uuid, true).unwrap();
    node.edit(|state| state.gpus.entry(0).or_default().processes = 2);
    let refused = driver.set_mig_mode(&uuid, true);
    assert!(matches!(refused, Err(DriverError::InUse { .. })), "{refused:?}");
    let mig = Inventory::read(&driver).unwrap().gpus[0].mig;
    assert_eq!(mig, Some(Mig { enabled: false, pending: true }));
}

#[test]
fn with_the_mode_off_there_are_profiles_and_no_instances() {
    let node = Node::shipped("dgx-h100");
    let (driver, uuid) = (node.open(), node.uuid(0));
    let profiles = driver.mig_profiles(&uuid).unwrap();
    assert_eq!(profiles.len(), 7);
    let answer = driver.create_mig(&uuid, &profiles[0], profiles[0].placements[0]);
    assert!(matches!(answer, Err(DriverError::NotSupported { .. })), "{answer:?}");
    let answer = driver.destroy_mig(&uuid, 7);
    assert!(matches!(answer, Err(DriverError::NotSupported { .. })), "{answer:?}");
}
