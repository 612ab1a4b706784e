//! The command line of `octavo sim report`.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use super::input::{Input, InputError};
use super::page;
use crate::cli::{Format, Inflate, ReplayArgs, Seeds};
use crate::document::{self, DocumentError};
use crate::output::Report;
use crate::replay::{self, Order, Policy, Popularity};
use crate::run::{self, Progress, SimError};
use crate::trace::Trace;

/// What stands below the flags.
pub const HELP: &str = "\
The page needs nothing but itself: no script, no font, nothing from elsewhere.

Examples:
  octavo sim report --nodes nodes.csv --pods pods.csv --out report.html
  octavo sim report --nodes nodes.csv --pods pods.csv --policies octavo,fgd,best-fit --seeds 42..51 --out report.html
  octavo sim replay --nodes nodes.csv --pods pods.csv --format json --curve curve.csv > replay.json
  octavo sim report --from replay.json --curve curve.csv --out report.html";

/// Arguments of `octavo sim report`.
#[derive(Args, Clone, Debug)]
#[command(group(clap::ArgGroup::new("source").required(true).args(["nodes", "from"])))]
pub struct ReportArgs {
    /// List of nodes; runs the replay now
    #[arg(long, value_name = "FILE", requires = "pods")]
    pub nodes: Option<PathBuf>,
    /// List of pods
    #[arg(long, value_name = "FILE", requires = "nodes")]
    pub pods: Option<PathBuf>,
    /// What `octavo sim replay --format json` wrote; runs nothing
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["nodes", "pods"])]
    pub from: Option<PathBuf>,
    /// What `octavo sim replay --curve` of the same replay wrote
    #[arg(long, value_name = "FILE.csv", requires = "from")]
    pub curve: Option<PathBuf>,
    /// Policies; the first is drawn strongest
    #[arg(
        long = "policy",
        visible_alias = "policies",
        value_name = "NAME,...",
        value_enum,
        value_delimiter = ',',
        default_value = "octavo,fgd,best-fit"
    )]
    pub policies: Vec<Policy>,
    /// What octavo knows of the pods that will come
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub popularity: Popularity,
    /// Seed, or a range of seeds with both ends, as 42..51; may be repeated
    #[arg(
        long = "seed",
        visible_alias = "seeds",
        value_name = "N|A..B",
        value_delimiter = ',',
        allow_hyphen_values = true,
        default_value = "42..51"
    )]
    pub seeds: Vec<Seeds>,
    /// Demand over capacity that a shuffled list is brought to, or `none` [default: 1.3 when
    /// shuffled]
    #[arg(long, value_name = "FACTOR")]
    pub inflate: Option<Inflate>,
    /// Order in which pods come [default: shuffled, or created with --departures]
    #[arg(long, value_name = "ORDER", value_enum)]
    pub order: Option<Order>,
    /// Let pods leave at their times of deletion
    #[arg(long)]
    pub departures: bool,
    /// Runs at once [default: one for each CPU]
    #[arg(long, short, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Write the page here
    #[arg(long, value_name = "FILE.html")]
    pub out: PathBuf,
    /// Draw no progress bar
    #[arg(long, short)]
    pub quiet: bool,
}

/// Why `octavo sim report` failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The replay failed.
    #[error(transparent)]
    Replay(Box<SimError>),
    /// What it is made from is not there.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The page cannot be written.
    #[error(transparent)]
    Page(#[from] DocumentError),
    /// The page was made, but the validator found some runs wrong.
    #[error(
        "{wrong} of {runs} runs are not valid: the page marks them, and their figures mean nothing"
    )]
    Invalid {
        /// Runs that are not valid.
        wrong: usize,
        /// All runs.
        runs: usize,
    },
    /// Standard output cannot be written.
    #[error("the outcome could not be told")]
    Output(#[from] std::io::Error),
}

impl ReportArgs {
    /// The replay that is asked for.
    fn replay(&self, nodes: PathBuf, pods: PathBuf) -> ReplayArgs {
        ReplayArgs {
            nodes,
            pods,
            policies: self.policies.clone(),
            popularity: self.popularity,
            seeds: self.seeds.clone(),
            inflate: self.inflate,
            order: self.order,
            departures: self.departures,
            jobs: self.jobs,
            format: Format::Json,
            curve: None,
            placements: None,
            quiet: self.quiet,
        }
    }
}

/// Runs `octavo sim report`; `command` is the command line, to be shown in the page.
pub fn run(
    args: &ReportArgs,
    command: String,
    watch: &impl Progress,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let input = match (&args.from, &args.nodes, &args.pods) {
        (Some(from), ..) => Input::read(from, args.curve.as_deref(), command)?,
        (None, Some(nodes), Some(pods)) => {
            let replay = args.replay(nodes.clone(), pods.clone());
            fresh(&replay, command, watch)?
        }
        // The command line's own rules do not let this through.
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

fn fresh(args: &ReplayArgs, command: String, watch: &impl Progress) -> Result<Input, ReportError> {
    let failed = |error: SimError| ReportError::Replay(Box::new(error));
    let options = run::options(args).map_err(failed)?;
    let trace = Trace::read(&args.nodes, &args.pods).map_err(|error| failed(error.into()))?;
    watch.begin(options.policies.len() * options.seeds.len());
    let outcome = replay::run(&trace, &options, watch);
    watch.end();
    let outcome = outcome.map_err(|error| failed(error.into()))?;
    let report = Report::of(&trace, &args.nodes, &args.pods, &options, &outcome);
    Ok(Input::of(&report, &outcome, command)?)
}
