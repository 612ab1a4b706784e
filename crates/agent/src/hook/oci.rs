//! The container's state, as the OCI runtime specification has it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;

/// State that a runtime gives to its hooks.
#[derive(Deserialize)]
struct State {
    bundle: PathBuf,
}

/// A bundle's `config.json`.
#[derive(Deserialize)]
struct Config {
    root: Root,
}

/// Root of a container.
#[derive(Deserialize)]
struct Root {
    path: PathBuf,
}

/// The container's root on the host, from the state that the runtime gives.
pub(super) fn root_of(state: &str) -> anyhow::Result<PathBuf> {
    let state: State = serde_json::from_str(state)
        .context("the container's state on standard input is not JSON with a bundle")?;
    let path = state.bundle.join("config.json");
    let config = std::fs::read_to_string(&path)
        .with_context(|| format!("reading the container's config {}", path.display()))?;
    let config: Config = serde_json::from_str(&config)
        .with_context(|| format!("the container's config {} has no root", path.display()))?;
    // A relative root is relative to the bundle; joining an absolute one yields it alone.
    let root = state.bundle.join(config.root.path);
    anyhow::ensure!(
        root != Path::new("/"),
        "the container's root is the node's own: nothing is changed there"
    );
    Ok(root)
}
