//! Starts a program in a mount namespace of its own, with a folder as its `/dev/shm`: daemon and clients exchange files there, and
//! clients of one daemon must not see those of another.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, anyhow, ensure};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::process::{Signal, geteuid, getppid, set_parent_process_death_signal};
use rustix::thread::UnshareFlags;

use crate::args::EnterArgs;

/// Shared memory of a process.
const SHM: &str = "/dev/shm";

/// Becomes the program. It ends with its parent, by whatever its parent ends.
///
/// # Errors
///
/// The folder cannot be mounted, or the program cannot be started.
pub fn enter(args: &EnterArgs) -> anyhow::Result<()> {
    // A daemon that lives on would keep GPUs which the agent gives to others.
    set_parent_process_death_signal(Some(Signal::KILL)).context("ask for the parent's end")?;
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get());
    ensure!(parent == Some(args.parent), "the program that asked for the daemon has ended");
    match own_shm(&args.shm) {
        Ok(()) => {}
        // Without root: programs of one user, as in tests.
        Err(Errno::PERM) if !geteuid().is_root() => {
            tracing::warn!("no permission to mount: the daemon shares {SHM} with all programs");
        }
        Err(error) => {
            return Err(anyhow!(error))
                .with_context(|| format!("mount {} on {SHM}", args.shm.display()));
        }
    }
    let (program, rest) = args.program.split_first().context("no program is named")?;
    let error = Command::new(program).args(rest).exec();
    Err(error).with_context(|| format!("start {}", program.display()))
}

fn own_shm(folder: &Path) -> rustix::io::Result<()> {
    #[expect(
        deprecated,
        reason = "its danger is in shared file descriptors, which a mount namespace leaves alone"
    )]
    rustix::thread::unshare(UnshareFlags::NEWNS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount_bind(folder, SHM)
}
