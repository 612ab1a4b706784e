//! Runs system commands.

use std::process::Command;

use anyhow::{Context as _, bail};

/// Folders of system commands. The user's own `PATH` often lacks `sbin`.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A system command, without the parts of the user's environment that could change its output.
pub(super) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", PATH).env("LC_ALL", "C").stdin(std::process::Stdio::null());
    command
}

/// Runs a command to its end and returns its standard output. An error includes its standard error.
pub(super) fn run(program: &str, args: &[&str]) -> anyhow::Result<String> {
    let output = command(program)
        .args(args)
        .output()
        .with_context(|| format!("start {program}, which must be on {PATH}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{program} {}` failed ({}): {}", args.join(" "), output.status, stderr.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
