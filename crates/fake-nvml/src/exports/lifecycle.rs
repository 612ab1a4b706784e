//! Initialisation, shutdown and error texts.

use std::ffi::{c_char, c_uint};

use nvml_wrapper_sys::bindings::nvmlReturn_t;

use crate::{code, library};

#[unsafe(no_mangle)]
extern "C" fn nvmlInit() -> nvmlReturn_t {
    library::init("nvmlInit")
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    library::init("nvmlInit_v2")
}

/// The flags select whether to attach to GPUs, which has no effect here.
#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    library::init("nvmlInitWithFlags")
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    library::shutdown("nvmlShutdown")
}

/// Needs no initialisation: callers use it to report why that failed.
#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    code::words(result).as_ptr()
}
