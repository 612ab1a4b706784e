//! The comparison of MIG mode and instances with an earlier inventory.

use octavo_gpu::{Driver as _, Gpu, Inventory};

use super::{at, profiles, with_mode_on};
use crate::node::Node;

fn first(driver: &impl octavo_gpu::Driver) -> Gpu {
    Inventory::read(driver).unwrap().gpus.swap_remove(0)
}

#[test]
fn instances_of_another_process_are_a_change() {
    let (node, driver, uuid) = with_mode_on("dgx-h100");
    let by_hand = node.open_beside("second.so");
    let profile = &profiles(&driver, &uuid)["2g.20gb"];
    let empty = first(&driver);
    assert_eq!(driver.has_mig_changed(&empty), Ok(false));

    let made = by_hand.create_mig(&uuid, profile, at(profile, 4)).unwrap();
    assert_eq!(driver.has_mig_changed(&empty), Ok(true));
    let one = first(&driver);
    assert_eq!(driver.has_mig_changed(&one), Ok(false));

    by_hand.destroy_mig(&uuid, made.gpu_instance).unwrap();
    assert_eq!(driver.has_mig_changed(&one), Ok(true));
    by_hand.create_mig(&uuid, profile, at(profile, 0)).unwrap();
    assert_eq!(driver.has_mig_changed(&one), Ok(true), "the same number at another placement");
}

#[test]
fn lost_and_split_compute_instances_are_a_change() {
    let (node, driver, uuid) = with_mode_on("dgx-h100");
    let profile = &profiles(&driver, &uuid)["3g.40gb"];
    let made = driver.create_mig(&uuid, profile, at(profile, 0)).unwrap();
    let whole = first(&driver);
    let edit = |change: &dyn Fn(&mut octavo_machine::MigState)| {
        node.edit(|state| change(&mut state.gpus.get_mut(&0).unwrap().mig));
    };
    edit(&|mig| mig.destroy_compute(made.gpu_instance, 0).unwrap());
    assert_eq!(driver.has_mig_changed(&whole), Ok(true));
    let bare = first(&driver);
    assert_eq!(driver.has_mig_changed(&bare), Ok(false));
    edit(&|mig| {
        let table = octavo_machine::MigTable::find("h100-80").unwrap();
        mig.create_compute(&table, made.gpu_instance, 0, None).unwrap();
    });
    assert_eq!(driver.has_mig_changed(&bare), Ok(true));
}

#[test]
fn current_and_pending_mode_are_compared() {
    for machine in ["dgx-h100", "dgx-a100-40"] {
        let node = Node::shipped(machine);
        let driver = node.open();
        let off = first(&driver);
        assert_eq!(driver.has_mig_changed(&off), Ok(false), "{machine}");
        node.open_beside("second.so").set_mig_mode(&off.uuid, true).unwrap();
        assert_eq!(driver.has_mig_changed(&off), Ok(true), "{machine}");
        assert_eq!(driver.has_mig_changed(&first(&driver)), Ok(false), "{machine}");
    }
}
