//! The commands `octavo top`, `octavo explain`, `octavo doctor`, `octavo health` and `octavo driver`: arguments, reading, writing.

mod doctor;
mod driver;
mod explain;
mod health;
mod screen;

use std::io::{self, IsTerminal, Write};

use clap::Args;
use jiff::Timestamp;
use kube::Client;

use crate::connect::ConnectArgs;
use crate::error::ViewError;
use crate::fetch;
use crate::output::{self, Format};
use crate::shares::{self, AgentAddress};
use crate::top::{self, Selection, TableOptions, TopReport};
pub use doctor::{DoctorArgs, DoctorStatus, run_doctor};
pub use driver::{DriverArgs, run_driver};
pub use explain::{ExplainArgs, run_explain};
pub use health::{HealthArgs, HealthStatus, run_health};

/// Options of `octavo top`.
#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    /// Only these nodes
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,
    /// Only GPUs that claims of this namespace hold
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    pub namespace: Option<String>,
    /// GPUs of all holders; this is the default
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Refresh every 2 seconds
    #[arg(short, long)]
    pub watch: bool,
    /// Show the limit and current use of each share, as reported by the nodes' agents
    #[arg(long)]
    pub shares: bool,
    /// With --shares, read the agent that serves its metrics at HOST:PORT instead of the agents' pods; may be
    /// repeated
    #[arg(long = "agent", value_name = "ADDRESS", requires = "shares")]
    pub agents: Vec<AgentAddress>,
    /// How it is written
    #[command(flatten)]
    pub form: OutputArgs,
    /// Which cluster
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Output options.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    pub output: Format,
    /// Leave out the headers of tables
    #[arg(long)]
    pub no_headers: bool,
}

/// How `octavo explain` ended, when it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplainStatus {
    /// The pod or gang does not wait.
    Settled,
    /// The pod or gang waits.
    Waiting,
}

/// Runs `octavo top`.
pub async fn run_top(args: &TopArgs) -> Result<(), ViewError> {
    let connection = args.connect.connect().await?;
    let selection = Selection {
        nodes: args.nodes.iter().cloned().collect(),
        namespace: args.namespace.clone(),
    };
    let read = async || {
        if args.shares {
            return connection.within(shares_text(&connection.client, args, &selection)).await;
        }
        let snapshot = connection.within(fetch::for_top(&connection.client)).await?;
        let report =
            top::top(&snapshot).select(&selection).map_err(|node| ViewError::NoNode { node })?;
        top_text(&report, args.form)
    };
    if args.watch {
        screen::watch(read).await?;
    } else {
        write(&read().await?)?;
    }
    Ok(())
}

/// The output of `octavo top --shares`.
async fn shares_text(
    client: &Client,
    args: &TopArgs,
    selection: &Selection,
) -> Result<String, ViewError> {
    let snapshot = fetch::for_top(client).await?;
    let report = shares::shares(&snapshot);
    let report = report.select(&selection.nodes, selection.namespace.as_deref());
    let readings = shares::read(client, &report.nodes(), &args.agents).await?;
    let report = report.with(readings);
    match args.form.output {
        Format::Json => output::json("Shares", &report),
        Format::Yaml => output::yaml("Shares", &report),
        kind => Ok(shares::render(&report, table_options(kind, args.form))),
    }
}

fn top_text(report: &TopReport, form: OutputArgs) -> Result<String, ViewError> {
    match form.output {
        Format::Json => output::json("Top", report),
        Format::Yaml => output::yaml("Top", report),
        kind => Ok(top::render(report, table_options(kind, form))),
    }
}

fn table_options(kind: Format, form: OutputArgs) -> TableOptions {
    TableOptions {
        wide: kind == Format::Wide,
        headers: !form.no_headers,
        colour: colour(),
        now: Timestamp::now(),
    }
}

/// Colour is for terminals only, and off if the user disabled it (<https://no-color.org>).
pub fn colour() -> bool {
    io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Writes a report to standard output.
pub fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
