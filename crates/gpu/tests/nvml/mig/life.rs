//! The life of an instance without faults.

use std::slice;

use octavo_gpu::mig::{Capability, CapabilityError, MigCaps, MigPlacement, caps};
use octavo_gpu::{Driver as _, DriverError, Inventory, Mig};

use super::{at, profiles, with_mode_on};
use crate::node::{Node, meshed};

/// Machines whose MIG mode changes without a reset.
const MACHINES: [&str; 4] = ["dgx-h100", "hgx-h200", "gh200", "gb200-tray"];

#[test]
fn an_instance_is_made_listed_and_destroyed() {
    for machine in MACHINES {
        let node = Node::shipped(machine);
        let (driver, uuid) = (node.open(), node.uuid(0));
        assert_eq!(driver.mig_instances(&uuid).unwrap(), []);
        let on = driver.set_mig_mode(&uuid, true).unwrap();
        assert_eq!(on, Mig { enabled: true, pending: true }, "{machine}");

        let profile = driver.mig_profiles(&uuid).unwrap().remove(2);
        let made = driver.create_mig(&uuid, &profile, at(&profile, 4)).unwrap();
        assert_eq!(made.placement, MigPlacement { start: 4, size: 4 });
        assert_eq!(made.profile_id, profile.id);
        let [inner] = &made.compute_instances[..] else { panic!("{made:?}") };
        assert!(inner.uuid.starts_with("MIG-"), "{}", inner.uuid);
        assert_eq!(driver.mig_instances(&uuid).unwrap(), slice::from_ref(&made));

        let inventory = Inventory::read(&driver).unwrap();
        assert_eq!(inventory.gpus[0].mig_instances, slice::from_ref(&made), "{machine}");
        assert!(inventory.gpus.iter().skip(1).all(|gpu| gpu.mig_instances.is_empty()));

        driver.destroy_mig(&uuid, made.gpu_instance).unwrap();
        assert_eq!(driver.mig_instances(&uuid).unwrap(), []);
        let again = driver.destroy_mig(&uuid, made.gpu_instance);
        assert!(matches!(again, Err(DriverError::NotFound { .. })), "{again:?}");
        assert!(!driver.set_mig_mode(&uuid, false).unwrap().enabled);
    }
}

#[test]
fn every_placement_of_every_profile_can_be_had_on_an_empty_gpu() {
    for machine in ["dgx-h100", "dgx-a100-40"] {
        let (_node, driver, uuid) = with_mode_on(machine);
        let mut places = 0;
        for profile in driver.mig_profiles(&uuid).unwrap() {
            for &place in &profile.placements {
                let made = driver.create_mig(&uuid, &profile, place).unwrap();
                assert_eq!((made.placement, made.profile_id), (place, profile.id));
                assert_eq!(made.compute_instances.len(), 1, "{} at {place:?}", profile.name);
                driver.destroy_mig(&uuid, made.gpu_instance).unwrap();
                places += 1;
            }
        }
        assert_eq!(places, 25, "{machine}");
    }
}

#[test]
fn a_gpu_takes_as_many_of_a_profile_as_the_driver_says() {
    for machine in ["dgx-h100", "dgx-a100-40"] {
        let (_node, driver, uuid) = with_mode_on(machine);
        for profile in driver.mig_profiles(&uuid).unwrap() {
            let made: Vec<_> = profile
                .placements
                .iter()
                .filter_map(|&place| driver.create_mig(&uuid, &profile, place).ok())
                .collect();
            assert_eq!(made.len(), profile.instances as usize, "{machine}: {}", profile.name);
            assert_eq!(driver.mig_instances(&uuid).unwrap(), made, "in order of placement");
            for instance in made {
                driver.destroy_mig(&uuid, instance.gpu_instance).unwrap();
            }
        }
    }
}

#[test]
fn an_overlap_is_refused_and_what_is_there_stays() {
    let (_node, driver, uuid) = with_mode_on("dgx-h100");
    let profiles = profiles(&driver, &uuid);
    for (first, start) in [("3g.40gb", 0), ("3g.40gb", 4), ("2g.20gb", 2), ("1g.10gb", 6)] {
        let first = &profiles[first];
        let made = driver.create_mig(&uuid, first, at(first, start)).unwrap();
        for profile in profiles.values() {
            for &place in profile.placements.iter().filter(|place| place.overlaps(made.placement)) {
                let answer = driver.create_mig(&uuid, profile, place);
                let refused = matches!(answer, Err(DriverError::NoRoom { .. }));
                assert!(refused, "{} at {place:?}: {answer:?}", profile.name);
            }
        }
        assert_eq!(driver.mig_instances(&uuid).unwrap(), slice::from_ref(&made));
        driver.destroy_mig(&uuid, made.gpu_instance).unwrap();
    }
}

#[test]
fn a_place_that_a_profile_has_not_is_no_room() {
    let (_node, driver, uuid) = with_mode_on("dgx-h100");
    let profile = &profiles(&driver, &uuid)["2g.20gb"];
    for (start, size) in [(1, 2), (6, 2), (0, 4), (0, 1), (8, 2), (u32::MAX, 2)] {
        let answer = driver.create_mig(&uuid, profile, MigPlacement { start, size });
        assert!(matches!(answer, Err(DriverError::NoRoom { .. })), "{start}:{size}: {answer:?}");
    }
}

#[test]
fn media_engines_are_for_one_instance() {
    let (_node, driver, uuid) = with_mode_on("dgx-a100-40");
    let profile = &profiles(&driver, &uuid)["1g.5gb+me"];
    driver.create_mig(&uuid, profile, at(profile, 0)).unwrap();
    let second = driver.create_mig(&uuid, profile, at(profile, 1));
    assert!(matches!(second, Err(DriverError::NoRoom { .. })), "{second:?}");
}

#[test]
fn what_is_made_again_at_a_place_is_known_by_the_same_uuid() {
    let (node, driver, uuid) = with_mode_on("dgx-h100");
    let profiles = profiles(&driver, &uuid);
    let small = &profiles["1g.10gb"];
    let first = driver.create_mig(&uuid, small, at(small, 2)).unwrap();
    let other = driver.create_mig(&uuid, small, at(small, 3)).unwrap();
    assert_ne!(first.compute_instances, other.compute_instances);
    driver.destroy_mig(&uuid, first.gpu_instance).unwrap();
    assert_eq!(driver.create_mig(&uuid, small, at(small, 2)).unwrap(), first);
    // An instance of another GPU at the same placement is a different one.
    node.edit(|state| state.gpus.entry(1).or_default().mig.enabled = Some(true));
    let elsewhere = driver.create_mig(&node.uuid(1), small, at(small, 2)).unwrap();
    assert_eq!(elsewhere.gpu_instance, first.gpu_instance);
    assert_ne!(elsewhere.compute_instances, first.compute_instances);
}

#[test]
fn an_instance_that_is_cut_further_is_listed_and_destroyed_whole() {
    let (node, driver, uuid) = with_mode_on("dgx-h100");
    let profile = &profiles(&driver, &uuid)["3g.40gb"];
    let made = driver.create_mig(&uuid, profile, at(profile, 0)).unwrap();
    let id = made.gpu_instance;
    node.edit(|state| {
        let table = octavo_machine::MigTable::find("h100-80").unwrap();
        let mig = &mut state.gpus.get_mut(&0).unwrap().mig;
        mig.destroy_compute(id, 0).unwrap();
        // Two slices first, because they start at an even one.
        for profile in [1, 0] {
            mig.create_compute(&table, id, profile, None).unwrap();
        }
    });
    let [there] = &driver.mig_instances(&uuid).unwrap()[..] else { panic!("not one") };
    let ids: Vec<u32> = there.compute_instances.iter().map(|inner| inner.id).collect();
    assert_eq!(ids, [0, 1]);
    assert_ne!(there.compute_instances[0].uuid, there.compute_instances[1].uuid);
    driver.destroy_mig(&uuid, id).unwrap();
    assert_eq!(driver.mig_instances(&uuid).unwrap(), []);
}

#[test]
fn an_instance_has_its_capabilities_while_it_is_there() {
    let (node, driver, uuid) = with_mode_on("dgx-h100");
    let profile = &profiles(&driver, &uuid)["1g.10gb"];
    let made = driver.create_mig(&uuid, profile, at(profile, 1)).unwrap();
    let read = || caps(&node.proc_root(), 0, made.gpu_instance, 0);
    // The 8th of 15 GPU instances, with 9 numbers each, after the first three numbers.
    let cap = |minor| Capability { minor, mode: 0o444 };
    let (gpu_instance, compute_instance) = (cap(3 + 8 * 9), cap(3 + 8 * 9 + 1));
    assert_eq!(read().unwrap(), MigCaps { gpu_instance, compute_instance });
    driver.destroy_mig(&uuid, made.gpu_instance).unwrap();
    assert!(matches!(read(), Err(CapabilityError::Read { .. })));
}

#[test]
fn names_and_numbers_are_those_of_the_machines_table() {
    for machine in ["dgx-a100-40", "dgx-a100-80"].into_iter().chain(MACHINES) {
        let node = Node::shipped(machine);
        let key = &node.machine.model.mig.as_ref().unwrap().table;
        let table = octavo_machine::MigTable::find(key).unwrap();
        let read = node.open().mig_profiles(&node.uuid(0)).unwrap();
        let names: Vec<_> = read.iter().map(|p| (p.number, p.id, p.name.as_str())).collect();
        let reported: Vec<_> = table.profiles.iter().map(|p| (p.number, p.id, p.name)).collect();
        assert_eq!(names, reported, "{machine}");
    }
}

#[test]
fn a_gpu_without_mig_has_nothing_of_it() {
    let node = Node::of(meshed());
    let (driver, uuid) = (node.open(), node.uuid(0));
    assert_eq!(driver.mig_profiles(&uuid).unwrap(), []);
    assert_eq!(driver.mig_instances(&uuid).unwrap(), []);
    for answer in [driver.set_mig_mode(&uuid, true).map(drop), driver.destroy_mig(&uuid, 1)] {
        assert!(matches!(answer, Err(DriverError::NotSupported { .. })), "{answer:?}");
    }
}
