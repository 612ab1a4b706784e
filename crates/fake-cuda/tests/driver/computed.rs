//! Kernels that the library computes.

use std::ffi::CString;

use octavo_machine::{GpuState, State};

use crate::call;
use crate::node::{Cuda, INVALID_VALUE, MIB, Node};

const INVALID_PTX: u32 = 218;
const ILLEGAL_ADDRESS: u32 = 700;
const LAUNCH_TIMEOUT: u32 = 702;
const MISALIGNED_ADDRESS: u32 = 716;

/// Writes a word for each thread: what `body` leaves in `%value`.
fn kernel(body: &str) -> String {
    format!(
        "// octavo: computed by the simulated driver
.version 6.0
.target sm_50
.address_size 64
.visible .entry computed(.param .u64 out, .param .u32 number)
{{
    .reg .pred %p;
    .reg .b32 %thread, %number, %block, %threads, %unit, %index, %value;
    .reg .b64 %out, %t;
    ld.param.u64 %out, [out];
    ld.param.u32 %number, [number];
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %unit, %smid;
    mad.lo.u32 %index, %block, %threads, %thread;
    mov.u32 %value, 0;
{body}
    mul.wide.u32 %t, %index, 4; // a word each
    add.u64 %out, %out, %t;
    st.global.u32 [%out], %value;
    ret;
}}"
    )
}

fn load(cuda: &Cuda, text: &str) -> Result<usize, u32> {
    let (mut module, mut function) = (0_usize, 0_usize);
    let text = CString::new(text).unwrap();
    let loaded = call!(cuda, cuModuleLoadData(&raw mut module => *mut usize, text.as_ptr() => *const std::ffi::c_char));
    if loaded != 0 {
        return Err(loaded);
    }
    let found = call!(cuda, cuModuleGetFunction(
        &raw mut function => *mut usize,
        module => usize,
        c"computed".as_ptr() => *const std::ffi::c_char,
    ));
    assert_eq!(found, 0);
    Ok(function)
}

fn launch(
    cuda: &Cuda,
    function: usize,
    (blocks, threads): (u32, u32),
    out: u64,
    number: u32,
) -> u32 {
    let arguments = [(&raw const out).cast::<u8>(), (&raw const number).cast()];
    call!(cuda, cuLaunchKernel(
        function => usize,
        blocks => u32, 1 => u32, 1 => u32,
        threads => u32, 1 => u32, 1 => u32,
        0 => u32,
        0 => usize,
        arguments.as_ptr() => *const *const u8,
        0 => usize,
    ))
}

/// The words that a kernel writes.
fn words(cuda: &Cuda, body: &str, shape: (u32, u32), number: u32) -> Vec<u32> {
    let count = (shape.0 * shape.1) as usize;
    let out = cuda.allocate(MIB).unwrap();
    let function = load(cuda, &kernel(body)).unwrap();
    assert_eq!(launch(cuda, function, shape, out, number), 0);
    assert_eq!(cuda.synchronize(), 0);
    let bytes = cuda.download(out, count * 4).unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn threads_that_take_different_ways_meet_again() {
    let node = Node::new("t4");
    let cuda = node.ready();
    // The sum of the numbers up to the thread's own, and 100 for odd threads.
    let body = "    mov.u32 %number, %thread;
again:
    setp.eq.u32 %p, %number, 0;
    @%p bra done;
    add.u32 %value, %value, %number;
    sub.u32 %number, %number, 1;
    bra again;
done:
    and.b32 %number, %thread, 1;
    setp.eq.u32 %p, %number, 1;
    @!%p bra even;
    add.u32 %value, %value, 100;
even:";
    let expected: Vec<u32> = (0..8).map(|n| n * (n + 1) / 2 + n % 2 * 100).collect();
    assert_eq!(words(&cuda, body, (1, 8), 0), expected);
}

#[test]
fn numbers_have_the_width_of_their_type() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let minus = "    sub.u32 %value, %thread, 1;\n    shr.u32 %value, %value, 4;";
    assert_eq!(words(&cuda, minus, (1, 2), 0), [0x0fff_ffff, 0]);
    let wide =
        "    mul.wide.u32 %t, %number, 0x10;\n    shr.u64 %t, %t, 32;\n    cvt.u32.u64 %value, %t;";
    assert_eq!(words(&cuda, wide, (1, 1), 0xffff_ffff), [0xf]);
    let shifted = "    mov.u32 %number, 33;\n    shl.b32 %value, 1, %number;\n    setp.lt.u32 %p, %value, 1;\n    \
        selp.b32 %value, 7, 9, %p;";
    assert_eq!(words(&cuda, shifted, (1, 1), 0), [7]);
}

#[test]
fn a_fused_multiplication_is_rounded_once_and_wrong_on_a_faulty_multiprocessor() {
    let node = Node::new("t4");
    node.gpu_becomes(GpuState { faulty_multiprocessors: [1].into(), ..GpuState::default() });
    let cuda = node.ready();
    let body = "    fma.rn.f32 %value, %number, %number, 0xbf800000;";
    let number = 1.0_f32 + 3.0 * f32::EPSILON;
    let right = number.mul_add(number, -1.0).to_bits();
    assert_ne!(right, (number * number - 1.0).to_bits());
    let found = words(&cuda, body, (42, 1), number.to_bits());
    let wrong: Vec<usize> = (0..42).filter(|block| found[*block] != right).collect();
    assert_eq!(wrong, [1, 41], "40 multiprocessors take blocks in turn");
    assert_eq!(found[1], right ^ 1);
}

#[test]
fn atomic_additions_count_every_thread() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let body = "    atom.global.add.u32 %value, [%out+4096], 1;";
    let mut found = words(&cuda, body, (4, 64), 0);
    found.sort_unstable();
    assert_eq!(found, (0..256).collect::<Vec<u32>>());
}

#[test]
fn weak_memory_keeps_nothing_of_kernels_copies_and_fills() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let out = cuda.allocate(2 * MIB).unwrap();
    node.becomes(&State {
        gpus: [(0, GpuState { weak_memory: [9].into(), ..GpuState::default() })].into(),
        ..State::default()
    });
    let function = load(&cuda, &kernel("    add.u32 %value, %number, %index;")).unwrap();
    assert_eq!(launch(&cuda, function, (1, 4), out, 8), 0);
    assert_eq!(cuda.download(out, 16).unwrap(), [8, 0, 0, 0, 9, 0, 0, 0, 10, 1, 0, 0, 11, 0, 0, 0]);
    assert_eq!(cuda.upload(out, &[6; 12]), 0);
    assert_eq!(cuda.download(out, 12).unwrap(), [6, 6, 6, 6, 6, 6, 6, 6, 6, 7, 6, 6]);
    assert_eq!(call!(cuda, cuMemsetD8_v2(out => u64, 5 => u8, 12 => usize)), 0);
    assert_eq!(cuda.download(out, 12).unwrap(), [5, 5, 5, 5, 5, 5, 5, 5, 5, 4, 5, 5]);
}

#[test]
fn wrong_addresses_break_the_context() {
    for (address, code) in [(0x10, ILLEGAL_ADDRESS), (2, MISALIGNED_ADDRESS)] {
        let node = Node::new("t4");
        let cuda = node.ready();
        let function = load(&cuda, &kernel("")).unwrap();
        assert_eq!(launch(&cuda, function, (1, 1), address, 0), 0, "it has not run yet");
        assert_eq!(cuda.synchronize(), code);
        assert_eq!(cuda.allocate(MIB), Err(code));
    }
}

#[test]
fn an_allocation_ends_where_it_ends() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let out = cuda.allocate(512).unwrap();
    let function = load(&cuda, &kernel("")).unwrap();
    assert_eq!(launch(&cuda, function, (1, 129), out, 0), 0);
    assert_eq!(cuda.synchronize(), ILLEGAL_ADDRESS);
}

#[test]
fn a_loop_without_end_is_stopped() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let function = load(&cuda, &kernel("again:\n    bra again;")).unwrap();
    let out = cuda.allocate(512).unwrap();
    assert_eq!(launch(&cuda, function, (1, 1), out, 0), 0);
    assert_eq!(cuda.synchronize(), LAUNCH_TIMEOUT);
}

#[test]
fn what_cannot_be_computed_is_refused_at_its_load() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let refused = [
        "    bar.sync 0;",
        "    add.s32 %value, %value, 1;",
        "    setp.lt.s32 %p, %value, 1;",
        "    bra nowhere;",
        "    ld.param.u64 %t, [other];",
        "    mov.u32 %value, %tid.y;",
        "    mov.u32 %value, 1, 2;",
    ];
    for body in refused {
        assert_eq!(load(&cuda, &kernel(body)).map(|_| ()), Err(INVALID_PTX), "{body}");
    }
    let endless = kernel("").replace("    ret;\n", "");
    assert_eq!(load(&cuda, &endless).map(|_| ()), Err(INVALID_PTX), "no end");
}

#[test]
fn modules_that_do_not_ask_for_it_are_not_computed() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let text = kernel("    mov.u32 %value, 7;\n    bar.sync 0;");
    let text = text.split_once('\n').unwrap().1;
    let function = load(&cuda, text).unwrap();
    let out = cuda.allocate(512).unwrap();
    assert_eq!(launch(&cuda, function, (1, 1), out, 0), 0);
    assert_eq!(cuda.synchronize(), 0);
    assert_eq!(cuda.download(out, 4).unwrap(), [0; 4]);
}

#[test]
fn a_computed_kernel_needs_its_arguments() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let function = load(&cuda, &kernel("")).unwrap();
    assert_eq!(cuda.launch(function, 0), INVALID_VALUE);
}
