//! The references that the binary itself writes: of its command line, of reasons and of metrics.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use super::Generated;

/// What `octavo generate` writes, and where it lies.
const REFERENCES: [(&str, &str); 5] = [
    ("cli-reference", "docs/reference/cli.md"),
    ("reasons", "docs/reference/reasons.md"),
    ("agent-metrics", "docs/reference/agent-metrics.md"),
    ("controller-metrics", "docs/reference/controller-metrics.md"),
    ("scheduler-metrics", "docs/reference/scheduler-metrics.md"),
];

/// Builds `octavo` and asks it for its references.
pub(super) fn generate(root: &Path) -> anyhow::Result<Vec<Generated>> {
    REFERENCES.iter().map(|(what, path)| one(root, what, path)).collect()
}

fn one(root: &Path, what: &str, path: &str) -> anyhow::Result<Generated> {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--locked", "--package", "octavo", "--", "generate", what])
        .current_dir(root)
        .output()
        .context("run octavo")?;
    if !output.status.success() {
        bail!("octavo generate {what}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let content = String::from_utf8(output.stdout).context("the reference is no UTF-8")?;
    Ok(Generated { path: path.into(), content })
}
