//! Curves and placements as CSV.

use std::io::{self, BufWriter, Write};

use crate::replay::{ReplayResults, Run};

/// Writes the curve of each run: `policy,popularity,seed,time_s,wanted,allocated,fragmentation,
/// skipped`. Values are ratios of 1, or empty if the run has none.
pub fn write_curves(outcome: &ReplayResults, out: impl Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    writeln!(out, "policy,popularity,seed,time_s,wanted,allocated,fragmentation,skipped")?;
    for run in &outcome.runs {
        for point in &run.curve {
            let time = point.time.map(|time| time.to_string()).unwrap_or_default();
            writeln!(
                out,
                "{},{time},{:.6},{:.6},{:.6},{}",
                name(run),
                point.wanted,
                point.allocated,
                point.fragmentation,
                point.skipped
            )?;
        }
    }
    out.flush()
}

/// Writes where each pod of each run went: `policy,popularity,seed,pod,node,gpus,gpu_milli`. From
/// `pod` on these are the lines of which a run's hash is taken.
pub fn write_placements(outcome: &ReplayResults, out: impl Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    writeln!(out, "policy,popularity,seed,pod,node,gpus,gpu_milli")?;
    for run in &outcome.runs {
        for line in run.log.lines() {
            writeln!(out, "{},{line}", name(run))?;
        }
    }
    out.flush()
}

fn name(run: &Run) -> String {
    let popularity = run.popularity.map_or("", |popularity| popularity.name());
    format!("{},{popularity},{}", run.policy, run.seed)
}
