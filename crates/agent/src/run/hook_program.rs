//! The program of CDI hooks: put on the host, and tried there.
//!
//! A container runtime runs it on the host, whose C library and mount options are not the agent's. A node on which it
//! does not run would take pods whose containers never start.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use octavo_embedded::HOOK;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use super::node::NodeAgent;
use crate::claims::Claims;

/// Time in which the program must print its version.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay before a program that is being written is run again.
const BUSY_DELAY: Duration = Duration::from_millis(20);

impl NodeAgent {
    /// Installs the program, with retries. Until it runs, the agent is not ready and refuses claims.
    pub(super) async fn install_hook(&self, claims: &Claims) {
        let check = self.check("hook", "the program of the CDI hooks was not tried yet");
        let path = &self.config.hook_path_seen;
        let attempt = || async {
            let result = install(path).await.map_err(|error| format!("{error:#}"));
            claims.set_hook_problem(result.as_ref().err().cloned());
            result
        };
        self.until_ok(&check, attempt).await;
    }
}

/// Writes the program where it is missing or another, and runs it. Hooks that are this program need neither.
async fn install(path: &Path) -> anyhow::Result<()> {
    if std::env::current_exe().is_ok_and(|own| own == path) {
        return Ok(());
    }
    let target = path.to_owned();
    tokio::task::spawn_blocking(move || write(&target)).await??;
    let run = timeout(TRIAL_TIMEOUT, version(path));
    let output = run
        .await
        .with_context(|| format!("{} does not answer within {TRIAL_TIMEOUT:?}", path.display()))?
        .with_context(|| {
            format!("cannot run {}: choose a folder that allows it (hookDir)", path.display())
        })?;
    ensure!(output.status.success(), "{} fails: {}", path.display(), output.status);
    Ok(())
}

/// Removes the program, unless it is this one.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    if std::env::current_exe().is_ok_and(|own| own == path) {
        return Ok(());
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Runs the program. Another thread's child may for a moment hold the descriptor by which it was written.
async fn version(path: &Path) -> io::Result<Output> {
    loop {
        let mut program = Command::new(path);
        program.arg("--version").env_clear().stdin(Stdio::null()).kill_on_drop(true);
        match program.output().await {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                sleep(BUSY_DELAY).await;
            }
            result => return result,
        }
    }
}

/// Replaces the program atomically, if it is another. A hook that starts meanwhile runs the old or the new one.
fn write(path: &Path) -> anyhow::Result<()> {
    let is_same = fs::read(path).is_ok_and(|found| found == HOOK)
        && fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o111 == 0o111);
    if is_same {
        return Ok(());
    }
    let next = path.with_extension("next");
    let written = (|| -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder)?;
        let mut to = File::create(&next)?;
        to.write_all(HOOK)?;
        to.set_permissions(Permissions::from_mode(0o755))?;
        to.sync_all()?;
        drop(to);
        fs::rename(&next, path)?;
        File::open(folder)?.sync_all()
    })();
    if written.is_err() {
        // The failed copy has no use. An error while removing it is harmless.
        let _ = fs::remove_file(&next);
    }
    written.with_context(|| {
        format!("cannot write {}: choose a folder that can be written (hookDir)", path.display())
    })
}

#[cfg(test)]
mod tests;
