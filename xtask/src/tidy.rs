//! `cargo xtask tidy`: what the compiler does not check about the workspace.
//!
//! Every check returns what is wrong as sentences; none stops at the first. A check that finds no
//! file to look at is itself an error, so that none can pass by looking nowhere.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

mod dependencies;
mod edges;
mod files;
mod links;
mod retired;
mod sentences;
mod words;

#[cfg(test)]
mod tests;

/// One thing that is wrong: where, and what to do.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    place: String,
    problem: String,
}

/// A file that git tracks, or would if it were added.
struct SourceFile {
    path: PathBuf,
    text: String,
}

/// A named check over all files of the repository.
type Check = (&'static str, fn(&Path, &[SourceFile]) -> anyhow::Result<Vec<Finding>>);

const CHECKS: [Check; 7] = [
    ("crates depend only on the crates they may", edges::check),
    ("outside crates are explained", dependencies::check),
    ("files are short and named for their idea", files::check),
    ("no words that do not belong here", words::check),
    ("retired words are gone", retired::check),
    ("sentences of the docs are short", sentences::check),
    ("links lead somewhere", links::check),
];

#[expect(clippy::print_stdout, reason = "the findings are the output")]
/// Runs every check and fails if any found something.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let files = source_files(root)?;
    let mut wrong = 0;
    for (name, check) in CHECKS {
        let mut findings = check(root, &files).with_context(|| format!("check: {name}"))?;
        findings.sort();
        println!("tidy: {name}: {}", if findings.is_empty() { "ok" } else { "NOT ok" });
        for Finding { place, problem } in &findings {
            println!("  {place}: {problem}");
        }
        wrong += findings.len();
    }
    if wrong > 0 {
        bail!("tidy found {wrong} things to mend: see above");
    }
    Ok(())
}

/// Text files of the repository: tracked ones and those that git does not ignore.
fn source_files(root: &Path) -> anyhow::Result<Vec<SourceFile>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("run git ls-files: tidy needs git and a checkout")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    }
    let mut files = Vec::new();
    for name in output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let path = PathBuf::from(String::from_utf8_lossy(name).into_owned());
        // A file that is deleted but still tracked, or that is no text, has nothing to check.
        if let Ok(text) = std::fs::read_to_string(root.join(&path)) {
            files.push(SourceFile { path, text });
        }
    }
    if files.is_empty() {
        bail!("git names no files under {}", root.display());
    }
    Ok(files)
}

impl SourceFile {
    fn name(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    fn has_extension(&self, extensions: &[&str]) -> bool {
        self.path.extension().is_some_and(|e| extensions.iter().any(|wanted| e == *wanted))
    }

    fn is_generated(&self) -> bool {
        self.path.components().any(|part| part.as_os_str() == "generated")
    }
}
