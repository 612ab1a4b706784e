//! The compute mode of a GPU, which all processes of a node see.

use octavo_gpu::{ComputeMode, Driver as _};

use crate::node::Node;

#[test]
fn every_process_sees_the_mode_until_the_gpu_is_reset() {
    let node = Node::shipped("dgx-h100");
    let (driver, beside) = (node.open(), node.open_beside("other.so"));
    let uuid = node.uuid(3);
    assert_eq!(driver.compute_mode(&uuid), Ok(ComputeMode::Default));
    driver.set_compute_mode(&uuid, ComputeMode::ExclusiveProcess).unwrap();
    assert_eq!(beside.compute_mode(&uuid), Ok(ComputeMode::ExclusiveProcess));
    assert_eq!(beside.compute_mode(&node.uuid(2)), Ok(ComputeMode::Default));
    node.edit(|state| state.reboot(&node.machine));
    assert_eq!(driver.compute_mode(&uuid), Ok(ComputeMode::Default));
}
