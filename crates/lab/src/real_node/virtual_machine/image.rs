//! The disk of virtual machines: Debian with what a node needs, made once into the cache.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use super::guest;
use crate::real_node::tool;

/// Names of the image's files.
pub(super) const DISK: &str = "disk.img";
pub(super) const KERNEL: &str = "vmlinuz";
pub(super) const INITRD: &str = "initrd.img";

/// Debian's release.
const SUITE: &str = "trixie";

/// Debian packages: an init, the kernel for clouds, and the programs that a node's containerd and
/// kubelet start.
const PACKAGES: &str = "systemd-sysv,dbus,udev,kmod,linux-image-cloud-amd64,apparmor,runc,\
                        containernetworking-plugins,iproute2,iptables,procps,ca-certificates";

/// Size of the disk. Blocks that nothing was written to take no space.
const DISK_BYTES: u64 = 8 << 30;

/// The folder with the image, below `cache`. It is made if the cache lacks it.
pub(crate) fn find(cache: &Path) -> anyhow::Result<PathBuf> {
    let recipe = [SUITE, PACKAGES, guest::UNIT, guest::PROGRAM].join("\n");
    let digest = Sha256::digest(recipe.as_bytes());
    let digest =
        digest.iter().take(8).fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let folder = cache.join("virtual-machine");
    let image = folder.join(digest);
    if image.exists() {
        return Ok(image);
    }
    let work = folder.join(format!("next.{}", std::process::id()));
    fs::create_dir_all(&work).with_context(|| format!("make {}", work.display()))?;
    let made = make(&work).context("make the image of the virtual machines").and_then(|()| {
        match fs::rename(&work, &image) {
            // Another process was faster.
            Err(_) if image.exists() => Ok(()),
            renamed => renamed.with_context(|| format!("write {}", image.display())),
        }
    });
    let _ = fs::remove_dir_all(&work);
    made.map(|()| image)
}

fn make(folder: &Path) -> anyhow::Result<()> {
    let root = folder.join("root");
    let include = format!("--include={PACKAGES}");
    tool::run(
        "mmdebstrap",
        &["--quiet", "--variant=minbase", &include, SUITE, &root.to_string_lossy()],
    )?;
    let system = root.join("etc/systemd/system");
    let write = |path: PathBuf, text: &str| {
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    };
    write(root.join("usr/local/sbin/octavo-node"), guest::PROGRAM)?;
    write(system.join("octavo-node.service"), guest::UNIT)?;
    let wants = system.join("multi-user.target.wants");
    fs::create_dir_all(&wants)
        .and_then(|()| symlink("../octavo-node.service", wants.join("octavo-node.service")))
        .context("enable the node's unit")?;
    // Package updates and the like: no network leads to them, and they take time from the node.
    let timers = system.join("timers.target.wants");
    if timers.exists() {
        fs::remove_dir_all(timers).context("disable Debian's timers")?;
    }
    for name in [KERNEL, INITRD] {
        fs::copy(root.join(name), folder.join(name)).with_context(|| format!("copy {name}"))?;
    }
    let disk = folder.join(DISK);
    fs::File::create(&disk).and_then(|file| file.set_len(DISK_BYTES)).context("make the disk")?;
    tool::run(
        "mke2fs",
        &["-q", "-t", "ext4", "-d", &root.to_string_lossy(), &disk.to_string_lossy()],
    )?;
    fs::remove_dir_all(&root).with_context(|| format!("remove {}", root.display()))
}
