//! The mount namespace of a command: applies CDI edits as a container runtime does.

use std::fs;
use std::path::Path;

use anyhow::Context;
use octavo_cdi::Mount;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, mount_remount,
};
use rustix::thread::UnshareFlags;

use super::share::{OWN, StandaloneShare};

/// Moves this thread, and programs started from it later, into the mount namespace of a share.
pub(super) fn enter(share: &StandaloneShare) -> anyhow::Result<()> {
    #[expect(
        deprecated,
        reason = "what may be unsafe of it is sharing no files; mounts are all that is not shared"
    )]
    rustix::thread::unshare(UnshareFlags::NEWNS)
        .context("making a mount namespace: this needs root")?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .context("keeping mounts within the namespace")?;
    fs::create_dir_all(OWN).with_context(|| format!("making {OWN}"))?;
    mount("tmpfs", OWN, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=755")
        .with_context(|| format!("mounting a file system in memory on {OWN}"))?;
    bind(&Mount::read_only(&share.folder, &share.seen))?;
    for mount in &share.edits.mounts {
        bind(mount)?;
    }
    let hooks: Vec<Vec<String>> = share.edits.hooks.iter().map(|hook| hook.args.clone()).collect();
    for args in &hooks {
        octavo_hook::run_here(&hooks, args)?;
    }
    Ok(())
}

/// Creates one mount, and its mount point if missing.
fn bind(wanted: &Mount) -> anyhow::Result<()> {
    let (from, to) = (Path::new(&wanted.host_path), Path::new(&wanted.container_path));
    let context = || format!("mounting {} on {}", from.display(), to.display());
    if !to.exists() {
        let parent = to.parent().unwrap_or(Path::new("/"));
        let made = fs::create_dir_all(if from.is_dir() { to } else { parent });
        made.with_context(context)?;
        if !from.is_dir() {
            fs::File::create(to).with_context(context)?;
        }
    }
    mount_bind(from, to).with_context(context)?;
    if wanted.options.iter().any(|option| option == "ro") {
        let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        mount_remount(to, flags, c"").with_context(context)?;
    }
    Ok(())
}
