use std::collections::BTreeSet;
use std::path::Path;

use super::{MigCapability, mig_capabilities};
use crate::Machine;

fn capability(gpu: u32, gpu_instance: u32, compute_instance: Option<u32>) -> MigCapability {
    MigCapability { gpu, gpu_instance, compute_instance }
}

#[test]
fn numbers_are_those_of_the_driver_s_table() {
    // First and last line of `/proc/driver/nvidia-caps/mig-minors` in NVIDIA's MIG user guide.
    assert_eq!(capability(0, 0, None).minor(), 3);
    assert_eq!(capability(0, 0, Some(0)).minor(), 4);
    assert_eq!(capability(0, 1, None).minor(), 12);
    assert_eq!(capability(31, 14, Some(7)).minor(), 4322);
}

#[test]
fn files_and_names_say_the_instance() {
    assert_eq!(capability(2, 9, None).path(), Path::new("gpu2/mig/gi9/access"));
    assert_eq!(capability(2, 9, Some(1)).path(), Path::new("gpu2/mig/gi9/ci1/access"));
    assert_eq!(capability(2, 9, None).name(), "gpu2/gi9/access");
    assert_eq!(capability(2, 9, Some(1)).name(), "gpu2/gi9/ci1/access");
}

#[test]
fn every_instance_that_there_could_be_has_a_number_of_its_own() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let machine = Machine::read(&folder.join("gb200-tray.yaml")).unwrap();
    let all = mig_capabilities(&machine);
    let minors: BTreeSet<u32> = all.iter().map(MigCapability::minor).collect();
    assert_eq!((all.len(), minors.len()), (4 * 42, 4 * 42));
    let machine = Machine::read(&folder.join("l4.yaml")).unwrap();
    assert_eq!(mig_capabilities(&machine), []);
}
