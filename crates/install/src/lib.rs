//! `octavo install`, `octavo upgrade` and `octavo uninstall`.
//!
//! Helm renders the chart and writes its objects, so that both ways lead to the same release. These commands add what helm cannot know:
//!
//! ```text
//! install, upgrade: read the cluster --> nothing is in the way --> take over CRDs and DeviceClasses --> helm --> wait for the pods
//! uninstall:        no pod has a GPU --> nodes get the mode `none` --> agents have let go --> helm --> labels, leases and CRDs go
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | `chart`, `helm` | the chart that the program carries, and the program that applies it |
//! | `facts`, `preflight`, `owner`, `node_match` | obstacles to a release, and the owners of the objects that it needs |
//! | `rollout` | waits for the release's pods |
//! | `holders`, `modes`, `leftovers` | the parts of an uninstallation |

#![forbid(unsafe_code)]

mod args;
mod chart;
mod facts;
mod helm;
mod holders;
mod leftovers;
mod modes;
mod node_match;
mod objects;
mod owner;
mod preflight;
mod progress;
mod release;
mod rollout;
mod uninstall;

pub use args::{InstallArgs, UninstallArgs, UpgradeArgs};
pub use progress::InstallStatus;
pub use release::{run_install, run_upgrade};
pub use uninstall::run_uninstall;
