//! The command lines.

use std::path::PathBuf;

use clap::Args;
use octavo_view::connect::{ConnectArgs, Timeout, parse_timeout};

/// Which release, and the program that writes it.
#[derive(Args, Clone, Debug)]
pub struct ReleaseArgs {
    /// Namespace of the release
    #[arg(short, long, value_name = "NAME", default_value = "octavo-system")]
    pub namespace: String,
    /// Name of the release
    #[arg(long, value_name = "NAME", default_value = "octavo")]
    pub release: String,
    /// The helm program, 3.14 or later
    #[arg(long, value_name = "PATH", env = "OCTAVO_HELM", default_value = "helm")]
    pub helm: PathBuf,
    /// How long to wait for pods, and for GPUs that are given back, or 0 for no limit
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_timeout)]
    pub timeout: Timeout,
    /// Say what would be done, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Which cluster
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// The chart and its values.
#[derive(Args, Clone, Debug, Default)]
pub struct ChartArgs {
    /// File with values of the chart; may be repeated, and later files come first
    #[arg(short = 'f', long = "values", value_name = "FILE")]
    pub values: Vec<PathBuf>,
    /// A value of the chart, as in `--set agent.mode=device-plugin`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// A value of the chart that is a string
    #[arg(long, value_name = "KEY=VALUE")]
    pub set_string: Vec<String>,
    /// A value of the chart in JSON
    #[arg(long, value_name = "KEY=JSON")]
    pub set_json: Vec<String>,
    /// Another chart: a folder, an archive or an address as of helm [default: the chart of this program]
    #[arg(long, value_name = "CHART")]
    pub chart: Option<String>,
    /// Install although device plugins of NVIDIA or HAMi run where agents will: an agent waits until its node has none, and offers no
    /// GPU before. A running DRA driver of NVIDIA still has to end first
    #[arg(long)]
    pub allow_live_plugins: bool,
    /// Overwrite fields of the release's objects that another program or a person has changed. Helm 3 always does
    #[arg(long)]
    pub force_conflicts: bool,
    /// Do not wait for the release's pods
    #[arg(long)]
    pub no_wait: bool,
}

/// Arguments of `octavo install`.
#[derive(Args, Clone, Debug)]
pub struct InstallArgs {
    /// The chart and its values
    #[command(flatten)]
    pub chart: ChartArgs,
    /// Which release
    #[command(flatten)]
    pub release: ReleaseArgs,
}

/// Arguments of `octavo upgrade`.
#[derive(Args, Clone, Debug)]
pub struct UpgradeArgs {
    /// Forget the values of the release, and take the chart's and those given here
    #[arg(long)]
    pub reset_values: bool,
    /// The chart and its values
    #[command(flatten)]
    pub chart: ChartArgs,
    /// Which release
    #[command(flatten)]
    pub release: ReleaseArgs,
}

/// Arguments of `octavo uninstall`.
#[derive(Args, Clone, Debug)]
pub struct UninstallArgs {
    /// Remove the definitions of custom resources with all their objects, too
    #[arg(long)]
    pub crds: bool,
    /// A node that is not waited for, because it is gone or its agent does not answer; its files stay; may be repeated
    #[arg(long, value_name = "NODE")]
    pub skip_node: Vec<String>,
    /// Which release
    #[command(flatten)]
    pub release: ReleaseArgs,
}
