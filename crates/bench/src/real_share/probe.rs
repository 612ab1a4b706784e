//! Results of `octavo probe` in the container.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, ensure};
use octavo_figure::{Figure, Goal};
use serde_json::Value;

use super::container::Container;
use super::mib;

/// Runs it: the memory that is shown, and the ways that lead past the share's.
pub(super) fn run(
    octavo: &Path,
    container: &Container,
    memory: u64,
) -> anyhow::Result<Vec<Figure>> {
    let args = ["probe", "--no-timing", "-o", "json"].map(OsString::from);
    let mut command = container.command(octavo.as_os_str(), &args)?;
    let output = command.stderr(Stdio::inherit()).output().context("run the probe")?;
    let found: Value = serde_json::from_slice(&output.stdout).with_context(|| {
        let output_text = String::from_utf8_lossy(&output.stdout);
        format!("the probe ended with {} and printed {output_text:?}", output.status)
    })?;
    let bytes = |path: &str| found.pointer(path).and_then(Value::as_u64).map_or(0.0, mib);
    let cuda = bytes("/gpus/0/limitBytes");
    let nvml = bytes("/seen/gpus/0/management/totalBytes");
    let goal = Goal::Exactly(mib(memory));
    Ok(vec![
        Figure::new("memory of the GPU as CUDA shows it", "MiB", &[cuda], goal)?,
        Figure::new("the same as NVML shows it", "MiB", &[nvml], goal)?,
        Figure::new(
            "allocation paths past the limit",
            "paths",
            &[past(&found)?],
            Goal::Exactly(0.0),
        )?,
    ])
}

/// How many ways lead past the limit; fails where none was found to hold.
fn past(found: &Value) -> anyhow::Result<f64> {
    let findings = found.pointer("/gpus/0/findings").and_then(Value::as_array);
    let findings = findings.context("the probe tried nothing")?;
    let with =
        |verdict: &str| findings.iter().filter(|finding| finding["verdict"] == verdict).count();
    ensure!(with("holds") > 0, "no allocation path holds: {findings:?}");
    Ok(f64::from(u32::try_from(with("passes"))?))
}
