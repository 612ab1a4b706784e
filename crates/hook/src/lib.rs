//! `octavo cdi-hook`: prepares a container's root before the container starts.
//!
//! The container runtime runs it as a hook from the CDI spec, with the container's state on standard input.
//!
//! | hook | runs in |
//! |---|---|
//! | `createContainer` | the container's namespaces with all its mounts, but before the root is changed |
//! | `createRuntime` | the runtime's namespaces, with the container's first process in its cgroup |
//!
//! The root may contain anything from the image, including links that lead out of it. The kernel therefore resolves
//! every path with that root as its limit.
//!
//! Errors go to the runtime, which puts them into the events of the pod. The crate knows neither Kubernetes nor NVML, so
//! that its program is small; what needs the driver is asked of the node's agent.

#![forbid(unsafe_code)]

mod device_nodes;
mod guard;
pub mod ldcache;
mod linker;
mod links;
pub mod memory_limits;
mod mounts;
mod oci;
pub mod rootfs;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser as _;

/// Arguments of `octavo cdi-hook`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Action.
    #[command(subcommand)]
    pub action: Action,
}

/// Actions on a container's root.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Action {
    /// Make symbolic links.
    CreateSymlinks {
        /// A link as `TARGET::LINK`; the link is an absolute path in the container.
        #[arg(long = "link", value_name = "TARGET::LINK")]
        links: Vec<String>,
    },
    /// Add the libraries of some folders to the dynamic linker's cache.
    UpdateLdcache {
        /// A folder with libraries, absolute in the container.
        #[arg(long = "folder", value_name = "FOLDER")]
        folders: Vec<PathBuf>,
        /// Version of the host's driver. An image's libraries of a newer driver come first (CUDA forward compatibility).
        #[arg(long, value_name = "VERSION")]
        cuda_compat: Option<String>,
    },
    /// Keep the driver's libraries from making device nodes.
    DisableDeviceNodeModification,
    /// Cover the driver's libraries with the guard.
    Guard(guard::Args),
    /// Set the driver's memory limit of the container's cgroup.
    MemoryLimits(memory_limits::Args),
}

/// Folders in which drivers install libraries, besides those in the linker's cache.
pub const LIBRARY_FOLDERS: [&str; 12] = [
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib64/nvidia",
    "/usr/lib/nvidia",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/usr/local/nvidia/lib64",
];

/// Runs one of `hooks` for this process's own root, as if it were a container's.
pub fn run_here(hooks: &[Vec<String>], args: &[String]) -> anyhow::Result<()> {
    let root = PathBuf::from("/");
    let env = std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
    let cwd = std::env::current_dir().context("finding out where the command begins")?;
    let container = oci::Container { root, pid: None, env, cwd, hooks: hooks.to_vec() };
    // Skip the program name and the subcommand.
    let line = Line::try_parse_from(args.iter().skip(1)).context("reading a hook's arguments")?;
    act(&container, &line.args)
}

/// A hook's command line.
#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

/// Prepares a container's root; run by container runtimes through CDI specs.
#[derive(clap::Parser)]
#[command(name = "octavo-cdi-hook", version)]
struct ProgramLine {
    #[command(subcommand)]
    program: Program,
}

#[derive(clap::Subcommand)]
enum Program {
    /// Prepares a container's root.
    CdiHook(Args),
}

/// Runs the hook of this process's command line, whose first word is `cdi-hook`. Ends the process for a wrong one.
pub fn run_program() -> anyhow::Result<()> {
    let Program::CdiHook(args) = ProgramLine::parse().program;
    run(&args)
}

/// Runs a hook for the container whose state is on standard input. An error fails the container's start and appears in
/// its pod's events.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let state =
        std::io::read_to_string(std::io::stdin()).context("reading the container's state")?;
    act(&oci::container(&state)?, args)
}

/// Runs one hook for a container.
fn act(container: &oci::Container, args: &Args) -> anyhow::Result<()> {
    if let Action::MemoryLimits(args) = &args.action {
        return memory_limits::set(container, args);
    }
    let root = rootfs::Rootfs::open(&container.root)
        .with_context(|| format!("opening the container's root {}", container.root.display()))?;
    match &args.action {
        Action::CreateSymlinks { links } => links::create(&root, links),
        Action::UpdateLdcache { folders, cuda_compat } => {
            linker::update(&root, folders, cuda_compat.as_deref())
        }
        Action::DisableDeviceNodeModification => device_nodes::forbid(&root),
        Action::Guard(args) => guard::install(&root, container, args),
        // It needs no root and has returned above.
        Action::MemoryLimits(_) => Ok(()),
    }
}
