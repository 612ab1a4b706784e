//! The contract between the guard in a container and the agent of its node: two files and a socket
//! per share, the ledger in one of the files, and a page of memory per process.
//!
//! ```text
//! host       <run root>/octavo/shares/<claim uid>_<share id>/   limits.json limits state agent.sock
//! container  /run/octavo/shares/<claim uid>_<share id>/         read-only, but for `state`
//! ```
//!
//! | file | written by | read by | content |
//! |---|---|---|---|
//! | [`limits`] | the agent | the guard, mapped | limits of the share, its gate, usage outside the ledger |
//! | [`state`] | the guard of each process | other guards, mapped; the agent, by copy | one slot per process: its usage |
//! | [`message`] | the guard | the agent | identity of the process, events |
//! | [`lease_page`] | both | both, mapped | whether one process may launch; no file, but memory that the agent passes on |
//!
//! A container may write anything into `state` or truncate it. Then only the guards of that
//! container suffer. The agent treats the file as untrusted input and compares it with the driver's
//! counts.
//!
//! This crate neither allocates nor depends on a C library: musl, an old glibc and static programs
//! read the same bytes. Numbers are in native byte order, since both sides run on one machine. All
//! layouts carry [`VERSION`]; a guard that finds another version admits nothing.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod charge;
pub mod lease_page;
pub mod ledger;
pub mod limits;
pub mod message;
pub mod names;
pub mod state;
pub mod uuid;

/// Version of all layouts. It changes with every change that an older reader would misread.
pub const VERSION: u32 = 1;

/// Folder of the shares in a container, one folder per share.
pub const SHARES: &str = "/run/octavo/shares";

/// Path of the guard in a container.
pub const GUARD: &str = "/run/octavo/guard/liboctavo_guard.so";

/// Folder of the driver's own libraries in a container, under their file names.
pub const REAL: &str = "/run/octavo/real";

/// Name of the limits file in the folder of a share.
pub const LIMITS_FILE: &str = "limits";

/// Name of the state file in the folder of a share.
pub const STATE_FILE: &str = "state";

/// Name of the agent's socket in the folder of a share.
pub const SOCKET_FILE: &str = "agent.sock";
