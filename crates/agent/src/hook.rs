//! `octavo cdi-hook`: what must happen inside a container's own root before it starts.
//!
//! The container runtime runs it as a `createContainer` hook, as CDI specs name it: in the node's view of
//! the file system, with the container's root not yet its root, and the container's state on standard
//! input. The root holds whatever the image's author put there, links that lead out of it included, so
//! every path is resolved by the kernel with that root as its limit.

mod install;
pub(crate) mod ldcache;
mod linker;
mod links;
mod oci;
pub(crate) mod rootfs;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::Context;

/// Arguments of `octavo cdi-hook`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do in a container's root.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Action {
    /// Make symbolic links.
    CreateSymlinks {
        /// A link as `TARGET::LINK`, the link an absolute path in the container.
        #[arg(long = "link", value_name = "TARGET::LINK")]
        links: Vec<String>,
    },
    /// Let the dynamic linker know the libraries of some folders.
    UpdateLdcache {
        /// A folder with libraries, absolute in the container.
        #[arg(long = "folder", value_name = "FOLDER")]
        folders: Vec<PathBuf>,
    },
    /// Copy this binary to a folder of the host, for the container runtime to run as hook.
    Install {
        /// The folder, as it is seen here.
        #[arg(long = "to", value_name = "FOLDER")]
        folder: PathBuf,
    },
}

/// Runs one hook for the container whose state is on standard input, or installs the hook. An error keeps the container from
/// starting and shows in its pod's events.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if let Action::Install { folder } = &args.action {
        return install::install(folder);
    }
    let state =
        std::io::read_to_string(std::io::stdin()).context("reading the container's state")?;
    let root = oci::root_of(&state)?;
    let root = rootfs::Rootfs::open(&root)
        .with_context(|| format!("opening the container's root {}", root.display()))?;
    match &args.action {
        Action::CreateSymlinks { links } => links::create(&root, links),
        Action::UpdateLdcache { folders } => linker::update(&root, folders),
        // It needs no container and has returned above.
        Action::Install { .. } => Ok(()),
    }
}
