//! The file system of a real node: the machine's, with some folders replaced.
//!
//! | path | content |
//! |---|---|
//! | `/run` | a tmpfs, empty at each start as after a boot |
//! | `/var/lib`, `/var/log` | the node's own folders in the state folder |
//! | `/run/nvidia` | the simulated hardware; `driver` is the driver's root, as with a driver container |
//! | `/run/octavo-lab/fabric` | the memory that nodes of a fabric share, one folder of all nodes of a machine |
//! | some files of `/proc/sys` | stand-ins, so that the kubelet changes no setting of the machine |

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use rustix::mount::{MountFlags, MountPropagationFlags};

use super::NodeContext;
use crate::nodes::{hardware, nodeset};

/// Folders of the machine that are hidden from a node.
pub(super) const REPLACED_DIRS: [&str; 3] = ["/run", "/var/lib", "/var/log"];

/// Folder of the config files of the node's programs.
pub(super) const ETC_DIR: &str = "/run/octavo-lab/etc";

/// Folder of the simulated hardware.
pub(super) const HARDWARE_DIR: &str = "/run/nvidia";

/// Root of the driver.
pub(super) const DRIVER_ROOT: &str = "/run/nvidia/driver";

/// Folder of the memory that nodes of a fabric share; empty on other nodes.
pub(super) const FABRIC_DIR: &str = "/run/octavo-lab/fabric";

/// Kernel settings that the kubelet requires, and writes if they differ. They apply to the whole
/// machine. The kubelet therefore reads the required values from stand-in files.
const KERNEL_SETTINGS: [(&str, &str); 6] = [
    ("kernel/keys/root_maxbytes", "25000000"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
];

/// Sets up the node's file system. Call it only in the node's own mount and pid namespaces.
pub(super) fn prepare(context: &NodeContext<'_>) -> anyhow::Result<()> {
    // Mounts of containers and volumes must propagate within the node, and not outside.
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::SHARED)
        .context("share mounts within the node")?;
    mount_tmpfs("/run")?;
    let folder = context.layout.real_node(&context.node.name);
    bind_mount(&folder.join("lib"), "/var/lib")?;
    bind_mount(&folder.join("log"), "/var/log")?;
    bind_mount(&folder.join("etc"), ETC_DIR)?;
    let hardware = context.layout.node(&context.node.name);
    // Mounted as a whole: the simulated driver locates its `/proc` files relative to itself.
    bind_mount(&hardware, HARDWARE_DIR)?;
    share_fabric(context)?;
    shadow_kernel_settings()
}

/// Mounts the memory of the node's fabric. Without one the folder is there, too: all containers mount it.
fn share_fabric(context: &NodeContext<'_>) -> anyhow::Result<()> {
    fs::create_dir_all(FABRIC_DIR).with_context(|| format!("make {FABRIC_DIR}"))?;
    let stem = nodeset::stem(&context.node.machine);
    let shared = stem.map(|stem| context.layout.machine(&stem).join(hardware::FABRIC_DIR));
    shared.filter(|shared| shared.is_dir()).map_or(Ok(()), |shared| bind_mount(&shared, FABRIC_DIR))
}

fn mount_tmpfs(path: impl AsRef<Path>) -> anyhow::Result<()> {
    let path = path.as_ref();
    rustix::mount::mount("tmpfs", path, "tmpfs", MountFlags::NOSUID, c"mode=755")
        .with_context(|| format!("mount a file system in memory on {}", path.display()))
}

fn bind_mount(from: &Path, to: &str) -> anyhow::Result<()> {
    let bound = fs::create_dir_all(to).and_then(|()| Ok(rustix::mount::mount_bind(from, to)?));
    bound.with_context(|| format!("mount {} on {to}", from.display()))
}

fn shadow_kernel_settings() -> anyhow::Result<()> {
    let folder = Path::new("/run/octavo-lab/sysctl");
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    for (name, value) in KERNEL_SETTINGS {
        let setting = Path::new("/proc/sys").join(name);
        if !setting.exists() {
            continue;
        }
        let stand_in = folder.join(name.replace('/', "."));
        fs::write(&stand_in, format!("{value}\n"))
            .and_then(|()| Ok(rustix::mount::mount_bind(&stand_in, &setting)?))
            .with_context(|| format!("protect {} from changes", setting.display()))?;
    }
    Ok(())
}
