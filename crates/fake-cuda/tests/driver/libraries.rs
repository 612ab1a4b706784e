//! Libraries of kernels, and the driver's messages.

use std::ffi::c_char;

use crate::call;
use crate::node::{CONTEXT, Cuda, INVALID_VALUE, MIB, Node};

const INVALID_CONTEXT: u32 = 201;
const INVALID_HANDLE: u32 = 400;

/// Memory of code.
const CODE: u64 = 2 * MIB;

fn load(cuda: &Cuda) -> usize {
    let mut library = 0_usize;
    let code = call!(cuda, cuLibraryLoadData(
        &raw mut library => *mut usize, c"\x7fELF".as_ptr() => *const c_char,
        0 => usize, 0 => usize, 0 => u32, 0 => usize, 0 => usize, 0 => u32));
    assert_eq!(code, 0);
    library
}

fn kernel(cuda: &Cuda, library: usize) -> usize {
    let mut kernel = 0_usize;
    let code = call!(cuda, cuLibraryGetKernel(
        &raw mut kernel => *mut usize, library => usize, c"add".as_ptr() => *const c_char));
    assert_eq!(code, 0);
    kernel
}

fn function(cuda: &Cuda, kernel: usize) -> u32 {
    let mut function = 0_usize;
    call!(cuda, cuKernelGetFunction(&raw mut function => *mut usize, kernel => usize))
}

#[test]
fn a_library_needs_no_context_until_one_uses_it() {
    let node = Node::new("t4");
    let cuda = node.start();
    let library = load(&cuda);
    let add = kernel(&cuda, library);
    assert_eq!((kernel(&cuda, library), function(&cuda, add)), (add, INVALID_CONTEXT));
    let first = cuda.context(0);
    assert_eq!(cuda.used(), CONTEXT);
    assert_eq!((function(&cuda, add), function(&cuda, add)), (0, 0));
    assert_eq!(cuda.used(), CONTEXT + CODE, "once in a context");
    cuda.context(0);
    assert_eq!(function(&cuda, add), 0);
    assert_eq!(cuda.used(), 2 * (CONTEXT + CODE));
    assert_eq!(call!(cuda, cuCtxDestroy_v2(first => usize)), 0);
    assert_eq!(cuda.used(), CONTEXT + CODE);
    assert_eq!(function(&cuda, add), 0, "the library stays");
    assert_eq!(call!(cuda, cuLibraryUnload(library => usize)), 0);
    assert_eq!((cuda.used(), function(&cuda, add)), (CONTEXT, INVALID_HANDLE));
}

#[test]
fn the_driver_has_no_messages() {
    let node = Node::new("t4");
    let cuda = node.load();
    let (mut callback, mut iterator, mut size, mut text) = (0_usize, 9_u32, 9_usize, [7_u8; 9]);
    let registered = call!(cuda, cuLogsRegisterCallback(
        1 => usize, 0 => usize, &raw mut callback => *mut usize));
    assert_eq!(registered, 0);
    assert_eq!(call!(cuda, cuLogsUnregisterCallback(callback => usize)), 0);
    assert_eq!(call!(cuda, cuLogsUnregisterCallback(callback => usize)), INVALID_VALUE);
    assert_eq!(call!(cuda, cuLogsCurrent(&raw mut iterator => *mut u32, 0 => u32)), 0);
    let dumped = call!(cuda, cuLogsDumpToMemory(
        &raw mut iterator => *mut u32, text.as_mut_ptr() => *mut u8,
        &raw mut size => *mut usize, 0 => u32));
    assert_eq!((dumped, iterator, size, text[0]), (0, 0, 0, 0));
    let path = node.folder.path().join("messages");
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let dumped = call!(cuda, cuLogsDumpToFile(
        0 => usize, name.as_ptr() => *const c_char, 0 => u32));
    assert_eq!((dumped, std::fs::read(path).unwrap()), (0, vec![]));
}
