//! Relative links in Markdown lead to files that exist.

use std::path::Path;

use anyhow::bail;

use super::{Finding, SourceFile};

pub(super) fn check(root: &Path, files: &[SourceFile]) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut pages = 0;
    for page in files.iter().filter(|file| file.has_extension(&["md"])) {
        pages += 1;
        let folder = page.path.parent().unwrap_or(Path::new(""));
        for target in targets(&page.text) {
            if !root.join(folder).join(target).exists() {
                findings.push(Finding {
                    place: page.name(),
                    problem: format!("links to {target}, which is not there"),
                });
            }
        }
    }
    if pages == 0 {
        bail!("found no Markdown pages");
    }
    Ok(findings)
}

/// Targets of `[text](target)` that are paths: no scheme; the fragment is cut off.
pub(super) fn targets(text: &str) -> Vec<&str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.split('#').next().unwrap_or(target))
        .filter(|target| !target.is_empty() && !target.contains("://"))
        .collect()
}
