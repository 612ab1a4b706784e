//! The program that container runtimes run for the hooks of Octavo's CDI specs.
//!
//! It is small and linked statically, so that it runs on any node, whatever the node's C library is. The arguments are
//! those of `octavo cdi-hook`, with the same first word.

#![forbid(unsafe_code)]

fn main() -> anyhow::Result<()> {
    octavo_hook::run_program()
}
