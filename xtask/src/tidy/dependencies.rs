//! Every outside crate that the workspace names has its reason in docs/dependencies.md.

use std::path::Path;

use anyhow::{Context, bail};

use super::{Finding, SourceFile};

pub(super) fn check(root: &Path, _: &[SourceFile]) -> anyhow::Result<Vec<Finding>> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).context("read Cargo.toml")?;
    let reasons = std::fs::read_to_string(root.join("docs/dependencies.md"))
        .context("read docs/dependencies.md")?;
    let names = workspace_dependencies(&manifest);
    if names.is_empty() {
        bail!("Cargo.toml names no workspace dependencies");
    }
    let explained = explained(&reasons);
    Ok(names
        .into_iter()
        .filter(|name| !name.starts_with("octavo-") && !explained.contains(name))
        .map(|name| Finding {
            place: "docs/dependencies.md".into(),
            problem: format!("does not say why `{name}` is in"),
        })
        .collect())
}

/// Names under `[workspace.dependencies]`.
pub(super) fn workspace_dependencies(manifest: &str) -> Vec<String> {
    manifest
        .lines()
        .skip_while(|line| line.trim() != "[workspace.dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name.trim().to_owned())
        .collect()
}

/// Names in the first column of the page's table.
pub(super) fn explained(page: &str) -> Vec<String> {
    page.lines()
        .filter_map(|line| line.strip_prefix("| "))
        .filter_map(|row| row.split('|').next())
        .flat_map(|cell| cell.split([',', ' ']))
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}
