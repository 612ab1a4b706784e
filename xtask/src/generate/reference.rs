//! The reference of the command line, as the binary itself describes it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use super::Generated;

/// Builds `octavo` and asks it for its reference.
pub(super) fn generate(root: &Path) -> anyhow::Result<Generated> {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--locked", "--package", "octavo", "--"])
        .args(["generate", "cli-reference"])
        .current_dir(root)
        .output()
        .context("run octavo")?;
    if !output.status.success() {
        bail!("octavo generate cli-reference: {}", String::from_utf8_lossy(&output.stderr));
    }
    let content = String::from_utf8(output.stdout).context("the reference is no UTF-8")?;
    Ok(Generated { path: "docs/reference/cli.md".into(), content })
}
