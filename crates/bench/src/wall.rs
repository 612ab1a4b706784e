//! What the wall costs and whether it holds, on the simulated driver: the guard and the proxy as containers
//! get them, in programs that a benchmark asks line by line (`crates/probe/examples/guard_client.rs`).
//!
//! Needs no root: a client has a mount namespace of its own, in a user namespace where that is what it takes.

mod bed;
mod client;
mod cost;
mod race;

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::figure::Figure;

/// What is built beforehand, beside the binary.
#[derive(Debug)]
struct Programs {
    /// The simulated driver.
    driver: PathBuf,
    /// The program that uses it.
    client: PathBuf,
}

/// Measures costs, then races.
pub(crate) fn run(octavo: &Path) -> anyhow::Result<Vec<Figure>> {
    let folder = octavo.parent().context("the binary lies in no folder")?;
    let programs = Programs {
        driver: folder.join("liboctavo_fake_cuda.so"),
        client: folder.join("examples/guard_client"),
    };
    for file in [&programs.driver, &programs.client] {
        ensure!(
            file.is_file(),
            "{} is not there: start this by `cargo xtask bench wall`, which builds it",
            file.display()
        );
    }
    let mut figures = cost::run(&programs)?;
    figures.extend(race::run(&programs)?);
    Ok(figures)
}
