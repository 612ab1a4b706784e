//! Files are short, named for their idea, and finished.

use std::path::Path;

use anyhow::bail;

use super::{Finding, SourceFile};

/// Lines over which a file holds more than one idea.
const LONGEST: usize = 500;

/// Tables of data may be longer, each with its reason.
const LONG_TABLES: [(&str, &str); 0] = [];

/// Names that say nothing of what is inside.
const VAGUE: [&str; 6] = ["util", "utils", "helper", "helpers", "common", "misc"];

/// A test that waits for time instead of a condition is slow and fails on a busy machine.
const SLEEP: &str = concat!("thread::sl", "eep");

/// Marks of unfinished or skipped work.
const UNFINISHED: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("#[ig", "nore"),
];

pub(super) fn check(_: &Path, files: &[SourceFile]) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let code = |file: &&SourceFile| {
        file.has_extension(&["rs", "go", "ts", "svelte"]) && !file.is_generated()
    };
    if !files.iter().any(|file| code(&file)) {
        bail!("found no source files");
    }
    for file in files.iter().filter(code) {
        let name = file.name();
        let mut complain =
            |problem: String| findings.push(Finding { place: name.clone(), problem });
        let lines = file.text.lines().count();
        if lines > LONGEST && !LONG_TABLES.iter().any(|(table, _)| *table == name) {
            complain(format!("has {lines} lines, more than {LONGEST}: split it by idea"));
        }
        let stem = file.path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        if stem.as_deref().is_some_and(|stem| VAGUE.contains(&stem)) {
            complain("is named for nothing: name what it does".into());
        }
        if name.ends_with("/mod.rs") {
            complain("use foo.rs beside foo/, not mod.rs".into());
        }
        for mark in UNFINISHED {
            if let Some(line) = file.text.lines().position(|line| line.contains(mark)) {
                complain(format!("line {}: `{mark}`: finish it or say it elsewhere", line + 1));
            }
        }
        if name.contains("tests") && file.text.contains(SLEEP) {
            complain("sleeps in a test: wait for a condition with a deadline".into());
        }
        if name.ends_with("src/lib.rs") && !file.text.starts_with("//! ") {
            complain("must begin with a line that says what the crate is".into());
        }
    }
    Ok(findings)
}
