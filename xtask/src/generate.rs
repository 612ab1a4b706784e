//! `cargo xtask generate`: files that are made from others and checked in.
//!
//! They are checked in so that a build needs neither the generators nor their dependencies, and
//! so that a review sees what changes. `--check` writes nothing and fails if a file is not what
//! would be written.

mod conditions;
mod crds;
mod protobuf;
mod reference;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Arguments of `cargo xtask generate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Writes nothing; fails if a file differs from what would be written.
    #[arg(long)]
    check: bool,
}

/// A file as it should be.
struct Generated {
    /// Path from the repository's root.
    path: PathBuf,
    content: String,
}

/// Writes or checks all generated files.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let root = root()?;
    let mut stale = Vec::new();
    let mut files = protobuf::generate(root)?;
    files.extend(crds::generate()?);
    files.push(conditions::generate());
    files.extend(reference::generate(root)?);
    for file in files {
        let path = root.join(&file.path);
        if fs::read_to_string(&path).is_ok_and(|found| found == file.content) {
            continue;
        }
        if args.check {
            stale.push(file.path.display().to_string());
        } else {
            write(&path, &file.content)?;
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    bail!(
        "not what the generator writes: {}; run `cargo xtask generate` and commit the result \
         (never edit these files by hand)",
        stale.join(", ")
    );
}

fn write(path: &Path, content: &str) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// The repository's root: the folder above this package.
fn root() -> anyhow::Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the xtask package has no parent folder")
}
