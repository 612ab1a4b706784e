//! Writes a small library that replaces one of the driver's (`libcuda.so.1`, `libnvidia-ml.so.1`)
//! in a container with a share, from the bytes of the driver's library.
//!
//! ```text
//!                     proxy (SONAME as the driver's)            guard                     driver
//!  a hook             cuMemAlloc_v2:  jmp *slot --------------> octavo_hook_cuMemAlloc_v2
//!  an unknown name    cuMemAllocNew:  load record, jmp *slot -> octavo_unknown_entry
//!  any other          (not there)  ----------------------------------------------------> cuDeviceGetName
//! ```
//!
//! - The dynamic linker binds all slots before the first call: a guard that lacks a hook fails to
//!   load, so that no call bypasses it. The slots are read-only afterwards.
//! - Names that are neither hooked nor unknown need no forwarder. Guard and driver are dependencies
//!   of the proxy, so the dynamic linker searches them next, however a program looks a name up:
//!   linked, by handle, in a separate namespace, or with `RTLD_DEEPBIND`.
//! - The stub of an unknown name puts the address of its record in `r11` (`x16` on arm64) and
//!   preserves all registers of arguments. A record has three words: the address of the name, its
//!   length, and a word for the guard to store the driver's function in, zero at first.
//! - Versions of names are kept, since programs linked to versions look them up.
//! - **Compilers link against the library that they find**, in a container too (Triton does for
//!   each kernel launcher), and linkers need all names. So the section headers, which the dynamic
//!   linker never reads, refer to a second symbol table with every name that the driver exports.
//!   Names that the proxy does not define have the address of a trap there: they can be linked to,
//!   but not called.
//!
//! Pure but for reading a driver that is given as a file; the same driver and plan give the same result.

#![forbid(unsafe_code)]

mod architecture;
mod driver;
mod error;
mod image;
mod strings;
mod stubs;
mod symbols;

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use error::ProxyError;
pub use object::read::{ReadCache, ReadRef};

use driver::Driver;
use stubs::Stubs;

/// Prefix of the guard's hooks, before the driver's name.
pub const HOOK_PREFIX: &str = "octavo_hook_";

/// Target of the stubs of unknown names.
pub const UNKNOWN_ENTRY: &str = "octavo_unknown_entry";

/// Parameters of a proxy.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Names that the guard hooks. Names that the driver does not export are skipped.
    pub hooks: &'a BTreeSet<&'a str>,
    /// Whether an unhooked function may allocate or launch, by its name.
    pub is_suspicious: fn(&[u8]) -> bool,
    /// SONAME that programs use (`libcuda.so.1`). A driver's library with another SONAME is
    /// rejected.
    pub soname: &'a str,
    /// Path of the guard in containers; must be absolute.
    pub guard: &'a Path,
    /// Path of the driver's own library in containers. It must be absolute: the SONAME, which the
    /// proxy shares, must not be used for the lookup.
    pub real: &'a Path,
}

/// A proxy and its contents.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// The bytes of the library.
    pub bytes: Vec<u8>,
    /// Hooked names, in order.
    pub hooked: Vec<String>,
    /// Hooks that the driver does not export, in order.
    pub missing: Vec<String>,
    /// Suspicious functions of the driver without a hook, in order.
    pub unknown: Vec<String>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Proxy")
            .field("bytes", &self.bytes.len())
            .field("hooked", &self.hooked)
            .field("missing", &self.missing)
            .field("unknown", &self.unknown)
            .finish()
    }
}

/// The names of a guard's hooks, as in the driver, from the guard's file.
pub fn hooks_of(guard: &[u8]) -> Result<BTreeSet<&str>, ProxyError> {
    let exports = Driver::read(guard)?.exports.into_iter();
    let names = exports.filter_map(|export| export.name.strip_prefix(HOOK_PREFIX.as_bytes()));
    Ok(names.filter_map(|name| std::str::from_utf8(name).ok()).collect())
}

/// Writes the proxy of a driver's library, given its whole file.
pub fn write(driver: &[u8], plan: &Plan<'_>) -> Result<Proxy, ProxyError> {
    write_from(driver, plan)
}

/// Writes the proxy of a driver's library, of which only headers and tables are read. A file is given as a
/// [`ReadCache`] of it.
pub fn write_from<'a>(driver: impl ReadRef<'a>, plan: &Plan<'_>) -> Result<Proxy, ProxyError> {
    for path in [plan.guard, plan.real] {
        if !path.is_absolute() || path.as_os_str().as_bytes().contains(&0) {
            return Err(ProxyError::Path { path: path.to_path_buf() });
        }
    }
    let driver = Driver::read(driver)?;
    if driver.needed.contains(&plan.guard.as_os_str().as_bytes()) {
        return Err(ProxyError::IsProxy);
    }
    if let Some(found) = driver.soname.filter(|found| *found != plan.soname.as_bytes()) {
        let found = String::from_utf8_lossy(found).into_owned();
        return Err(ProxyError::OtherLibrary { found, expected: plan.soname.to_owned() });
    }
    let stubs = Stubs::choose(&driver, plan);
    if stubs.hooks.is_empty() {
        return Err(ProxyError::NothingToHook { exports: driver.exports.len() });
    }
    let text = |names: &[&[u8]]| -> Vec<String> {
        names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    };
    let (hooked, unknown) = (text(&stubs.hooks), text(&stubs.unknown));
    let missing = plan.hooks.iter().filter(|hook| !stubs.hooks.contains(&hook.as_bytes()));
    Ok(Proxy {
        bytes: image::write(&driver, &stubs, plan),
        hooked,
        missing: missing.map(|hook| (*hook).to_owned()).collect(),
        unknown,
    })
}

#[cfg(test)]
mod tests;
