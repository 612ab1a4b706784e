//! The command line.

use std::ffi::OsStr;
use std::path::Path;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::logging::LogArgs;
use crate::snapshot::SnapshotArgs;

/// The GPUs of a Kubernetes cluster as one pool
#[derive(Debug, Parser)]
#[command(name = "octavo", version = crate::version::TEXT, propagate_version = false)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
#[command(after_help = "\
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 what was asked about is waiting.
Also a kubectl plugin: as `kubectl-octavo` on the PATH it runs as `kubectl octavo`.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(subcommand)]
    pub(crate) program: Program,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Program {
    /// Show the cluster's GPUs and who holds them
    #[command(after_help = "\
Examples:
  octavo top                       nodes, GPUs, who holds what
  octavo top dgx-h100-0 -o wide    one node, a line for each GPU with UUID, claim and taints
  octavo top -n team-a             GPUs that team-a holds
  octavo top --watch               again every 2 seconds
  octavo top --shares --watch      what each share has of what it may, live
  octavo top -o json               for programs; apiVersion cli.octavo.dev/v1alpha1, kind Top or Shares")]
    Top(octavo_view::TopArgs),

    /// Say where a pod's claims stand and, if a pod or a gang waits, why
    #[command(after_help = "\
Of pods with another scheduler than Kubernetes' own, and of gangs, Octavo's scheduler is asked, too:
what it waits for, what its place costs and what came second, or why there is none and what would
help. Its pods are reached through the API server (right: get on pods/proxy); another is named by
--scheduler.

Selectors are shown as written and are not evaluated: a number that is too small is proof, a
number that is large enough is not.

Exit code 3 means that the pod or the gang waits.

Examples:
  octavo explain pod train -n team-a
  octavo explain pod/train -o wide    with a line for each GPU that it competes for
  octavo explain pod/train -o yaml    for programs; kind PodExplanation
  octavo explain podgroup train       a gang: a PodGroup, or the JobSet, Job, ... that has its pods
  octavo explain podgroup train --scheduler 127.0.0.1:9477")]
    Explain(octavo_view::ExplainArgs),

    /// Write what a live scheduler's decisions are made of, for `octavo sim`
    #[command(after_help = "\
Without a gang or a pod: the cluster as it is now, for `octavo sim whatif --cluster FILE`. With one: the
last decision on it and the cluster before, for `octavo sim verify FILE`; the scheduler keeps as many as
`records` in its config file says, of pods by themselves `podRecords`, which is none if nothing is said.
The simulator is asked the same here: exit code 1 where it decides something else.

The file has names, labels and devices of all nodes, and names, priorities and requests of all pods.

Examples:
  octavo snapshot -o cluster.json
  octavo snapshot --podgroup team-a/train -o decision.json && octavo sim verify decision.json
  octavo snapshot --scheduler 127.0.0.1:9477 | jq '.nodes | length'")]
    Snapshot(SnapshotArgs),

    /// Publish a node's GPUs and prepare them for containers
    Agent(Box<octavo_agent::AgentArgs>),

    /// Place pods, gangs and shares: allocate their claims and bind them
    #[command(after_help = "\
Pods ask for it with `schedulerName: octavo`. It gives devices of nodes with the label
octavo.dev/scheduler=octavo, and room on all nodes. Several may run: one leads, by a lease.

Examples:
  octavo scheduler                                  in a cluster, with the pod's service account
  octavo scheduler --kubeconfig admin.conf --config scheduler.yaml")]
    Scheduler(octavo_scheduler::SchedulerArgs),

    /// Run a cluster on this machine: a real control plane, simulated GPU nodes
    Lab(Box<octavo_lab::LabArgs>),

    /// Replay traces of whole clusters and ask what would fit: no cluster needed
    Sim(Box<octavo_sim::cli::SimArgs>),

    /// Show what this process sees of its GPUs, and try the walls of its shares
    #[command(after_help = "\
Asks for memory in every way that the CUDA driver has, up to what the GPU reports as its total and
past it. Exit code 1 means that some way leads past it.

Examples:
  octavo probe                     all GPUs, all ways, what calls cost
  octavo probe --list              the ways, and by which function each asks
  octavo probe --path alloc,async  only these
  octavo probe --go-round          take more than the share by the driver's own library, to see
                                   that the node's watchdog ends it")]
    Probe(octavo_probe::ProbeArgs),

    /// Run commands behind the wall of a share, on this machine and without a cluster
    Share(octavo_agent::standalone_share::ShareArgs),

    /// Print the completion script for a shell
    #[command(after_help = "\
Examples:
  octavo completion bash > /etc/bash_completion.d/octavo
  octavo completion zsh > \"${fpath[1]}/_octavo\"
  octavo completion fish > ~/.config/fish/completions/octavo.fish")]
    Completion {
        /// Shell
        shell: Shell,
    },

    /// Print the version
    Version {
        /// Form of the output
        #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
        output: VersionForm,
    },

    /// Prepare a container's root; run by container runtimes, as CDI specs say
    #[command(name = "cdi-hook", hide = true)]
    CdiHook(octavo_agent::hook::Args),

    /// Write files of the repository
    #[command(hide = true)]
    Generate {
        /// Which
        #[arg(value_enum)]
        what: Generated,
    },
}

/// Form of the version.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum VersionForm {
    /// One line
    #[default]
    Text,
    /// JSON
    Json,
}

/// A file that is made from what the binary itself is.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Generated {
    /// docs/reference/cli.md
    CliReference,
    /// docs/reference/scheduler-metrics.md
    SchedulerMetrics,
}

/// Parses the arguments of the process, and ends it if they are wrong or ask for help.
pub(crate) fn parse() -> Cli {
    let name = std::env::args_os().next().unwrap_or_default();
    let matches = command(&name).get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The command line as it shows itself when it was started under a name: kubectl starts a plugin
/// as `kubectl-octavo`, and its user typed `kubectl octavo`.
pub(crate) fn command(started_as: &OsStr) -> clap::Command {
    let name = Path::new(started_as).file_stem().and_then(OsStr::to_str).unwrap_or_default();
    if name == "kubectl-octavo" {
        Cli::command().name("kubectl octavo").bin_name("kubectl octavo")
    } else {
        Cli::command().bin_name("octavo")
    }
}

#[cfg(test)]
mod tests;
