//! The hooked functions.
//!
//! Each file below covers one subject. It declares its hooks with `hooks!`, which generates for
//! each:
//!
//! - the function itself, exported as `octavo_hook_<name>` (proxies jump there, and the driver's
//!   own symbol table is patched to it),
//! - the same under its plain name, in the library for preloading. The one for proxies must not
//!   have these names: it is in the scope of the proxy's handle, where `dlsym` would find names
//!   that the driver lacks,
//! - `real::<name>`, the driver's own function, resolved on first use,
//! - an entry in the list of its file, which [`CUDA`] or [`NVML`] collects.
//!
//! To add a hook, write it in the file of its subject. To add a file, `mod` it here and add it to
//! the lists of hooks and names below; the test of `embedded` checks that none is missing.

use crate::driver::FunctionAddress;

/// Declares hooks: `hooks! { CUDA, Status; /// Doc. fn name(argument: Type, ...) -> Status { body }
/// ... }`.
///
/// `CUDA` is the driver's library (of [`crate::driver`]), `Status` the return type of all its
/// hooks. Within a body `real::name(...)` is the driver's function, which returns
/// `Status::NOT_FOUND` if the driver lacks it.
macro_rules! hooks {
    ($driver:ident, $status:ty; $($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty $body:block)*) => {
        /// The hooks of this file.
        pub(crate) static HOOKS: &[$crate::hooks::Hook] = &[$($crate::hooks::Hook {
            name: stringify!($name),
            function: $name as *const (),
            real: &slots::$name,
            #[cfg(test)]
            arguments: $crate::hooks::count_of(&[$(stringify!($argument)),*]),
        }),*];

        /// Their names.
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];

        $(
            $(#[$doc])*
            #[cfg_attr(
                feature = "library",
                unsafe(export_name = concat!("octavo_hook_", stringify!($name)))
            )]
            #[allow(non_snake_case, reason = "names of the driver's interface")]
            #[allow(clippy::too_many_arguments, reason = "the driver's own")]
            pub(crate) extern "C" fn $name($($argument: $type),*) -> $result $body
        )*

        #[allow(non_upper_case_globals, reason = "names of the driver's interface")]
        mod slots {
            $(pub(super) static $name: $crate::driver::FunctionAddress = $crate::driver::FunctionAddress::new();)*
        }

        /// The driver's own functions.
        #[allow(non_snake_case, reason = "names of the driver's interface")]
        #[allow(dead_code, reason = "some hooks answer without the driver")]
        pub(crate) mod real {
            #[allow(clippy::wildcard_imports, reason = "the types of the declarations above")]
            use super::*;
            $(
                #[doc = concat!("The driver's own `", stringify!($name), "`.")]
                #[allow(clippy::too_many_arguments, reason = "the driver's own")]
                #[allow(
                    clippy::undocumented_unsafe_blocks,
                    reason = "documented below, where clippy does not look within a macro"
                )]
                pub(crate) fn $name($($argument: $type),*) -> $status {
                    let address = slots::$name.resolved(&$crate::driver::$driver);
                    if address == 0 {
                        return <$status>::NOT_FOUND;
                    }
                    let _entered = $crate::driver::$driver.enter();
                    // JUSTIFICATION: the driver is C, found at run time.
                    // SAFETY: the address is that of the driver's function of this name, whose
                    // signature in the driver's header is the one above; the program's arguments
                    // are passed on unchanged.
                    let function: extern "C" fn($($type),*) -> $status =
                        unsafe { core::mem::transmute(address) };
                    function($($argument),*)
                }
            )*
        }

        #[cfg(feature = "preload")]
        #[allow(non_snake_case, reason = "names of the driver's interface")]
        mod plain {
            $(
                #[unsafe(naked)]
                #[unsafe(export_name = stringify!($name))]
                extern "C" fn $name() {
                    $crate::platform::asm::jump!(super::$name)
                }
            )*
        }
    };
}

mod arrays;
mod capture;
mod context;
mod copies;
mod gated;
pub(crate) mod graphs;
pub(crate) mod info;
mod init;
pub(crate) mod launch;
mod limits;
mod memory;
mod nvml;
mod nvml_settings;
mod pointers;
pub(crate) mod pools;
mod streams;
mod vmm;

/// A hooked function.
#[derive(Debug)]
pub(crate) struct Hook {
    /// Its name in the driver.
    pub(crate) name: &'static str,
    /// The hook.
    pub(crate) function: *const (),
    /// The driver's own function.
    pub(crate) real: &'static FunctionAddress,
    /// Number of its arguments.
    #[cfg(test)]
    pub(crate) arguments: usize,
}

/// Number of names.
#[cfg(test)]
const fn count_of(names: &[&str]) -> usize {
    names.len()
}

// JUSTIFICATION: a table of functions holds pointers.
// SAFETY: they point to functions, which all threads may call.
unsafe impl Sync for Hook {}

impl Hook {
    /// Address of the hook.
    pub(crate) fn address(&self) -> usize {
        self.function.expose_provenance()
    }
}

/// Hooks of `libcuda.so.1`.
pub(crate) static CUDA: [&[Hook]; 15] = [
    init::HOOKS,
    memory::HOOKS,
    info::HOOKS,
    context::HOOKS,
    launch::HOOKS,
    vmm::HOOKS,
    pools::HOOKS,
    graphs::HOOKS,
    capture::HOOKS,
    arrays::HOOKS,
    limits::HOOKS,
    streams::HOOKS,
    copies::HOOKS,
    gated::HOOKS,
    pointers::HOOKS,
];

/// Whether a hook only makes calls wait, marks streams, or answers: no limit of memory depends on it.
pub(crate) fn is_of_time(hook: &Hook) -> bool {
    let files = [streams::NAMES, copies::NAMES, gated::NAMES, pointers::NAMES];
    files.iter().any(|names| names.contains(&hook.name))
}

/// Hooks of `libnvidia-ml.so.1`.
pub(crate) static NVML: [&[Hook]; 2] = [nvml::HOOKS, nvml_settings::HOOKS];

/// Names of the hooks in the files above.
const CUDA_FILES: [&[&str]; 15] = [
    init::NAMES,
    memory::NAMES,
    info::NAMES,
    context::NAMES,
    launch::NAMES,
    vmm::NAMES,
    pools::NAMES,
    graphs::NAMES,
    capture::NAMES,
    arrays::NAMES,
    limits::NAMES,
    streams::NAMES,
    copies::NAMES,
    gated::NAMES,
    pointers::NAMES,
];

/// As above.
const NVML_FILES: [&[&str]; 2] = [nvml::NAMES, nvml_settings::NAMES];

/// Names of all hooks of `libcuda.so.1`.
pub(crate) const CUDA_NAMES: [&str; count(&CUDA_FILES)] = joined(&CUDA_FILES);

/// Names of all hooks of `libnvidia-ml.so.1`.
pub(crate) const NVML_NAMES: [&str; count(&NVML_FILES)] = joined(&NVML_FILES);

const fn count(files: &[&[&str]]) -> usize {
    let mut sum = 0;
    let mut file = 0;
    while file < files.len() {
        sum += files[file].len();
        file += 1;
    }
    sum
}

const fn joined<const N: usize>(files: &[&'static [&'static str]]) -> [&'static str; N] {
    let mut names = [""; N];
    let (mut file, mut place) = (0, 0);
    while file < files.len() {
        let mut index = 0;
        while index < files[file].len() {
            names[place] = files[file][index];
            place += 1;
            index += 1;
        }
        file += 1;
    }
    names
}
