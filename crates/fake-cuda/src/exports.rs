//! CUDA's C functions.
//!
//! The functions are safe to write because pointers arrive as the types of
//! [`pointers`](crate::pointers), and handles are numbers that are checked. `no_mangle` is an
//! unsafe attribute because a program could have two functions of one name: these names are
//! CUDA's, and standing in for CUDA is what this library is for.
//!
//! Each function hands its own name on, so that no two have the same code and the compiler gives
//! none of them the address of another: programs tell functions apart by their addresses.

/// Exports functions, and lists them: `LIST = entry; fn name(argument: Type, ...) { answer }`. The
/// entry is one of [`library`](crate::library)'s.
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

/// Exports functions whose streams default to the legacy one and those whose streams default to
/// the thread's: `LIST = entry; fn name, name_ptsz(default, argument: Type, ...) { answer }`.
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
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod graph_nodes;
pub(crate) mod ipc;
pub(crate) mod launch;
pub(crate) mod lifecycle;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod pool;
pub(crate) mod stream;
pub(crate) mod vmm;
