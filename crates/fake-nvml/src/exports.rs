//! NVML's C functions.
//!
//! They are safe to write because pointer arguments have the types of
//! [`pointers`](crate::pointers), and handles are numbers that are checked. `no_mangle` is an
//! unsafe attribute because a program could have two functions of one name. These names are NVML's,
//! and replacing NVML is the purpose of this library.

#![expect(non_snake_case, reason = "the names are NVML's")]

/// Exports functions on the whole machine: `fn name(session, argument: Type, ...) { answer }`.
macro_rules! machine_calls {
    ($($(#[$meta:meta])* fn $name:ident($session:ident $(, $argument:ident: $kind:ty)* $(,)?) $body:block)*) => {
        $(
            $(#[$meta])*
            #[unsafe(no_mangle)]
            extern "C" fn $name($($argument: $kind),*) -> nvml_wrapper_sys::bindings::nvmlReturn_t {
                crate::library::on_machine(stringify!($name), &mut |$session| $body)
            }
        )*
    };
}

/// Exports functions on one GPU, whose handle is the first argument:
/// `fn name(gpu, argument: Type, ...) { answer }`.
macro_rules! gpu_calls {
    ($($(#[$meta:meta])* fn $name:ident($gpu:ident $(, $argument:ident: $kind:ty)* $(,)?) $body:block)*) => {
        $(
            $(#[$meta])*
            #[unsafe(no_mangle)]
            extern "C" fn $name(
                handle: nvml_wrapper_sys::bindings::nvmlDevice_t,
                $($argument: $kind),*
            ) -> nvml_wrapper_sys::bindings::nvmlReturn_t {
                crate::library::on_gpu(stringify!($name), handle, &mut |$gpu| $body)
            }
        )*
    };
}

/// Exports functions on one GPU or MIG device, in the form of `gpu_calls`.
macro_rules! device_calls {
    ($($(#[$meta:meta])* fn $name:ident($gpu:ident $(, $argument:ident: $kind:ty)* $(,)?) $body:block)*) => {
        $(
            $(#[$meta])*
            #[unsafe(no_mangle)]
            extern "C" fn $name(
                handle: nvml_wrapper_sys::bindings::nvmlDevice_t,
                $($argument: $kind),*
            ) -> nvml_wrapper_sys::bindings::nvmlReturn_t {
                crate::library::on_device(stringify!($name), handle, &mut |$gpu| $body)
            }
        )*
    };
}

mod event;
mod fabric;
mod fields;
mod find;
mod health;
mod identity;
mod lifecycle;
mod links;
mod memory;
mod memory_limits;
mod mig;
mod modes;
mod processes;
mod system;
