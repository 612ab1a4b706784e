//! Location of this copy of a simulated library, and of its machine.

use std::ffi::{CStr, OsStr, c_void};
use std::fs::OpenOptions;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Folder of the machine if it is not beside the library, as when only the library is mounted into
/// a container.
pub(crate) const CONTAINER_FOLDER: &str = "/run/octavo-simulator";

/// Folder of the device nodes of IMEX channels.
const CHANNELS: &str = "nvidia-caps-imex-channels";

/// Location of a machine.
#[derive(Clone, Debug)]
pub struct MachineLocation {
    /// Folder of its description.
    pub folder: PathBuf,
    /// The folder of device nodes, which say what of the machine a program may use: in a container `/dev`, beside the
    /// library the folder `dev` if there is one. `None`: a program may use everything.
    pub devices: Option<PathBuf>,
}

impl MachineLocation {
    /// Whether a program may open a device node. No driver stands behind the numbers of a simulated node, so a permitted
    /// one does not open either. But the device cgroup refuses others before that.
    pub fn may_open(&self, name: &str) -> bool {
        let Some(devices) = &self.devices else { return true };
        match OpenOptions::new().read(true).write(true).open(devices.join(name)) {
            Ok(_) => true,
            Err(error) => matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV)),
        }
    }

    /// Whether a program may open an IMEX channel.
    pub fn may_open_channel(&self, channel: u32) -> bool {
        self.may_open(&format!("{CHANNELS}/channel{channel}"))
    }

    /// The lowest IMEX channel that a program may open.
    pub fn lowest_channel(&self) -> Option<u32> {
        let Some(devices) = &self.devices else { return Some(0) };
        let nodes = std::fs::read_dir(devices.join(CHANNELS)).ok()?;
        let numbers = nodes.filter_map(|node| {
            node.ok()?.file_name().to_str()?.strip_prefix("channel")?.parse().ok()
        });
        numbers.filter(|channel| self.may_open_channel(*channel)).min()
    }
}

/// Finds the machine; `None` if there is no description.
pub fn machine() -> Option<MachineLocation> {
    let has_machine = |folder: &PathBuf| folder.join("machine.yaml").exists();
    let beside_library = library_folder().filter(has_machine);
    let beside_library = beside_library.map(|folder| {
        let devices = Some(folder.join("dev")).filter(|devices| devices.is_dir());
        MachineLocation { folder, devices }
    });
    beside_library.or_else(machine_of_container)
}

/// The machine that this container is on; `None` outside of a container.
pub fn machine_of_container() -> Option<MachineLocation> {
    let folder = PathBuf::from(CONTAINER_FOLDER);
    let has_machine = folder.join("machine.yaml").exists();
    has_machine.then(|| MachineLocation { folder, devices: Some("/dev".into()) })
}

/// The machine that this program is installed on: a container's, or beside the program in the driver's root.
pub fn machine_of_program() -> Option<MachineLocation> {
    machine_of_container().or_else(|| {
        let folder = std::env::current_exe().ok()?.parent()?.parent()?.join("lib64");
        let has_machine = folder.join("machine.yaml").exists();
        has_machine.then_some(MachineLocation { folder, devices: None })
    })
}

/// The folder of the library: this code is linked into it, so its own address identifies the file.
pub fn library_folder() -> Option<PathBuf> {
    let here = library_folder as fn() -> Option<PathBuf> as *const c_void;
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // JUSTIFICATION: only the dynamic linker knows the file of a copy.
    // SAFETY: `info` is writable and of the right type; any address may be queried.
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
