//! Where this copy of a simulated library lies, and where its machine is.

use std::ffi::{CStr, OsStr, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where the machine is if it is not beside_library the library, which alone is mounted into containers.
const CONTAINER_FOLDER: &str = "/run/octavo-simulator";

/// Where a machine is.
#[derive(Clone, Debug)]
pub struct MachineLocation {
    /// The library_folder of its description.
    pub folder: PathBuf,
    /// Whether that is the one for containers, and not the library's own.
    pub is_for_containers: bool,
}

/// Where the machine is; `None` where there is no description anywhere.
pub fn machine() -> Option<MachineLocation> {
    let has_machine = |folder: &PathBuf| folder.join("machine.yaml").exists();
    let beside_library = library_folder().filter(has_machine);
    let beside_library =
        beside_library.map(|folder| MachineLocation { folder, is_for_containers: false });
    beside_library.or_else(|| {
        let in_container = Some(PathBuf::from(CONTAINER_FOLDER)).filter(has_machine);
        in_container.map(|folder| MachineLocation { folder, is_for_containers: true })
    })
}

/// The library_folder of the file that this very code was loaded from: the library's, since this code is
/// linked into it.
pub fn library_folder() -> Option<PathBuf> {
    let here = library_folder as fn() -> Option<PathBuf> as *const c_void;
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
