//! The command line of `octavo mps-daemon`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Options of `octavo mps-daemon`.
#[derive(Args, Clone, Debug)]
pub struct MpsDaemonArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: MpsDaemonCommand,
}

/// Commands of `octavo mps-daemon`.
#[derive(Clone, Debug, Subcommand)]
pub enum MpsDaemonCommand {
    /// Run the daemons that the node's agent asks for, until a signal
    Run(RunArgs),
    /// Exit with 0 if the daemons are run, and all are as they should be
    Check(CheckArgs),
    /// Start a program with a folder as its shared memory
    #[command(hide = true)]
    Enter(EnterArgs),
}

/// Options of `octavo mps-daemon run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub(crate) folder: FolderArgs,
    /// The driver's root, as this process sees it
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub(crate) driver_root: PathBuf,
}

/// Options of `octavo mps-daemon check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    pub(crate) folder: FolderArgs,
    /// Exit with 0 if the daemons are run, whatever they are
    #[arg(long)]
    pub(crate) served: bool,
}

/// The folder of the daemons.
#[derive(Args, Clone, Debug)]
pub(crate) struct FolderArgs {
    /// The folder of the daemons' files, at the same path for host, agent and this program
    #[arg(long, value_name = "FOLDER", default_value = "/run/octavo/mps")]
    pub(crate) folder: PathBuf,
}

/// Options of `octavo mps-daemon enter`.
#[derive(Args, Clone, Debug)]
pub struct EnterArgs {
    /// The process whose end ends the program
    #[arg(long, value_name = "PID")]
    pub(crate) parent: i32,
    /// The folder that the program sees as /dev/shm
    #[arg(long, value_name = "FOLDER")]
    pub(crate) shm: PathBuf,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}
