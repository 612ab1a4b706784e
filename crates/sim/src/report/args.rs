//! The command line of `octavo sim report`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use super::input::{Input, InputError};
use super::page;
use crate::cli::RunsArgs;
use crate::document::{self, DocumentError};
use crate::output::Report;
use crate::replay;
use crate::run::{Progress, SimError};
use crate::trace::Trace;

/// The text below the flags in the help.
pub const HELP: &str = "\
The page is self-contained: it loads no script, font or image.

Examples:
  octavo sim report --nodes nodes.csv --pods pods.csv --out report.html
  octavo sim report --nodes nodes.csv --pods pods.csv --policies octavo,fgd,best-fit --seeds 42..51 --out report.html
  octavo sim replay --nodes nodes.csv --pods pods.csv --format json --curve curve.csv > replay.json
  octavo sim report --from replay.json --curve curve.csv --out report.html";

/// Default policies: Octavo's and the two that come closest to it.
const POLICIES: &str = "octavo,fgd,best-fit";

/// Seeds if none is named: those of the published runs, which are enough for a spread.
const SEEDS: &str = "42..51";

/// Arguments of `octavo sim report`. Two of the flags shared with `octavo sim replay` have other
/// defaults: a page compares policies, and a replay is a first look.
#[derive(Args, Clone, Debug)]
#[command(
    group(clap::ArgGroup::new("source").required(true).args(["nodes", "from"])),
    mut_arg("policies", |arg| {
        arg.default_value(POLICIES).help("Policies; the first is drawn strongest")
    }),
    mut_arg("seeds", |arg| arg.default_value(SEEDS)),
)]
pub struct ReportArgs {
    /// List of nodes; runs the replay now
    #[arg(long, value_name = "FILE", requires = "pods")]
    pub nodes: Option<PathBuf>,
    /// List of pods
    #[arg(long, value_name = "FILE", requires = "nodes")]
    pub pods: Option<PathBuf>,
    /// Output of `octavo sim replay --format json`; no replay runs
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["nodes", "pods"])]
    pub from: Option<PathBuf>,
    /// Output of `octavo sim replay --curve` for the same replay
    #[arg(long, value_name = "FILE.csv", requires = "from")]
    pub curve: Option<PathBuf>,
    /// The runs, if they are run now.
    #[command(flatten)]
    pub runs: RunsArgs,
    /// Write the page here
    #[arg(long, value_name = "FILE.html")]
    pub out: PathBuf,
}

/// Why `octavo sim report` failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The replay failed.
    #[error(transparent)]
    Replay(Box<SimError>),
    /// An input is missing or invalid.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The page cannot be written.
    #[error(transparent)]
    Page(#[from] DocumentError),
    /// The page was made, but the validator found some runs wrong.
    #[error(
        "{wrong} of {runs} runs are invalid: the page marks them, and their figures are meaningless"
    )]
    Invalid {
        /// Number of invalid runs.
        wrong: usize,
        /// Number of all runs.
        runs: usize,
    },
    /// Standard output cannot be written.
    #[error("the summary could not be written")]
    Output(#[from] std::io::Error),
}

impl ReportError {
    /// Whether the command line is invalid, independent of the files' content.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Replay(error) => error.is_usage(),
            Self::Page(error) => error.is_usage(),
            Self::Input(_) | Self::Invalid { .. } | Self::Output(_) => false,
        }
    }
}

/// Runs `octavo sim report`; `command` is the command line, to be shown in the page.
pub fn run(
    args: &ReportArgs,
    command: String,
    observer: &impl Progress,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let input = match (&args.from, &args.nodes, &args.pods) {
        (Some(from), ..) => Input::read(from, args.curve.as_deref(), command)?,
        (None, Some(nodes), Some(pods)) => fresh(nodes, pods, &args.runs, command, observer)?,
        // The rules of the command line exclude this case.
        _ => return Ok(()),
    };
    document::write_text(&page(&input), &args.out)?;
    writeln!(
        out,
        "{}: {} runs of {} policies",
        args.out.display(),
        input.saved.runs.len(),
        input.saved.policies.len(),
    )?;
    let runs = input.saved.runs.len();
    match input.saved.runs.iter().filter(|run| !run.valid).count() {
        0 => Ok(()),
        wrong => Err(ReportError::Invalid { wrong, runs }),
    }
}

fn fresh(
    nodes: &Path,
    pods: &Path,
    runs: &RunsArgs,
    command: String,
    observer: &impl Progress,
) -> Result<Input, ReportError> {
    let failed = |error: SimError| ReportError::Replay(Box::new(error));
    let options = runs.options().map_err(|error| failed(error.into()))?;
    let trace = Trace::read(nodes, pods).map_err(|error| failed(error.into()))?;
    observer.begin(options.policies.len() * options.seeds.len());
    let outcome = replay::run(&trace, &options, observer);
    observer.end();
    let outcome = outcome.map_err(|error| failed(error.into()))?;
    let report = Report::of(&trace, nodes, pods, &options, &outcome);
    Ok(Input::of(&report, &outcome, command)?)
}
