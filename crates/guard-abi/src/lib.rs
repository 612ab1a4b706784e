//! What the guard in a container and the agent of its node share: two small files and a socket for each
//! share, and the ledger that is kept in one of them.
//!
//! ```text
//! host       <run root>/octavo/shares/<claim uid>_<share id>/   limits.json limits state agent.sock
//! container  /run/octavo/shares/<claim uid>_<share id>/         read-only, but for `state`
//! ```
//!
//! | file | written by | read by | what |
//! |---|---|---|---|
//! | [`limits`] | the agent | the guard, mapped | what the share may have, whether it may go on, what is not in the ledger |
//! | [`state`] | the guard of each process | the other guards, mapped; the agent, by copies | a slot a process: what it has |
//! | [`message`] | the guard | the agent | who it is, and what it saw |
//!
//! A container may write anything into `state`, cut it short or fill it with noise: the guards of the same
//! container suffer then, nobody else. The agent reads it as it reads any input, and holds what it says
//! against what the driver says.
//!
//! Nothing here allocates, and nothing depends on a C library: the same bytes are read by musl, by an old
//! glibc and by a static program. Numbers are in the machine's own order, since both sides run on one
//! machine. Everything fits [`VERSION`]; a guard that finds another one is closed.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod charge;
pub mod ledger;
pub mod limits;
pub mod message;
pub mod names;
pub mod state;
pub mod uuid;

/// Version of all layouts. It changes with every change that an older reader would misread.
pub const VERSION: u32 = 1;

/// Where a container finds its shares, a folder each.
pub const SHARES: &str = "/run/octavo/shares";

/// Where a container finds the guard.
pub const GUARD: &str = "/run/octavo/guard/liboctavo_guard.so";

/// Where a container finds the driver's own libraries, under the names of their files.
pub const REAL: &str = "/run/octavo/real";

/// Name of the limits file in a share's folder.
pub const LIMITS_FILE: &str = "limits";

/// Name of the state file in a share's folder.
pub const STATE_FILE: &str = "state";

/// Name of the agent's socket in a share's folder.
pub const SOCKET_FILE: &str = "agent.sock";
