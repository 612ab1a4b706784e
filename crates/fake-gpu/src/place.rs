//! Where this copy of a simulated library lies, and where its machine is.

use std::ffi::{CStr, OsStr, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where the machine is if it is not beside the library, which alone is mounted into containers.
const ELSEWHERE: &str = "/run/octavo-simulator";

/// Where a machine is.
#[derive(Clone, Debug)]
pub struct Place {
    /// The folder of its description.
    pub folder: PathBuf,
    /// Whether that is the one for containers, and not the library's own.
    pub is_elsewhere: bool,
}

/// Where the machine is; `None` where there is no description anywhere.
pub fn machine() -> Option<Place> {
    let has_machine = |folder: &PathBuf| folder.join("machine.yaml").exists();
    let beside = folder().filter(has_machine);
    let beside = beside.map(|folder| Place { folder, is_elsewhere: false });
    beside.or_else(|| {
        let elsewhere = Some(PathBuf::from(ELSEWHERE)).filter(has_machine);
        elsewhere.map(|folder| Place { folder, is_elsewhere: true })
    })
}

/// The folder of the file that this very code was loaded from: the library's, since this code is
/// linked into it.
pub fn folder() -> Option<PathBuf> {
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
