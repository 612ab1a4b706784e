//! CUDA's C functions.
//!
//! They are safe to write because pointer arguments have the types of
//! [`pointers`](crate::pointers), and handles are numbers that are checked. `no_mangle` is an
//! unsafe attribute because a program could have two functions of one name. These names are CUDA's,
//! and replacing CUDA is the purpose of this library.
//!
//! Each function passes its own name on. So no two have the same code, and the compiler does not
//! merge them: programs distinguish functions by address.

/// Exports functions and lists them: `LIST = entry; fn name(argument: Type, ...) { answer }`. The
/// entry is a function of [`library`](crate::library).
macro_rules! calls {
    ($list:ident = $entry:ident; $($(#[$meta:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$meta])*
            #[unsafe(no_mangle)]
            extern "C" fn $name($($argument: $kind),*) -> crate::code::CuResult {
                crate::library::$entry(stringify!($name), || $body)
            }
        )*

        pub(crate) const $list: &[crate::names::Export] =
            &[$((stringify!($name), $name as *const ())),*];
    };
}

/// Exports each function twice, with the legacy and with the per-thread default stream: `LIST =
/// entry; fn name, name_ptsz(default, argument: Type, ...) { answer }`.
macro_rules! stream_calls {
    ($list:ident = $entry:ident; $($(#[$meta:meta])* fn $name:ident, $own:ident($default:ident $(, $argument:ident: $kind:ty)* $(,)?) $body:block)*) => {
        $(
            $(#[$meta])*
            #[unsafe(no_mangle)]
            extern "C" fn $name($($argument: $kind),*) -> crate::code::CuResult {
                let $default = crate::execution::stream::Default::Legacy;
                crate::library::$entry(stringify!($name), || $body)
            }

            $(#[$meta])*
            #[unsafe(no_mangle)]
            extern "C" fn $own($($argument: $kind),*) -> crate::code::CuResult {
                let $default = crate::execution::stream::Default::PerThread;
                crate::library::$entry(stringify!($own), || $body)
            }
        )*

        pub(crate) const $list: &[crate::names::Export] = &[
            $((stringify!($name), $name as *const ()), (stringify!($own), $own as *const ())),*
        ];
    };
}

pub(crate) mod arrays;
pub(crate) mod checkpoint;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod graph_nodes;
pub(crate) mod ipc;
pub(crate) mod launch;
pub(crate) mod lifecycle;
pub(crate) mod logs;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod pool;
pub(crate) mod stream;
pub(crate) mod vmm;
