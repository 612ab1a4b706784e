//! The IMEX service of a simulated node, and the command that asks it (NVIDIA IMEX Service for NVLink Networks).
//!
//! The service lets programs map GPU memory of other hosts over NVLink. This one reads the same files and has the same
//! states, ports and signals. It moves no memory itself: the simulated driver asks it which nodes it is connected with
//! ([`octavo_fake_gpu::imex`]), and imports memory of these alone.
//!
//! ```text
//! nvidia-imex ── config.cfg, nodes_config.cfg at start ── /etc/hosts at start and on SIGUSR1
//!   port 50000   peers: version and list of nodes must be equal; TLS where it is asked for
//!   port 50005   nvidia-imex-ctl: the state of this node (-q), of the domain (-N)
//! ```
//!
//! | differs from NVIDIA's | reason |
//! |---|---|
//! | peers and commands speak lines of JSON | the real protocol is not published |
//! | names are looked up in the hosts file alone | a test has no name server |
//! | `DAEMONIZE=1`, GSS and unknown keys are refused | they would do nothing here |
//!
//! Faults come from `imex` in the machine's `state.json`.

#![forbid(unsafe_code)]

pub mod command;
pub mod config;
pub mod daemon;
mod driver;
mod log;
mod names;
mod peers;
pub mod status;
mod stream;

pub use config::Config;
pub use daemon::{Daemon, Environment};
