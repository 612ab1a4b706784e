//! Lists the files of the chart, which the program carries.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let chart = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?)
        .join("../../charts/octavo")
        .canonicalize()?;
    println!("cargo::rerun-if-changed={}", chart.display());
    let mut files = Vec::new();
    collect(&chart, &mut files)?;
    files.sort();
    let mut text = String::from("&[\n");
    for file in files {
        let name = file.strip_prefix(&chart)?.display().to_string();
        writeln!(text, "    ({name:?}, include_str!({:?})),", file.display().to_string())?;
    }
    text.push(']');
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("chart_files.rs"), text)?;
    Ok(())
}

/// The chart's files, without those that only its own checks need.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if !path.ends_with("ci") {
                collect(&path, files)?;
            }
        } else {
            files.push(path);
        }
    }
    Ok(())
}
