//! Several processes with one driver. Like processes, copies of the library share only the node's
//! files.

use std::collections::BTreeSet;
use std::{slice, thread};

use octavo_gpu::{Driver as _, DriverError};

use super::{at, profiles, with_mode_on};

#[test]
fn what_one_process_makes_another_sees_and_destroys() {
    let (node, driver, uuid) = with_mode_on("dgx-h100");
    let other = node.open_beside("second.so");
    let profile = &profiles(&driver, &uuid)["2g.20gb"];
    let made = driver.create_mig(&uuid, profile, at(profile, 4)).unwrap();
    assert_eq!(other.mig_instances(&uuid).unwrap(), slice::from_ref(&made));
    other.destroy_mig(&uuid, made.gpu_instance).unwrap();
    assert_eq!(driver.mig_instances(&uuid).unwrap(), []);
    drop(driver);
    let made = other.create_mig(&uuid, profile, at(profile, 0)).unwrap();
    // A process that starts later finds it, too.
    assert_eq!(node.open_beside("third.so").mig_instances(&uuid).unwrap(), [made]);
}

#[test]
fn of_processes_that_want_one_place_one_has_it() {
    let (node, driver, uuid) = with_mode_on("dgx-h100");
    let profile = &profiles(&driver, &uuid)["1g.10gb"];
    let others: Vec<_> = (0..4).map(|n| node.open_beside(&format!("copy-{n}.so"))).collect();
    let made: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = others
            .iter()
            .map(|driver| {
                let uuid = &uuid;
                scope.spawn(move || {
                    let tried = profile
                        .placements
                        .iter()
                        .map(|&place| driver.create_mig(uuid, profile, place));
                    tried
                        .filter_map(|answer| match answer {
                            Ok(made) => Some(made.gpu_instance),
                            Err(DriverError::NoRoom { .. }) => None,
                            Err(error) => panic!("{error}"),
                        })
                        .collect::<Vec<u32>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!(made.len(), 7, "{made:?}");
    assert_eq!(made.iter().collect::<BTreeSet<_>>().len(), 7);
    assert_eq!(driver.mig_instances(&uuid).unwrap().len(), 7);
}

#[test]
fn readers_never_see_states_out_of_order() {
    let (node, driver, uuid) = with_mode_on("dgx-h100");
    let other = node.open_beside("second.so");
    let profile = &profiles(&driver, &uuid)["1g.10gb"];
    for round in 0..40 {
        // States of equal size follow one another within one tick of the file system's clock.
        let place = at(profile, round % 7);
        let made = driver.create_mig(&uuid, profile, place).unwrap();
        assert_eq!(other.mig_instances(&uuid).unwrap(), slice::from_ref(&made), "round {round}");
        driver.destroy_mig(&uuid, made.gpu_instance).unwrap();
    }
}

#[test]
fn leftovers_of_a_crashed_writer_are_harmless() {
    let (node, driver, uuid) = with_mode_on("dgx-h100");
    let profile = &profiles(&driver, &uuid)["1g.10gb"];
    let made = driver.create_mig(&uuid, profile, at(profile, 0)).unwrap();
    // Half of the next state, and the files of an instance that was never completed.
    std::fs::write(node.driver().join("state.json.next"), "{\"gpus\": {\"0\"").unwrap();
    let stale = node.proc_root().join("driver/nvidia/capabilities/gpu0/mig/gi12/ci0");
    std::fs::create_dir_all(&stale).unwrap();
    assert_eq!(driver.mig_instances(&uuid).unwrap(), [made]);
    driver.create_mig(&uuid, profile, at(profile, 1)).unwrap();
    assert_eq!(driver.mig_instances(&uuid).unwrap().len(), 2);
    assert!(!stale.exists());
}
