//! Memory shared by several processes, and host memory.

use crate::container::{self, Other};
use crate::cuda::{CONTEXT, Cuda, FIRST_GPU, GIB, MIB, OUT_OF_MEMORY};
use crate::{call, inside, role};

/// `CUipcMemHandle`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct Handle([u8; 64]);

fn decimal(handle: Handle) -> String {
    handle.0.map(|byte| byte.to_string()).join(" ")
}

fn handle(cuda: &Cuda, address: u64) -> Handle {
    let mut handle = Handle([0; 64]);
    let code = call!(cuda, cuIpcGetMemHandle(&raw mut handle => *mut Handle, address => u64));
    assert_eq!(code, 0);
    handle
}

#[test]
fn opened_memory_counts_for_its_owner() {
    let cuda = inside!(4 * GIB);
    let address = cuda.allocate(32 * MIB).unwrap();
    let handle = decimal(handle(&cuda, address));
    let other = Other::start(&cuda, "shared::opens_memory", &[("HANDLE_OF_MEMORY", handle)]);
    assert_eq!(other.ready_line, "0");
    assert_eq!(cuda.counted(), 32 * MIB + CONTEXT);
    assert_eq!(cuda.used(), cuda.counted());
    drop(other);
    assert_eq!(cuda.free(address), 0);
    // Only the other process's slot is left, which is cleared when an allocation needs its memory.
    assert!(cuda.allocate(4 * GIB - CONTEXT).is_ok());
    assert_eq!(cuda.counted(), cuda.used());
}

#[test]
fn opens_memory() {
    let cuda = role!();
    let before = cuda.counted();
    let text = std::env::var("HANDLE_OF_MEMORY").unwrap();
    let mut handle = Handle([0; 64]);
    for (byte, number) in handle.0.iter_mut().zip(text.split(' ')) {
        *byte = number.parse().unwrap();
    }
    let mut address = 0;
    let code = call!(cuda, cuIpcOpenMemHandle_v2(
        &raw mut address => *mut u64, handle => Handle, 1 => u32));
    assert_eq!(code, 0);
    container::ready(&(cuda.counted() - before).to_string());
    assert_eq!(call!(cuda, cuIpcCloseMemHandle(address => u64)), 0);
    assert_eq!(cuda.counted(), before);
}

#[test]
fn a_process_that_is_killed_leaves_nothing_counted() {
    let cuda = inside!(4 * GIB);
    let other = Other::start(&cuda, "shared::holds_a_gibibyte", &[]);
    assert_eq!((cuda.counted(), cuda.used()), (GIB + CONTEXT, GIB + CONTEXT));
    other.kill();
    // An allocation that needs the memory finds out.
    assert!(cuda.allocate(4 * GIB - CONTEXT).is_ok());
    assert_eq!(cuda.counted(), cuda.used());
}

#[test]
fn holds_a_gibibyte() {
    let cuda = role!();
    cuda.allocate_async(GIB, None, 0).unwrap();
    container::ready("");
}

#[test]
fn memory_of_the_host_counts_for_nothing() {
    let cuda = inside!(GIB);
    let mut address = 0_u64;
    let place = &raw mut address;
    assert_eq!(call!(cuda, cuMemAllocHost_v2(place => *mut u64, 2 * GIB => u64)), 0);
    assert_eq!(call!(cuda, cuMemFreeHost(address => u64)), 0);
    assert_eq!(call!(cuda, cuMemHostAlloc(place => *mut u64, 2 * GIB => u64, 0 => u32)), 0);
    let own = vec![0_u8; 4096];
    let start = own.as_ptr();
    assert_eq!(call!(cuda, cuMemHostRegister_v2(start => *const u8, 4096 => u64, 0 => u32)), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
    assert_eq!(call!(cuda, cuMemHostUnregister(start => *const u8)), 0);
}

#[test]
fn managed_memory_counts_in_full_wherever_it_is() {
    let cuda = inside!(GIB);
    let mut address = 0_u64;
    let place = &raw mut address;
    assert_eq!(call!(cuda, cuMemAllocManaged(place => *mut u64, 2 * GIB => u64, 1 => u32)), 2);
    assert_eq!(call!(cuda, cuMemAllocManaged(place => *mut u64, 500 * MIB => u64, 1 => u32)), 0);
    assert_eq!((cuda.counted(), cuda.used()), (500 * MIB, 0));
    let code =
        call!(cuda, cuMemPrefetchAsync(address => u64, 500 * MIB => u64, 0 => i32, 0 => usize));
    assert_eq!(code, 0);
    assert_eq!((cuda.counted(), cuda.used()), (500 * MIB, 500 * MIB));
    assert_eq!(cuda.free(address), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn racing_processes_are_refused_by_the_guard_never_by_the_gpu() {
    // The GPU is as large as the share: it would refuse if more were admitted at any time.
    let cuda = inside!(4 * GIB, 4 * GIB);
    let start =
        |seed| Other::start(&cuda, "shared::takes_and_gives", &[("SEED", format!("{seed}"))]);
    let mut others: Vec<Other> = (1..4).map(start).collect();
    others.iter_mut().for_each(Other::go);
    for other in others {
        other.end();
    }
    assert!(cuda.allocate(4 * GIB - CONTEXT).is_ok());
    assert_eq!(cuda.counted(), cuda.used());
}

#[test]
fn takes_and_gives() {
    let cuda = role!();
    container::ready("");
    let mut random: u64 = std::env::var("SEED").unwrap().parse().unwrap();
    let (mut handles, mut arrays, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    let mut refused = 0;
    for _ in 0..3000 {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bytes = (1 + (random >> 33) % 300) * 2 * MIB;
        let mut kept = |answer: Result<u64, u32>, list: &mut Vec<u64>| match answer {
            Ok(taken) => list.push(taken),
            Err(code) => {
                assert_eq!(code, OUT_OF_MEMORY);
                refused += 1;
            }
        };
        match (random >> 60) % 6 {
            0 => kept(cuda.create(bytes, FIRST_GPU), &mut handles),
            1 => kept(cuda.array(bytes >> 14, 1024).map(|array| array as u64), &mut arrays),
            2 => kept(cuda.allocate(bytes), &mut plain),
            3 => handles.pop().into_iter().for_each(|handle| assert_eq!(cuda.release(handle), 0)),
            4 => arrays.pop().into_iter().for_each(|array| {
                assert_eq!(cuda.destroy_array(usize::try_from(array).unwrap()), 0);
            }),
            _ => plain.pop().into_iter().for_each(|address| assert_eq!(cuda.free(address), 0)),
        }
    }
    assert!(refused > 0, "the limit was met");
    assert_eq!(container::refused(&cuda.folder), refused);
}
