//! Arrays and mipmapped arrays.

use std::ffi::{c_int, c_uint};

use crate::abi::{Array3dDescriptor, ArrayDescriptor, ArrayRequirements};
use crate::library::device;
use crate::memory::arrays::{self, ARRAYS};
use crate::pointers::{In, Out};
use crate::table::Handle;

calls! { CALLS = call;
    fn cuArrayCreate_v2(handle: Out<Handle>, descriptor: In<ArrayDescriptor>) {
        handle.check()?;
        let ArrayDescriptor { width, height, format, channels } = descriptor.read()?;
        let descriptor =
            Array3dDescriptor { width, height, depth: 0, format, channels, flags: 0 };
        handle.put(arrays::create(descriptor)?)
    }

    fn cuArray3DCreate_v2(handle: Out<Handle>, descriptor: In<Array3dDescriptor>) {
        handle.check()?;
        handle.put(arrays::create(descriptor.read()?)?)
    }

    fn cuArrayDestroy(handle: Handle) { arrays::destroy(handle) }

    fn cuArrayGetDescriptor_v2(descriptor: Out<ArrayDescriptor>, handle: Handle) {
        let Array3dDescriptor { width, height, format, channels, .. } =
            ARRAYS.with(handle, |array| Ok(array.descriptor))?;
        descriptor.put(ArrayDescriptor { width, height, format, channels })
    }

    fn cuArray3DGetDescriptor_v2(descriptor: Out<Array3dDescriptor>, handle: Handle) {
        descriptor.put(ARRAYS.with(handle, |array| Ok(array.descriptor))?)
    }

    fn cuArrayGetMemoryRequirements(
        requirements: Out<ArrayRequirements>,
        handle: Handle,
        ordinal: c_int,
    ) {
        device(ordinal)?;
        requirements.put(arrays::requirements(arrays::bytes_of(handle)?))
    }

    fn cuMipmappedArrayCreate(
        handle: Out<Handle>,
        descriptor: In<Array3dDescriptor>,
        levels: c_uint,
    ) {
        handle.check()?;
        handle.put(arrays::create_mipmap(descriptor.read()?, levels)?)
    }

    fn cuMipmappedArrayGetLevel(array: Out<Handle>, handle: Handle, level: c_uint) {
        array.put(arrays::level(handle, level)?)
    }

    fn cuMipmappedArrayDestroy(handle: Handle) { arrays::destroy_mipmap(handle) }

    fn cuMipmappedArrayGetMemoryRequirements(
        requirements: Out<ArrayRequirements>,
        handle: Handle,
        ordinal: c_int,
    ) {
        device(ordinal)?;
        requirements.put(arrays::requirements(arrays::bytes_of_mipmap(handle)?))
    }
}
