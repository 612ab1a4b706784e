//! The program that container runtimes run for the hooks of Octavo's CDI specs.
//!
//! It is small and linked statically, so that it runs on any node, whatever the node's C library is. The arguments are
//! those of `octavo cdi-hook`, with the same first word.

#![forbid(unsafe_code)]

use clap::Parser;

/// Prepares a container's root; run by container runtimes through CDI specs.
#[derive(Parser)]
#[command(name = "octavo-cdi-hook", version)]
struct Line {
    #[command(subcommand)]
    program: Program,
}

#[derive(clap::Subcommand)]
enum Program {
    /// Prepares a container's root.
    CdiHook(octavo_hook::Args),
}

fn main() -> anyhow::Result<()> {
    let Program::CdiHook(args) = Line::parse().program;
    octavo_hook::run(&args)
}
