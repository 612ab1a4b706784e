//! Function lookup by name.

use std::ffi::{CString, c_char};

use octavo_machine::State;

use crate::call;
use crate::node::{Cuda, GIB, Node};

const NOT_FOUND: u32 = 500;

impl Cuda {
    fn address(&self, name: &str, version: i32, flags: u64) -> (u32, usize, u32) {
        let name = CString::new(name).unwrap();
        let (mut function, mut status) = (9_usize, 9_u32);
        let code = call!(self, cuGetProcAddress_v2(
            name.as_ptr() => *const c_char, &raw mut function => *mut usize, version => i32,
            flags => u64, &raw mut status => *mut u32));
        (code, function, status)
    }

    fn exported(&self, name: &str) -> usize {
        let name = CString::new(name).unwrap();
        let symbol = unsafe { self.library.get::<*const ()>(name.as_bytes_with_nul()) };
        unsafe { symbol.unwrap().try_as_raw_ptr() }.unwrap().expose_provenance()
    }
}

#[test]
fn both_ways_to_a_function_give_the_same_address() {
    let node = Node::new("t4");
    let cuda = node.start();
    let of = |name, version, flags| cuda.address(name, version, flags).1;
    assert_eq!(of("cuMemAlloc", 13000, 0), cuda.exported("cuMemAlloc_v2"));
    assert_eq!(of("cuMemAllocAsync", 13000, 0), cuda.exported("cuMemAllocAsync"));
    assert_eq!(of("cuMemAllocAsync", 13000, 2), cuda.exported("cuMemAllocAsync_ptsz"));
    assert_eq!(of("cuGetProcAddress", 11030, 0), cuda.exported("cuGetProcAddress"));
    assert_eq!(of("cuGetProcAddress", 12000, 0), cuda.exported("cuGetProcAddress_v2"));
    assert_eq!(of("cuMemcpyHtoD", 7000, 2), cuda.exported("cuMemcpyHtoD_v2_ptds"));
    assert_eq!(cuda.address("", 0, 0), (NOT_FOUND, 0, 1));
    assert_eq!(cuda.address("cuMemCreate", 9000, 0), (NOT_FOUND, 0, 2));
}

#[test]
fn an_older_driver_misses_functions_and_a_newer_one_has_more() {
    let node = Node::new("t4");
    let cuda = node.ready();
    node.becomes(&State {
        missing_functions: ["cuMemCreate".to_owned(), "cuCtxCreate_v4".to_owned()].into(),
        extra_functions: ["cuMemAllocTiered".to_owned()].into(),
        ..State::default()
    });
    assert_eq!(cuda.address("cuMemCreate", 13000, 0), (NOT_FOUND, 0, 1));
    assert_eq!(cuda.address("cuCtxCreate", 13000, 0).1, cuda.exported("cuCtxCreate_v3"));
    let (code, function, _) = cuda.address("cuMemAllocTiered", 13000, 0);
    assert_eq!((code, cuda.address("cuMemAllocTiered", 13000, 0).1), (0, function));
    let pointer = std::ptr::with_exposed_provenance::<()>(function);
    let allocate: extern "C" fn(*mut u64, usize) -> u32 = unsafe { std::mem::transmute(pointer) };
    let (mut address, before) = (0, cuda.used());
    assert_eq!(allocate(&raw mut address, 1 << 30), 0);
    assert_eq!(cuda.used() - before, GIB);
}

#[test]
fn a_driver_may_give_other_pointers_than_it_exports() {
    let node = Node::new("t4");
    let cuda = node.ready();
    node.becomes(&State { pointer_identity: Some(false), ..State::default() });
    let (code, function, status) = cuda.address("cuDriverGetVersion", 13000, 0);
    assert_eq!((code, status), (0, 0));
    assert_ne!(function, cuda.exported("cuDriverGetVersion"));
    let pointer = std::ptr::with_exposed_provenance::<()>(function);
    let call: extern "C" fn(*mut i32) -> u32 = unsafe { std::mem::transmute(pointer) };
    let mut version = 0;
    assert_eq!((call(&raw mut version), version), (0, 13000));
}

#[test]
fn tables_with_an_unknown_id_are_absent() {
    let node = Node::new("t4");
    let cuda = node.start();
    let mut table = 9_usize;
    let id = [0x6b_u8; 16];
    let code =
        call!(cuda, cuGetExportTable(&raw mut table => *mut usize, id.as_ptr() => *const u8));
    assert_eq!((code, table), (NOT_FOUND, 0));
}

#[test]
fn errors_have_names_and_words() {
    let node = Node::new("t4");
    let cuda = node.load();
    let mut text: *const c_char = std::ptr::null();
    let code = call!(cuda, cuGetErrorName(2 => u32, &raw mut text => *mut *const c_char));
    assert_eq!(code, 0);
    assert_eq!(unsafe { std::ffi::CStr::from_ptr(text) }, c"CUDA_ERROR_OUT_OF_MEMORY");
    let code = call!(cuda, cuGetErrorString(12345 => u32, &raw mut text => *mut *const c_char));
    assert_eq!((code, text.is_null()), (1, true));
}
