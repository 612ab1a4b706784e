use nvml_wrapper_sys::bindings as sys;

use super::{NOT_AVAILABLE, merged, process};
use crate::GpuProcess;

fn info(pid: u32, bytes: u64) -> GpuProcess {
    process(&sys::nvmlProcessInfo_t {
        pid,
        usedGpuMemory: bytes,
        gpuInstanceId: 0,
        computeInstanceId: 0,
    })
}

#[test]
fn a_process_in_two_lists_is_there_once_with_all_that_it_has() {
    let found = vec![info(7, 100), info(3, 5), info(7, 300), info(7, NOT_AVAILABLE)];
    let expected =
        [GpuProcess { pid: 3, used_bytes: Some(5) }, GpuProcess { pid: 7, used_bytes: Some(300) }];
    assert_eq!(merged(found), expected);
}

#[test]
fn what_the_driver_does_not_know_is_not_a_number() {
    assert_eq!(info(1, NOT_AVAILABLE).used_bytes, None);
    assert_eq!(info(1, 0).used_bytes, Some(0));
}
