//! The chart that the program carries.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use tempfile::TempDir;

/// Path and text of each file.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/chart_files.rs"));

/// The chart that helm is given.
#[derive(Debug)]
pub(crate) enum Chart {
    /// Files that go with the value.
    Own(TempDir),
    /// As the user names it.
    Named(String),
}

impl Chart {
    /// The named chart, or else a copy of the program's own.
    ///
    /// # Errors
    ///
    /// The copy cannot be written.
    pub(crate) fn new(named: Option<&str>) -> anyhow::Result<Self> {
        if let Some(named) = named {
            return Ok(Self::Named(named.to_owned()));
        }
        let folder = tempfile::Builder::new().prefix("octavo-chart").tempdir();
        let folder = folder.context("no folder for the chart can be made")?;
        for (name, text) in FILES {
            write(&folder.path().join(name), text)
                .with_context(|| format!("the chart's file {name} cannot be written"))?;
        }
        Ok(Self::Own(folder))
    }

    /// As helm takes it.
    pub(crate) fn argument(&self) -> String {
        match self {
            Self::Own(folder) => folder.path().display().to_string(),
            Self::Named(name) => name.clone(),
        }
    }
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_carries_the_whole_chart() {
        let chart = Chart::new(None).unwrap();
        let folder = chart.argument();
        let folder = Path::new(&folder);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/octavo");
        for name in [
            "Chart.yaml",
            "values.yaml",
            "values.schema.json",
            "templates/crds.yaml",
            "templates/agent/daemonset.yaml",
        ] {
            let carried = fs::read_to_string(folder.join(name)).unwrap();
            assert_eq!(carried, fs::read_to_string(source.join(name)).unwrap(), "{name}");
        }
        assert!(!folder.join("ci").exists());
    }
}
