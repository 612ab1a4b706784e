//! Modules, functions and libraries.

use std::ffi::{c_char, c_int, c_uint};

use crate::code::{CallResult, Code};
use crate::execution::module::{self, FUNCTIONS, MODULES};
use crate::pointers::{Out, TextIn};
use crate::table::Handle;

calls! { CALLS = call;
    fn cuModuleLoad(handle: Out<Handle>, path: TextIn) {
        handle.check()?;
        handle.put(module::load_file(path)?)
    }

    fn cuModuleLoadData(handle: Out<Handle>, image: TextIn) {
        handle.check()?;
        handle.put(module::load(image)?)
    }

    fn cuModuleLoadDataEx(
        handle: Out<Handle>,
        image: TextIn,
        _count: c_uint,
        _options: usize,
        _values: usize,
    ) {
        handle.check()?;
        handle.put(module::load(image)?)
    }

    fn cuModuleLoadFatBinary(handle: Out<Handle>, image: TextIn) {
        handle.check()?;
        handle.put(module::load(image)?)
    }

    fn cuModuleUnload(handle: Handle) { module::unload(handle) }

    /// Lazy, as the real driver is by default.
    fn cuModuleGetLoadingMode(mode: Out<c_uint>) { mode.put(2) }

    fn cuModuleGetFunction(function: Out<Handle>, handle: Handle, name: TextIn) {
        function.check()?;
        function.put(module::function(handle, name.read()?)?)
    }

    /// Images are not parsed, so their variables have no addresses.
    fn cuModuleGetGlobal_v2(_address: Out<u64>, _size: Out<u64>, handle: Handle, _name: TextIn) {
        MODULES.with(handle, |_| Err(Code::NOT_FOUND))
    }

    fn cuFuncGetAttribute(value: Out<c_int>, attribute: c_uint, function: Handle) {
        known(function)?;
        value.put(match attribute {
            // Maximum threads of a block; code versions.
            0 => 1024,
            4 => 32,
            5 | 6 => 90,
            1..=15 => 0,
            _ => return Err(Code::INVALID_VALUE),
        })
    }

    fn cuFuncSetAttribute(function: Handle, _attribute: c_uint, _value: c_int) { known(function) }

    fn cuFuncSetCacheConfig(function: Handle, _config: c_uint) { known(function) }

    fn cuFuncGetModule(handle: Out<Handle>, function: Handle) {
        handle.put(FUNCTIONS.with(function, |function| Ok(function.module))?)
    }

    fn cuFuncLoad(function: Handle) { known(function) }

    fn cuFuncIsLoaded(state: Out<c_uint>, function: Handle) {
        known(function)?;
        state.put(1)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<c_int>,
        function: Handle,
        size: c_int,
        _shared: usize,
    ) {
        blocks.put(blocks_of(function, size)?)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<c_int>,
        function: Handle,
        size: c_int,
        _shared: usize,
        _flags: c_uint,
    ) {
        blocks.put(blocks_of(function, size)?)
    }

    fn cuLibraryLoadData(
        handle: Out<Handle>,
        image: TextIn,
        _jit_options: usize,
        _jit_values: usize,
        _jit_count: c_uint,
        _options: usize,
        _values: usize,
        _count: c_uint,
    ) {
        handle.check()?;
        handle.put(module::load_library(image)?)
    }

    fn cuLibraryUnload(handle: Handle) { module::unload(handle) }

    /// A library here is the module of each context that uses it.
    fn cuLibraryGetModule(module: Out<Handle>, handle: Handle) {
        module.check()?;
        module::use_here(handle)?;
        module.put(handle)
    }

    fn cuLibraryGetKernel(kernel: Out<Handle>, handle: Handle, name: TextIn) {
        kernel.check()?;
        kernel.put(module::function(handle, name.read()?)?)
    }

    fn cuKernelGetFunction(function: Out<Handle>, kernel: Handle) {
        function.check()?;
        module::use_here(FUNCTIONS.with(kernel, |kernel| Ok(kernel.module))?)?;
        function.put(kernel)
    }

    fn cuKernelGetLibrary(library: Out<Handle>, kernel: Handle) {
        library.put(FUNCTIONS.with(kernel, |kernel| Ok(kernel.module))?)
    }

    /// Names of functions stay valid until the module is unloaded.
    fn cuFuncGetName(name: Out<*const c_char>, function: Handle) {
        name.put(FUNCTIONS.with(function, |function| Ok(function.name.as_ptr()))?)
    }

    fn cuKernelGetName(name: Out<*const c_char>, kernel: Handle) {
        name.put(FUNCTIONS.with(kernel, |kernel| Ok(kernel.name.as_ptr()))?)
    }
}

fn known(function: Handle) -> CallResult {
    FUNCTIONS.with(function, |_| Ok(()))
}

fn blocks_of(function: Handle, size: c_int) -> Result<c_int, Code> {
    known(function)?;
    if !(1..=1024).contains(&size) {
        return Err(Code::INVALID_VALUE);
    }
    Ok((2048 / size).min(32))
}
