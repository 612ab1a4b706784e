//! What time enforcement costs a launch, and how exactly leases divide the time of a simulated GPU.
//!
//! The guard, the proxy and the arbiter are used as on a node: `octavo share run` gives the leases. The simulated GPU runs with
//! the host's clock. It serves all contexts evenly, which stands for the driver's own division.

mod cost;
mod division;

use std::path::Path;

use octavo_figure::Figure;

use crate::memory_enforcement::Programs;

/// Measures costs, then divisions.
pub(crate) fn run(octavo: &Path) -> anyhow::Result<Vec<Figure>> {
    let programs = Programs::beside(octavo)?;
    let mut figures = cost::run(&programs)?;
    figures.extend(division::run(octavo, &programs)?);
    Ok(figures)
}
