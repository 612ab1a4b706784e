//! Results of `cuGetProcAddress`.
//!
//! The driver maps a name to a version of a function, by the program's CUDA version and flags. The
//! returned address, which is that of an export, shows whether the function is hooked. An export
//! without a hook is a different function, even if its name is similar: a newer version may take
//! other arguments. If a driver returns an address that it does not export, the name and the table
//! below decide, up to the newest version in the table.

use octavo_guard_abi::names;

use crate::cuda::{Opaque, Status};
use crate::driver::CUDA;
use crate::hooks::{self, Hook};
use crate::platform::ffi::Out;
use crate::unknown;

mod versions;

/// Flag of a request for the per-thread default stream.
const PER_THREAD_STREAM: u64 = 2;

/// Decision about a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// The driver's result stands.
    Kept,
    /// A hook, or a stub for an unknown function, replaces the result.
    Hooked(usize),
    /// The function is refused.
    Refused,
}

/// Decides about an address that the driver returned for a name.
pub(crate) fn decide(name: &[u8], address: usize, version: i32, flags: u64) -> Resolution {
    if name.is_empty() || address == 0 {
        return Resolution::Kept;
    }
    CUDA.attach();
    // A driver that uses its own symbol table finds the hooks there.
    if CUDA.hooks().any(|hook| hook.address() == address) {
        return Resolution::Kept;
    }
    if let Some(hook) = CUDA.hooks().find(|hook| hook.real.address() == address) {
        return Resolution::Hooked(hook.address());
    }
    let is_hooked = is_version_of(name, |_| true);
    let export = if is_hooked { CUDA.export_at(address) } else { None };
    if is_hooked
        && export.is_none()
        && version <= versions::NEWEST_CUDA
        && let Some(hook) = by_name(name, version, flags & PER_THREAD_STREAM != 0)
    {
        // The driver does not export the function but returns one: that function is meant.
        hook.real.set_if_unset(address);
        return Resolution::Hooked(hook.address());
    }
    // An unknown version of a call that only waits for its time is admitted.
    let limits_memory = is_version_of(name, |hook| !hooks::is_of_time(hook));
    let is_unknown = limits_memory || unknown::is_unknown(name);
    if is_unknown { unknown::on_lookup(export.unwrap_or(name), address) } else { Resolution::Kept }
}

/// Whether a name is that of one of these hooked functions in any version.
fn is_version_of(name: &[u8], is_meant: fn(&Hook) -> bool) -> bool {
    let base = names::base(name);
    let mut hooks = CUDA.hooks().filter(|hook| is_meant(hook));
    hooks.any(|hook| names::base(hook.name.as_bytes()) == base)
}

/// The hook that a name means for a version of CUDA: the newest version of the function that is not
/// newer.
fn by_name(name: &[u8], version: i32, is_per_thread: bool) -> Option<&'static Hook> {
    let hook = |wanted: &str, ending: &str| {
        CUDA.hooks().find(|hook| hook.name.strip_prefix(wanted).is_some_and(|rest| rest == ending))
    };
    let name = core::str::from_utf8(name).ok()?;
    let ending = versions::VERSIONS
        .iter()
        .rev()
        .find(|version_of_name| version_of_name.name == name && version_of_name.since <= version)
        .map_or("", |version_of_name| version_of_name.ending);
    if is_per_thread {
        let own = match ending {
            "" => hook(name, "_ptsz").or_else(|| hook(name, "_ptds")),
            "_v2" => hook(name, "_v2_ptsz").or_else(|| hook(name, "_v2_ptds")),
            _ => None,
        };
        if own.is_some() {
            return own;
        }
    }
    hook(name, ending)
}

/// Writes the result for the program.
pub(crate) fn replace_answer(
    status: Status,
    name: &[u8],
    function: Out<Opaque>,
    version: i32,
    flags: u64,
) -> Status {
    if !status.is_success() {
        return status;
    }
    let Some(address) = function.read() else { return status };
    match decide(name, address, version, flags) {
        Resolution::Kept => status,
        Resolution::Hooked(hook) => {
            function.put(hook);
            status
        }
        Resolution::Refused => {
            function.put(0);
            Status::NOT_FOUND
        }
    }
}
