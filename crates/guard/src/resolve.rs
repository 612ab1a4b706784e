//! What a program gets when it asks the driver for a function by name.
//!
//! The driver decides which version a name means, by the program's CUDA version and flags; whether that is
//! one of the hooked functions shows in the address that it gives, which is the one that it exports. An export
//! that is no hook is not the function that a hook stands in for, whatever it shares with it in name: a newer
//! version may take other arguments. Where a driver gives an address that it does not export, the name and the
//! table below decide, as far as the table goes.

use octavo_guard_abi::names;

use crate::cuda::{Opaque, Status};
use crate::driver::CUDA;
use crate::hooks::Hook;
use crate::platform::ffi::Out;
use crate::unknown;

mod versions;

/// Flag of a request: the default stream is the thread's own.
const PER_THREAD_STREAM: u64 = 2;

/// What a request for a name was answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// The driver's replace_answer stands.
    Kept,
    /// A hook stands in.
    Hooked(usize),
    /// The function is not to be had.
    Refused,
}

/// Decides about an address that the driver gave for a name.
pub(crate) fn decide(name: &[u8], address: usize, version: i32, flags: u64) -> Resolution {
    if name.is_empty() || address == 0 {
        return Resolution::Kept;
    }
    CUDA.attach();
    // A driver that looks itself up in its own table finds the hooks there.
    if CUDA.hooks().any(|hook| hook.address() == address) {
        return Resolution::Kept;
    }
    if let Some(hook) = CUDA.hooks().find(|hook| hook.real.address() == address) {
        return Resolution::Hooked(hook.address());
    }
    let is_hooked = is_version_of_a_hook(name);
    let export = if is_hooked { CUDA.export_at(address) } else { None };
    if is_hooked
        && export.is_none()
        && version <= versions::NEWEST_CUDA
        && let Some(hook) = by_name(name, version, flags & PER_THREAD_STREAM != 0)
    {
        // A driver that exports no such function has one to give none the less: that is what is meant.
        hook.real.set_if_unset(address);
        return Resolution::Hooked(hook.address());
    }
    let is_unknown = is_hooked || unknown::is_unknown(name);
    if is_unknown && !unknown::admit_and_report(export.unwrap_or(name)) {
        return Resolution::Refused;
    }
    Resolution::Kept
}

/// Whether a name is that of a hooked function in any version.
fn is_version_of_a_hook(name: &[u8]) -> bool {
    let base = names::base(name);
    CUDA.hooks().any(|hook| names::base(hook.name.as_bytes()) == base)
}

/// The hook that a name means for a version of CUDA; the newest version of a function that is not newer.
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
            "" => hook(name, "_ptsz"),
            "_v2" => hook(name, "_v2_ptsz"),
            _ => None,
        };
        if own.is_some() {
            return own;
        }
    }
    hook(name, ending)
}

/// Puts the replace_answer where the program wants it.
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
