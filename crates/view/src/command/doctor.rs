//! The command `octavo doctor`.

use std::collections::BTreeSet;

use clap::Args;

use super::{colour, write};
use crate::connect::{ConnectArgs, Timeout, parse_timeout};
use crate::doctor::{self, DoctorReport, Facts, ProbeOptions};
use crate::error::ViewError;
use crate::output::{self, Format};

/// Options of `octavo doctor`.
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// Only these nodes
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,
    /// Also run a pod with a GPU on each node, which takes no GPU from anybody (adminAccess). It is in a namespace of its
    /// own, which is deleted at the end
    #[arg(long)]
    pub probe: bool,
    /// Image of the probe pods, with octavo in it [default: that of the agents]
    #[arg(long, value_name = "IMAGE", requires = "probe")]
    pub image: Option<String>,
    /// Time for the probe pod of one node, or 0 for no limit
    #[arg(long, value_name = "TIME", default_value = "1m", requires = "probe", value_parser = parse_timeout)]
    pub probe_timeout: Timeout,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    pub output: Format,
    /// Which cluster
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// How `octavo doctor` ended, when it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoctorStatus {
    /// No errors were found.
    Well,
    /// Errors were found.
    Sick,
}

/// Runs `octavo doctor`.
pub async fn run_doctor(args: &DoctorArgs) -> Result<DoctorStatus, ViewError> {
    let connection = args.connect.connect().await?;
    let mut facts = connection.within(doctor::read(&connection.client)).await?;
    let wanted: BTreeSet<&String> = args.nodes.iter().collect();
    if let Some(node) = args.nodes.iter().find(|node| !facts.nodes.contains_key(*node)) {
        return Err(ViewError::NoNode { node: node.clone() });
    }
    if !wanted.is_empty() {
        facts.nodes.retain(|name, _| wanted.contains(name));
        facts.agents.retain(|agent| wanted.contains(&agent.node));
        facts.domains.nodes.retain(|name, _| wanted.contains(name));
        facts.health.retain(|name, _| wanted.contains(name));
        facts.problems.retain(|problem| wanted.contains(&problem.node));
        facts.sick_mps_pods.retain(|pod| wanted.contains(&pod.node));
        facts.rivals.retain(|rival| wanted.contains(&rival.node));
    }
    let mut checked = doctor::check(&facts);
    let mut seen = 0;
    if args.probe {
        let nodes: Vec<String> = offering(&facts);
        let options = ProbeOptions { image: image(args, &facts)?, timeout: args.probe_timeout.0 };
        let probed = doctor::probe(&connection.client, &nodes, &options).await;
        checked.findings.extend(probed.0);
        seen = probed.1;
    }
    let report = DoctorReport::new(checked, facts.nodes.len(), seen);
    let text = match args.output {
        Format::Json => output::json("Doctor", &report)?,
        Format::Yaml => output::yaml("Doctor", &report)?,
        Format::Table | Format::Wide => report.text(colour()),
    };
    write(&text)?;
    Ok(if report.has_errors() { DoctorStatus::Sick } else { DoctorStatus::Well })
}

/// The nodes with a whole GPU on offer. A claim with `adminAccess` for a MIG device would have to name one that exists.
fn offering(facts: &Facts) -> Vec<String> {
    let nodes = facts.nodes.iter().filter(|(_, node)| node.gpus > 0);
    nodes.map(|(name, _)| name.clone()).collect()
}

fn image(args: &DoctorArgs, facts: &Facts) -> Result<String, ViewError> {
    let own = facts.agents.iter().map(|agent| &agent.image).find(|image| !image.is_empty());
    args.image.as_ref().or(own).cloned().ok_or(ViewError::NoImage)
}
