//! Writes the small library that takes the place of one of the driver's (`libcuda.so.1`,
//! `libnvidia-ml.so.1`) in a container with a share, from the bytes of the driver's own.
//!
//! ```text
//!                     proxy (SONAME as the driver's)            guard                     driver
//!  a hook             cuMemAlloc_v2:  jmp *slot --------------> octavo_hook_cuMemAlloc_v2
//!  an unknown name    cuMemAllocNew:  load record, jmp *slot -> octavo_unknown_entry
//!  any other          (not there)  ----------------------------------------------------> cuDeviceGetName
//! ```
//!
//! - Slots are bound by the dynamic linker, all before the first call: a guard without one of the hooks fails
//!   to load, and nothing goes past it. They are read-only afterwards.
//! - Names that are neither hooked nor unknown need no forwarder. Guard and driver are dependencies of the
//!   proxy, so the dynamic linker looks there next, in whatever way a program asks: linked, by the handle,
//!   in a namespace of its own, or past its own libraries.
//! - The stub of an unknown name puts the address of its record in `r11` (`x16` on arm64) and touches no
//!   other register that an argument may be in. A record is three words: the address of the name, its length,
//!   and one that is zero at first and the guard's to keep the driver's own function in.
//! - Versions of names stay, since programs that were linked to versions ask for them.
//! - **Compilers link against the library that they find**, in a container too (Triton does so for each
//!   kernel launcher), and linkers want to see all names. So the section headers, which the dynamic linker
//!   never reads, lead to a second symbol table with every name that the driver exports. The value there of
//!   those that are not the proxy's is a trap: they are to be linked to, not to be called.
//!
//! Pure: bytes in, bytes out; the same for the same driver and plan.

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

use driver::Driver;
use stubs::Stubs;

/// How the guard's hooks are called: this before the driver's name.
pub const HOOK_PREFIX: &str = "octavo_hook_";

/// Where the stubs of unknown names lead to.
pub const UNKNOWN_ENTRY: &str = "octavo_unknown_entry";

/// What a proxy is to be.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The names that the guard hooks; those that the driver does not export are left out.
    pub hooks: &'a BTreeSet<&'a str>,
    /// Whether an exported function that is no hook may allocate or launch, by its name.
    pub is_suspicious: fn(&[u8]) -> bool,
    /// What programs call the library (`libcuda.so.1`). A driver's library that calls itself otherwise is
    /// another one.
    pub soname: &'a str,
    /// Where containers find the guard: an absolute path.
    pub guard: &'a Path,
    /// Where containers find the driver's own library: an absolute path, so that its SONAME, which is the
    /// proxy's too, is not what it is looked up by.
    pub real: &'a Path,
}

/// A proxy, and what is in it.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// The library.
    pub bytes: Vec<u8>,
    /// Hooks that it leads to, in order.
    pub hooked: Vec<String>,
    /// Hooks that the driver does not export, in order.
    pub missing: Vec<String>,
    /// Functions of the driver that are no hooks and suspicious, in order.
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

/// Writes the proxy of a driver's library, of which the whole file is given.
pub fn write(driver: &[u8], plan: &Plan<'_>) -> Result<Proxy, ProxyError> {
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
