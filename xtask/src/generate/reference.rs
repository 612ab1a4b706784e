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

/// Builds `octavo` and asks it for its references. It is built with the features of the whole workspace, as tests have it: those of one
/// package are fewer, and would compile most crates once more.
pub(super) fn generate(root: &Path) -> anyhow::Result<Vec<Generated>> {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--workspace", "--bin", "octavo"])
        .current_dir(root)
        .status()
        .context("build octavo")?;
    if !built.success() {
        bail!("octavo could not be built");
    }
    // Both programs lie in the folder of the profile.
    let octavo = std::env::current_exe().context("find this program")?.with_file_name("octavo");
    REFERENCES.iter().map(|(what, path)| one(&octavo, what, path)).collect()
}

fn one(octavo: &Path, what: &str, path: &str) -> anyhow::Result<Generated> {
    let output = Command::new(octavo)
        .args(["generate", what])
        .output()
        .with_context(|| format!("run {}", octavo.display()))?;
    if !output.status.success() {
        bail!("octavo generate {what}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let content = String::from_utf8(output.stdout).context("the reference is no UTF-8")?;
    Ok(Generated { path: path.into(), content })
}
