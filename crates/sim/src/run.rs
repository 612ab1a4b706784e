//! From arguments to files and lines.

mod error;
mod progress;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::cli::{Format, ReplayArgs, SimArgs, SimCommand};
use crate::output::{self, Report};
use crate::replay;
use crate::trace::Trace;
use crate::{faults, generate, report, whatif};

pub use error::SimError;
pub use progress::{Bar, Progress};

/// How a command ended, when it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimStatus {
    /// The command succeeded.
    Done,
    /// A requested gang does not fit.
    DoesNotFit,
}

/// Runs `octavo sim`. `command` is the command line as typed, for reports.
pub fn run(args: &SimArgs, command: String) -> Result<SimStatus, SimError> {
    let mut out = io::stdout().lock();
    match &args.command {
        SimCommand::Replay(args) => replay(args, &Bar::new(args.runs.quiet), &mut out)?,
        SimCommand::Report(args) => {
            report::args::run(args, command, &Bar::new(args.runs.quiet), &mut out)?;
        }
        SimCommand::Generate(args) => generate::args::run(args, &mut out)?,
        SimCommand::Whatif(args) => {
            if !whatif::args::run(args, &mut out)? {
                return Ok(SimStatus::DoesNotFit);
            }
        }
        SimCommand::Faults(args) => faults::args::run(args, &command, &mut out)?,
        SimCommand::Verify(args) => whatif::args::verify(args, &mut out)?,
    }
    Ok(SimStatus::Done)
}

/// Runs `octavo sim replay` and writes its report to `out`.
pub fn replay(
    args: &ReplayArgs,
    observer: &impl Progress,
    out: &mut dyn Write,
) -> Result<(), SimError> {
    let options = args.runs.options()?;
    let trace = Trace::read(&args.nodes, &args.pods)?;
    // Before hours of work, and not after: can the files be written?
    let curve = args.curve.as_deref().map(create).transpose()?;
    let placements = args.placements.as_deref().map(create).transpose()?;
    observer.begin(options.policies.len() * options.seeds.len());
    let outcome = replay::run(&trace, &options, observer);
    observer.end();
    let outcome = outcome?;
    if let Some((file, path)) = curve.zip(args.curve.as_deref()) {
        output::write_curves(&outcome, file).map_err(|source| SimError::file(path, source))?;
    }
    if let Some((file, path)) = placements.zip(args.placements.as_deref()) {
        output::write_placements(&outcome, file).map_err(|source| SimError::file(path, source))?;
    }
    let report = Report::of(&trace, &args.nodes, &args.pods, &options, &outcome);
    let text = match args.format {
        Format::Json => report.json()?,
        Format::Table => report.table(),
    };
    out.write_all(text.as_bytes())?;
    out.flush()?;
    check_valid(&outcome)
}

fn create(path: &Path) -> Result<File, SimError> {
    File::create(path).map_err(|source| SimError::file(path, source))
}

/// Fails the command for invalid runs, after all output.
fn check_valid(outcome: &replay::ReplayResults) -> Result<(), SimError> {
    let wrong: Vec<_> = outcome.runs.iter().filter(|run| !run.valid).collect();
    let Some(first) = wrong.first() else { return Ok(()) };
    Err(SimError::Invalid {
        wrong: wrong.len(),
        runs: outcome.runs.len(),
        policy: first.policy,
        seed: first.seed,
        violation: first.violation.clone().unwrap_or_default(),
    })
}
