//! `octavo lab node NODE imex`: faults of the simulated IMEX service.

use std::path::Path;

use anyhow::{Context as _, ensure};
use clap::Args;
use octavo_machine::{ImexState, Machine};

use crate::cli::gpu;
use crate::nodes::driver_libraries::IMEX_PROGRAMS;

/// States in which a service can stay.
const STATES: [&str; 5] = [
    "INITIALIZING",
    "STARTING_AUTH_SERVER",
    "INIT_GPU",
    "WAITING_FOR_RECOVERY",
    "WAITING_FOR_PEERS",
];

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct ImexFaults {
    /// Version of the service, if it is not the driver's: then it does not start
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Time that a start takes
    #[arg(long, value_name = "MILLISECONDS", default_value_t)]
    start_time: u64,
    /// State in which it stays
    #[arg(long, value_name = "STATE", value_parser = STATES)]
    stuck_in: Option<String>,
    /// Peer that it cannot reach, by its index in the list of nodes; may be given more than once
    #[arg(long, value_name = "INDEX")]
    cut_peer: Vec<u32>,
}

/// Sets the faults of a node. A running service sees them within half a second, its version at the next
/// start.
pub(crate) fn set(folder: &Path, node: &str, faults: ImexFaults) -> anyhow::Result<()> {
    let has_service = folder.join("driver/usr/bin").join(IMEX_PROGRAMS[0]).exists();
    ensure!(has_service, "{node} has no IMEX service: its machine has no fabric between nodes");
    let machine = Machine::read(&gpu::machine_file(folder))
        .with_context(|| format!("read the machine of {node}"))?;
    gpu::edit(folder, &machine, |state| {
        state.imex = ImexState {
            version: faults.version,
            start_millis: faults.start_time,
            stuck_in: faults.stuck_in,
            cut_peers: faults.cut_peer.into_iter().collect(),
        };
        Ok(())
    })
    .with_context(|| format!("set the faults of {node}"))
}
