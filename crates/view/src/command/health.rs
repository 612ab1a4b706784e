//! The command `octavo health`.

mod order;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use octavo_api::node_health::{OrderWord, STATES};

use self::order::OrderArgs;
use super::{OutputArgs, colour, screen, table_options, write};
use crate::connect::{ConnectArgs, Connection};
use crate::error::ViewError;
use crate::health::{
    self, Checked, DeviceTextOptions, HealthError, Name, PoliciesReport, Selection,
};
use crate::output::{self, Format};

/// Stands for standard input.
const STDIN: &str = "-";

/// Options of `octavo health`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct HealthArgs {
    #[command(subcommand)]
    action: Option<HealthAction>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Args, Clone, Debug)]
struct ListArgs {
    /// Only these nodes
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,
    /// Also GPUs that are Healthy
    #[arg(long, conflicts_with = "states")]
    all: bool,
    /// Only GPUs in these states
    #[arg(
        long = "state",
        value_name = "STATE",
        value_delimiter = ',',
        ignore_case = true,
        value_parser = PossibleValuesParser::new(STATES)
    )]
    states: Vec<String>,
    /// Refresh every 2 seconds
    #[arg(short, long)]
    watch: bool,
    /// How it is written
    #[command(flatten)]
    form: OutputArgs,
    /// Which cluster
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Subcommand, Clone, Debug)]
enum HealthAction {
    /// Show all that is known of one GPU: why, what happens next, what a person can do
    #[command(after_help = "\
Examples:
  octavo health describe gpu-node-7/gpu-0
  octavo health describe gpu-node-7 0
  octavo health describe GPU-8f6a1d3c-3e1b-5d0a-9c55-0c7a8a1f2b10
  octavo health describe gpu-node-7/gpu-0 -o json    for programs; kind HealthDevice")]
    Describe(DescribeArgs),

    /// Take GPUs out of service until they are released
    #[command(after_help = "\
New pods do not come. Running pods stay, unless a HealthPolicy evicts them. No test and no remedy returns
such a GPU.

Exit codes: 0 carried out, 1 failed, 2 wrong usage, 3 the agent has not answered in time. The order stays then.

Examples:
  octavo health fence gpu-node-7 gpu-0 --reason 'fan is loud'
  octavo health fence gpu-node-7 --reason 'cooling works' --yes    all its GPUs")]
    Fence(OrderArgs),

    /// Return GPUs to service, without a test; retired ones after a test
    #[command(after_help = "\
Exit codes: 0 carried out, 1 failed, 2 wrong usage, 3 the agent has not answered in time. The order stays then.

Examples:
  octavo health release gpu-node-7 gpu-0 --reason 'fan was replaced'
  octavo health release gpu-node-7 0 1 --reason 'not the cause' --no-wait")]
    Release(OrderArgs),

    /// Take GPUs out of service for good, such as to replace the board
    #[command(after_help = "\
A release returns a retired GPU, after a test.

Exit codes: 0 carried out, 1 failed, 2 wrong usage, 3 the agent has not answered in time. The order stays then.

Examples:
  octavo health retire gpu-node-7 gpu-0 --reason 'RMA 4711'")]
    Retire(OrderArgs),

    /// Show the health policies: whether each is in use, its nodes and GPUs, whether remedies are stopped
    #[command(after_help = "\
Examples:
  octavo health policy
  octavo health policy h100 -o wide
  octavo health policy -o json    for programs; kind HealthPolicies")]
    Policy(PolicyArgs),

    /// Check a health policy in a file, without a cluster
    #[command(after_help = "\
Exit code 1 means that a policy is not valid, or that there is none.

Examples:
  octavo health check -f policy.yaml
  helm template . | octavo health check -f -")]
    Check(CheckArgs),
}

#[derive(Args, Clone, Debug)]
struct DescribeArgs {
    /// The GPU: `NODE/GPU` or `NODE GPU`, by name, index or UUID, or a UUID alone
    #[arg(value_name = "NODE/GPU", num_args = 1..=2, required = true)]
    gpu: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    output: Format,
    /// Which cluster
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Args, Clone, Debug)]
struct PolicyArgs {
    /// Only these policies
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// How it is written
    #[command(flatten)]
    form: OutputArgs,
    /// Which cluster
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Args, Clone, Debug)]
struct CheckArgs {
    /// The file, in YAML or JSON; - is standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
}

/// How `octavo health` ended, when it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthStatus {
    /// All was shown or carried out.
    Done,
    /// An agent has not carried out an order in time.
    Waits,
    /// A policy is not valid.
    Invalid,
}

/// Runs `octavo health`.
pub async fn run_health(args: &HealthArgs) -> Result<HealthStatus, ViewError> {
    match &args.action {
        None => list(&args.list).await?,
        Some(HealthAction::Describe(args)) => {
            let name = health::name(&args.gpu)?;
            let connection = args.connect.connect().await?;
            write(&describe(&connection, &name, args.output).await?)?;
        }
        Some(HealthAction::Fence(args)) => return order::run(args, OrderWord::Fence).await,
        Some(HealthAction::Release(args)) => return order::run(args, OrderWord::Release).await,
        Some(HealthAction::Retire(args)) => return order::run(args, OrderWord::Retire).await,
        Some(HealthAction::Policy(args)) => policies(args).await?,
        Some(HealthAction::Check(args)) => {
            let checked = check(&args.file)?;
            write(&(checked.lines.join("\n") + "\n"))?;
            return Ok(if checked.is_valid { HealthStatus::Done } else { HealthStatus::Invalid });
        }
    }
    Ok(HealthStatus::Done)
}

async fn list(args: &ListArgs) -> Result<(), ViewError> {
    let connection = args.connect.connect().await?;
    let selection = Selection {
        nodes: args.nodes.iter().cloned().collect(),
        states: args.states.iter().filter_map(|state| named(state)).collect(),
        all: args.all,
    };
    let read = async || {
        let facts = connection.within(health::read(&connection.client)).await?;
        let report = health::report(&facts, &selection, Timestamp::now())?;
        match args.form.output {
            Format::Json => output::json("Health", &report),
            Format::Yaml => output::yaml("Health", &report),
            kind => Ok(health::render(&report, table_options(kind, args.form))),
        }
    };
    if args.watch { screen::watch(read).await } else { Ok(write(&read().await?)?) }
}

/// The name of a state that is written in any case.
fn named(state: &str) -> Option<String> {
    let mut names = STATES.into_iter().filter(|name| name.eq_ignore_ascii_case(state));
    names.next().map(str::to_owned)
}

/// What is known of a GPU, in a form.
pub(super) async fn describe(
    connection: &Connection,
    name: &Name,
    form: Format,
) -> Result<String, ViewError> {
    let client = &connection.client;
    let read = async { Ok((health::read(client).await?, health::claims(client).await?)) };
    let (facts, snapshot) = Box::pin(connection.within(read)).await?;
    let report = health::describe(&facts, &snapshot, name)?;
    match form {
        Format::Json => output::json("HealthDevice", &report),
        Format::Yaml => output::yaml("HealthDevice", &report),
        Format::Table | Format::Wide => {
            let options = DeviceTextOptions { colour: colour(), now: Timestamp::now() };
            Ok(health::render_device(&report, options))
        }
    }
}

async fn policies(args: &PolicyArgs) -> Result<(), ViewError> {
    let connection = args.connect.connect().await?;
    let facts = connection.within(health::read(&connection.client)).await?;
    let names: BTreeSet<String> = args.names.iter().cloned().collect();
    let report: PoliciesReport = health::policies(&facts, &names)?;
    let text = match args.form.output {
        Format::Json => output::json("HealthPolicies", &report)?,
        Format::Yaml => output::yaml("HealthPolicies", &report)?,
        kind => health::render_policies(&report, table_options(kind, args.form)),
    };
    Ok(write(&text)?)
}

fn check(path: &Path) -> Result<Checked, ViewError> {
    let failed = |source| HealthError::File { path: path.to_owned(), source };
    let text = if path == Path::new(STDIN) {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map_err(failed)?;
        text
    } else {
        fs::read_to_string(path).map_err(failed)?
    };
    let checked = health::check(&text);
    Ok(checked.map_err(|message| HealthError::Yaml { path: path.to_owned(), message })?)
}

#[cfg(test)]
mod tests;
