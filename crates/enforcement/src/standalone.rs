//! `octavo share`: a share with memory enforcement, without a cluster.
//!
//! The command runs in its own mount namespace with the CDI edits of a container: the guard, the driver's own libraries, the
//! files of the share, and the proxies over the driver's libraries. This serves to try programs with a share, and to
//! measure memory enforcement on a machine without Kubernetes.
//!
//! ```text
//! /run/octavo-share/<name>/   the share's run root; locked by the commands and programs that use it
//! /run/octavo-share/.leases   locked by the command that gives leases of GPU time, and divides memory
//! ```
//!
//! No agent monitors the share. Programs that bypass the guard are not stopped, and memory that the driver takes beyond
//! the calls is not counted: module code, and contexts beyond their charge. This is intended. Without a cluster there
//! are no neighbours to protect, and the measurements need the guard alone. Where shares lend memory, one of the commands
//! counts it as an agent does, but stops no program either.

mod in_use;
mod leader;
mod namespace;
mod request;
mod share;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Context;
use octavo_api::config::{ComputePart, ShareClass};
use octavo_dra::Quantity;

use share::StandaloneShare;

/// Arguments of `octavo share`.
#[derive(Clone, Debug, clap::Args)]
pub struct ShareArgs {
    #[command(subcommand)]
    command: ShareCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum ShareCommand {
    /// Run a command with a share of a GPU
    #[command(after_help = "\
Needs root, for the command's own mount namespace. Ends with the exit code of the command.

No agent monitors the share. The guard refuses allocations beyond it as on a node of a cluster, but other memory of the
driver is not fed back: the code of loaded modules, and contexts beyond the 256 MiB that the guard charges for each. So
the driver may count some hundred MiB more than the share for each process. Allocations that bypass the guard are not
stopped, and GpuShareConfig has no effect.

GPU time is divided among all shares of the machine that such commands use. One of the commands gives the leases.

With --memory-limit a share has memory that others leave, up to the limit. When they need it, its processes move to
the host and wait there, by `octavo process-checkpoint`. One of the commands decides that for all shares of the machine,
and reports moves with -v. While such a share is used, the driver's count is fed back for all. Swapped processes take
half of the host's memory at most, or the least --swap-host-memory of the commands that run. The --memory of all shares
of a GPU should fit it together: a command that begins warns if they do not.

Examples:
  octavo share run --memory 20Gi -- python train.py
  octavo share run --memory 10Gi --name team -- octavo probe    several commands, one share
  octavo share run --memory 10Gi --compute 30% -- octavo probe --busy 10
  octavo share run --memory 20Gi --memory-limit 60Gi -- python train.py    up to 60 GiB while others leave it")]
    Run(Box<RunArgs>),

    /// Print the driver functions that the guard wraps
    Names,
}

/// Arguments of `octavo share run`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Memory of the share
    #[arg(long, value_name = "QUANTITY")]
    pub(crate) memory: Quantity,

    /// Memory that the share may have while others leave it [default: that of --memory]
    #[arg(long, value_name = "QUANTITY")]
    pub(crate) memory_limit: Option<Quantity>,

    /// Memory of the host that swapped processes of all shares may take together [default: half of it]
    #[arg(long, value_name = "QUANTITY", requires = "memory_limit")]
    pub(crate) swap_host_memory: Option<Quantity>,

    /// Part of the GPU's time while other shares want it, as in 30% or 12.5% [default: what others leave]
    #[arg(long, value_name = "PERCENT")]
    pub(crate) compute: Option<ComputePart>,

    /// Part of the GPU's time that the share never exceeds [default: none]
    #[arg(long, value_name = "PERCENT")]
    pub(crate) compute_limit: Option<ComputePart>,

    /// Who goes first on the GPU: latency-critical, normal or best-effort
    #[arg(long, value_name = "CLASS", default_value = "normal", value_parser = request::class)]
    pub(crate) class: ShareClass,

    /// Which GPU, by its number in the driver's list
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) gpu: usize,

    /// Name of the share; commands with the same name use one share [default: this process's id]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Refuse allocation and launch functions unknown to the guard
    #[arg(long)]
    pub(crate) strict: bool,

    /// Root of the driver's files
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) driver_root: PathBuf,

    /// The sys file system
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub(crate) sys_root: PathBuf,

    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Runs the requested command.
pub fn run(args: &ShareArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        ShareCommand::Run(args) => run_command(args),
        ShareCommand::Names => names().map(|()| ExitCode::SUCCESS),
    }
}

fn run_command(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let share = StandaloneShare::prepare(args)?;
    // Its thread must not be in the share's mount namespace.
    leader::start(args).context("giving leases of GPU time")?;
    if share.is_elastic {
        leader::wait_for(&share.folder)?;
    }
    namespace::enter(&share)?;
    let (program, rest) = args.command.split_first().context("there is no command to run")?;
    let status = Command::new(program)
        .args(rest)
        .status()
        .with_context(|| format!("starting {}", program.to_string_lossy()))?;
    share.leave();
    // As a shell has it.
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

fn names() -> anyhow::Result<()> {
    let names = octavo_embedded::guard::CUDA_HOOKS.iter().chain(octavo_embedded::guard::NVML_HOOKS);
    let mut text = String::new();
    for name in names {
        text.push_str(name);
        text.push('\n');
    }
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader such as `head` may close the pipe early.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot print"),
    }
}
