//! Cost and correctness of memory enforcement, on the simulated driver. The guard and the proxy are
//! used as in containers. The benchmark drives client programs line by line
//! (`crates/probe/examples/guard_client.rs`).
//!
//! No root is needed: each client has its own mount namespace, within a user namespace if
//! necessary.

pub(crate) mod bed;
pub(crate) mod client;
pub(crate) mod cost;
mod race;

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use octavo_figure::Figure;

/// Programs that are built in advance, beside the binary.
#[derive(Debug)]
pub(crate) struct Programs {
    /// The simulated driver.
    driver: PathBuf,
    /// The program that uses it.
    client: PathBuf,
}

impl Programs {
    /// Those beside the measured binary.
    pub(crate) fn beside(octavo: &Path) -> anyhow::Result<Self> {
        let folder = octavo.parent().context("the binary lies in no folder")?;
        let programs = Self {
            driver: folder.join("liboctavo_fake_cuda.so"),
            client: folder.join("examples/guard_client"),
        };
        for file in [&programs.driver, &programs.client] {
            ensure!(
                file.is_file(),
                "{} is missing: start this with `cargo xtask bench`, which builds it",
                file.display()
            );
        }
        Ok(programs)
    }

    /// Folder of the simulated driver's libraries.
    pub(crate) fn folder(&self) -> &Path {
        self.driver.parent().unwrap_or(Path::new("."))
    }
}

/// Measures costs, then races.
pub(crate) fn run(octavo: &Path) -> anyhow::Result<Vec<Figure>> {
    let programs = Programs::beside(octavo)?;
    let mut figures = cost::run(&programs)?;
    figures.extend(race::run(&programs)?);
    Ok(figures)
}
