//! What Octavo's programs have in common: logs, threads, errors, the version.
//!
//! | program | has |
//! |---|---|
//! | `octavo` | every subcommand |
//! | `octavo-agent` | `octavo agent` alone, as the chart runs it on each node |

#![forbid(unsafe_code)]

pub mod error_text;
pub mod logging;
pub mod runtime;

/// The version as shown by `--version`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
