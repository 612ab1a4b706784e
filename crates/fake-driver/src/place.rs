//! Where this copy of the library lies, and where its machine is.

use std::ffi::{CStr, OsStr, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where the machine is if it is not beside the library, which alone is mounted into containers.
const ELSEWHERE: &str = "/run/octavo-simulator";

/// The folder of the machine's description; the library's own where there is none anywhere.
pub(crate) fn machine() -> Option<PathBuf> {
    let has_machine = |folder: &Path| folder.join("machine.yaml").exists();
    let own = folder()?;
    let elsewhere = Path::new(ELSEWHERE);
    let is_elsewhere = !has_machine(&own) && has_machine(elsewhere);
    Some(if is_elsewhere { elsewhere.to_owned() } else { own })
}

/// The folder of the file that this very code was loaded from.
fn folder() -> Option<PathBuf> {
    let here = folder as fn() -> Option<PathBuf> as *const c_void;
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // JUSTIFICATION: only the dynamic linker knows which file a copy came from.
    // SAFETY: `info` is writable and of the right type; any address may be asked about.
    let found = unsafe { libc::dladdr(here, info.as_mut_ptr()) };
    if found == 0 {
        return None;
    }
    // SAFETY: `dladdr` fills the structure when it returns non-zero.
    let name = unsafe { info.assume_init() }.dli_fname;
    if name.is_null() {
        return None;
    }
    // SAFETY: the linker's name of a loaded object ends in zero and lives as long as the object,
    // which cannot be unloaded while its code runs.
    let name = unsafe { CStr::from_ptr(name) };
    let folder = Path::new(OsStr::from_bytes(name.to_bytes())).parent()?;
    // The linker may have been given a relative path.
    folder.canonicalize().ok()
}
