//! Holds containers to their shares of a GPU.
//!
//! ```text
//! backend   what a container gets so that it cannot exceed its share: the guard, or the driver's own limits
//! share     what a share may have, and its files on the host and in containers
//! gpu_time  gives the processes of shares leases of GPU time
//! swap      moves memory of shares between the GPU and the host
//! watchdog  compares the driver's memory counts with the shares, and acts on those that exceed theirs
//! process   processes of containers: find, signal, freeze, thaw, kill
//! release   removes the files of a share at its end
//! standalone   a share without a cluster: `octavo share`
//! ```

#![forbid(unsafe_code)]

pub mod backend;
mod gpu_time;
pub mod metrics;
pub mod process;
mod release;
pub mod share;
pub mod standalone;
pub mod swap;
pub mod watchdog;

pub use release::release_shares;
