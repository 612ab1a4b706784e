//! Copies.

use crate::call;
use crate::node::{GIB, INVALID_VALUE, MIB, Node};

#[test]
fn fills_write_every_width() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let address = cuda.allocate(MIB).unwrap();
    assert_eq!(call!(cuda, cuMemsetD32_v2(address => u64, 0x0403_0201 => u32, 4 => usize)), 0);
    assert_eq!(call!(cuda, cuMemsetD16_v2(address + 4 => u64, 0x0605 => u16, 2 => usize)), 0);
    assert_eq!(call!(cuda, cuMemsetD8_v2(address + 8 => u64, 9 => u8, 3 => usize)), 0);
    let bytes = cuda.download(address, 16).unwrap();
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 5, 6, 9, 9, 9, 4, 1, 2, 3, 4]);
    let odd = call!(cuda, cuMemsetD32_v2(address + 2 => u64, 0 => u32, 1 => usize));
    assert_eq!(odd, INVALID_VALUE);
}

#[test]
fn zeros_over_much_memory_cost_the_host_nothing() {
    let node = Node::new("dgx-h100");
    let cuda = node.ready();
    let address = cuda.allocate(40 * GIB).unwrap();
    assert_eq!(cuda.upload(address + 20 * GIB, &[1; 32]), 0);
    assert_eq!(cuda.upload(address + 3, &[2; 32]), 0);
    assert_eq!(call!(cuda, cuMemsetD8_v2(address + 1 => u64, 0 => u8, 40 * GIB - 1 => u64)), 0);
    assert_eq!(cuda.download(address + 20 * GIB, 32).unwrap(), [0; 32]);
    assert_eq!(cuda.download(address, 64).unwrap(), [0; 64]);
}

#[test]
fn copies_stay_within_what_was_allocated() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let address = cuda.allocate(1000).unwrap();
    assert_eq!(cuda.upload(address + 990, &[1; 10]), 0);
    assert_eq!(cuda.upload(address + 990, &[1; 11]), INVALID_VALUE);
    assert_eq!(cuda.download(64, 1), Err(INVALID_VALUE));
    let over = call!(cuda, cuMemsetD8_v2(address => u64, 0 => u8, 1001 => usize));
    assert_eq!(over, INVALID_VALUE);
}

#[test]
fn copies_between_any_two_places() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let (one, two) = (cuda.allocate(4 * MIB).unwrap(), cuda.allocate(4 * MIB).unwrap());
    let mut host = 0_usize;
    assert_eq!(call!(cuda, cuMemAllocHost_v2(&raw mut host => *mut usize, 4096 => usize)), 0);
    let host = host as u64;
    assert_eq!(cuda.upload(one, b"through the device"), 0);
    assert_eq!(call!(cuda, cuMemcpyDtoD_v2(two => u64, one => u64, 18 => usize)), 0);
    assert_eq!(call!(cuda, cuMemcpy(host => u64, two => u64, 18 => usize)), 0);
    let stream = cuda.stream();
    let code = call!(cuda, cuMemcpyHtoDAsync_v2(
        one + MIB => u64, host => u64, 18 => usize, stream => usize));
    assert_eq!(code, 0);
    assert_eq!(cuda.download(one + MIB, 18).unwrap(), b"through the device");
    assert_eq!(call!(cuda, cuMemFreeHost(host => u64)), 0);
}

#[test]
fn rows_are_copied_with_their_pitch() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let (mut address, mut pitch) = (0_u64, 0_u64);
    let code = call!(cuda, cuMemAllocPitch_v2(
        &raw mut address => *mut u64, &raw mut pitch => *mut u64,
        3 => usize, 2 => usize, 4 => u32));
    assert_eq!((code, pitch), (0, 512));
    let host = *b"abcdef";
    // From host (1) with rows of 3 bytes to device (2); two rows of 3 bytes.
    let from = host.as_ptr().expose_provenance() as u64;
    let params: [u64; 16] = [0, 0, 1, from, 0, 0, 3, 0, 0, 2, 0, address, 0, pitch, 3, 2];
    assert_eq!(call!(cuda, cuMemcpy2D_v2(params.as_ptr() => *const u64)), 0);
    assert_eq!(cuda.download(address, 3).unwrap(), b"abc");
    assert_eq!(cuda.download(address + pitch, 3).unwrap(), b"def");
}
