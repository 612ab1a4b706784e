//! Memory that is bound to multicast objects.

use crate::cuda::{Cuda, FIRST_GPU, GIB, MIB, ok};
use crate::{call, inside};

impl Cuda {
    /// A multicast object for two GPUs.
    fn multicast(&self) -> u64 {
        let (mut object, prop) = (0, [2_u64, 2 * GIB, 0, 0]);
        let code = call!(self, cuMulticastCreate(
            &raw mut object => *mut u64, prop.as_ptr() => *const u64));
        ok(code, object).unwrap()
    }

    /// Binds a gibibyte of memory.
    fn bind(&self, object: u64, offset: u64, handle: u64) -> u32 {
        call!(self, cuMulticastBindMem(
            object => u64, offset => u64, handle => u64, 0 => u64, GIB => u64, 0 => u64))
    }

    fn unbind(&self, object: u64, device: i32, offset: u64) -> u32 {
        call!(self, cuMulticastUnbind(object => u64, device => i32, offset => u64, GIB => u64))
    }
}

#[test]
fn a_multicast_object_is_free_and_holds_bound_memory() {
    let cuda = inside!(4 * GIB);
    let mut object = 0;
    // For two devices, with these bytes.
    let prop = [2_u64, 2 * GIB, 0, 0];
    let code =
        call!(cuda, cuMulticastCreate(&raw mut object => *mut u64, prop.as_ptr() => *const u64));
    assert_eq!(code, 0);
    assert_eq!(call!(cuda, cuMulticastAddDevice(object => u64, 0 => i32)), 0);
    assert_eq!(cuda.counted(), 0);
    let handle = cuda.create(2 * GIB, FIRST_GPU).unwrap();
    let address = cuda.reserve(2 * GIB);
    assert_eq!(cuda.map(address, 2 * GIB, handle), 0);
    for _ in 0..2 {
        let code = call!(cuda, cuMulticastBindMem(
            object => u64, 0 => u64, handle => u64, 0 => u64, 2 * GIB => u64, 0 => u64));
        assert_eq!(code, 0);
    }
    let code = call!(cuda, cuMulticastBindAddr(
        object => u64, 0 => u64, address + 2 * MIB => u64, 2 * MIB => u64, 0 => u64));
    assert_eq!(code, 0);
    assert_eq!(cuda.release(handle), 0);
    assert_eq!(cuda.unmap(address, 2 * GIB), 0);
    // The object's own handle holds it.
    assert_eq!(cuda.counted(), 2 * GIB);
    assert_eq!(cuda.release(object), 0);
    assert_eq!(cuda.counted(), 0);
}

#[test]
fn binding_for_a_device_holds_likewise() {
    let cuda = inside!(4 * GIB);
    // By name and version, as the runtime library does.
    let ask = |name: &str, version: i32| {
        let (mut function, mut found) = (0_usize, 0_u32);
        let code = call!(cuda, cuGetProcAddress_v2(
            std::ffi::CString::new(name).unwrap().as_ptr() => *const std::ffi::c_char,
            &raw mut function => *mut usize, version => i32, 0 => u64, &raw mut found => *mut u32));
        ok(code, function).unwrap()
    };
    for (name, is_by_address) in [("cuMulticastBindMem", false), ("cuMulticastBindAddr", true)] {
        assert_ne!(ask(name, 13000), ask(name, 13010));
        let mut object = 0;
        let prop = [2_u64, 2 * GIB, 0, 0];
        let prop = prop.as_ptr();
        let code = call!(cuda, cuMulticastCreate(&raw mut object => *mut u64, prop => *const u64));
        assert_eq!(code, 0);
        let handle = cuda.create(2 * GIB, FIRST_GPU).unwrap();
        let address = cuda.reserve(2 * GIB);
        assert_eq!(cuda.map(address, 2 * GIB, handle), 0);
        let code = if is_by_address {
            call!(cuda, cuMulticastBindAddr_v2(
                object => u64, 0 => i32, 0 => u64, address => u64, 2 * GIB => u64, 0 => u64))
        } else {
            call!(cuda, cuMulticastBindMem_v2(
                object => u64, 0 => i32, 0 => u64, handle => u64, 0 => u64, 2 * GIB => u64, 0 => u64))
        };
        assert_eq!(code, 0, "{name}");
        assert_eq!(cuda.release(handle), 0);
        assert_eq!(cuda.unmap(address, 2 * GIB), 0);
        assert_eq!(cuda.counted(), 2 * GIB);
        assert_eq!(cuda.release(object), 0);
        assert_eq!(cuda.counted(), 0);
    }
}

#[test]
fn what_is_unbound_is_not_held() {
    let cuda = inside!(4 * GIB);
    let object = cuda.multicast();
    for _ in 0..10 {
        for offset in [0, GIB] {
            let handle = cuda.create(GIB, FIRST_GPU).unwrap();
            assert_eq!(cuda.bind(object, offset, handle), 0);
            assert_eq!(cuda.release(handle), 0);
        }
        assert_eq!(cuda.counted(), 2 * GIB);
        // Nothing of another GPU is bound.
        assert_eq!(cuda.unbind(object, 1, 0), 0);
        assert_eq!(cuda.counted(), 2 * GIB);
        assert_eq!(cuda.unbind(object, 0, GIB), 0);
        assert_eq!(cuda.counted(), GIB);
        assert_eq!(cuda.unbind(object, 0, GIB), 0);
        assert_eq!(cuda.counted(), GIB);
        assert_eq!(cuda.unbind(object, 0, 0), 0);
        assert_eq!(cuda.counted(), 0);
    }
    assert_eq!(cuda.release(object), 0);
    assert_eq!(cuda.counted(), 0);
}

#[test]
fn memory_that_is_unbound_stays_as_long_as_it_has_a_handle() {
    let cuda = inside!(4 * GIB);
    let object = cuda.multicast();
    let handle = cuda.create(GIB, FIRST_GPU).unwrap();
    assert_eq!(cuda.bind(object, 0, handle), 0);
    assert_eq!(cuda.unbind(object, 0, 0), 0);
    assert_eq!((cuda.counted(), cuda.used()), (GIB, GIB));
    // By its address, for a GPU that the call names.
    let address = cuda.reserve(GIB);
    assert_eq!(cuda.map(address, GIB, handle), 0);
    let code = call!(cuda, cuMulticastBindAddr_v2(
        object => u64, 0 => i32, 0 => u64, address => u64, GIB => u64, 0 => u64));
    assert_eq!(code, 0);
    assert_eq!((cuda.release(handle), cuda.unmap(address, GIB)), (0, 0));
    assert_eq!(cuda.counted(), GIB);
    assert_eq!(cuda.unbind(object, 0, 0), 0);
    assert_eq!(cuda.counted(), 0);
}

#[test]
fn what_cannot_be_unbound_stays_counted() {
    let cuda = inside!(4 * GIB);
    let object = cuda.multicast();
    let handle = cuda.create(GIB, FIRST_GPU).unwrap();
    assert_eq!(cuda.bind(object, 0, handle), 0);
    assert_eq!(cuda.release(handle), 0);
    cuda.failing(&[("cuMulticastUnbind", 1)]);
    for _ in 0..3 {
        assert_eq!(cuda.unbind(object, 0, 0), 1);
        assert_eq!(cuda.counted(), GIB);
    }
    cuda.failing(&[]);
    assert_eq!(cuda.unbind(object, 0, 0), 0);
    assert_eq!(cuda.counted(), 0);
}
