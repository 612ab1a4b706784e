//! The repository speaks of Octavo alone and names no machine it was written on.

use std::path::Path;

use anyhow::bail;

use super::{Finding, SourceFile};

/// What must not stand in any file. Built from parts so that this file passes its own check.
const FORBIDDEN: [(&str, &str); 5] = [
    (concat!("/wo", "rk/"), "an absolute path of one machine"),
    (concat!("/ro", "ot/"), "an absolute path of one machine"),
    (concat!(".lib", "rary/"), "a path of one workplace"),
    (concat!("arti", "factory"), "a registry's host"),
    (concat!("proxy.go", "lang.org"), "a registry's host"),
];

pub(super) fn check(_: &Path, files: &[SourceFile]) -> anyhow::Result<Vec<Finding>> {
    if files.is_empty() {
        bail!("found no files");
    }
    let mut findings = Vec::new();
    for file in files {
        for (index, line) in file.text.lines().enumerate() {
            for (word, what) in FORBIDDEN {
                if line.contains(word) {
                    findings.push(Finding {
                        place: format!("{}:{}", file.name(), index + 1),
                        problem: format!("`{word}` is {what}"),
                    });
                }
            }
        }
    }
    Ok(findings)
}
