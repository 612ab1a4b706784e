//! Programs that containers and container runtimes load, carried as bytes.
//!
//! The build script builds them from `crates/guard` and `crates/hook` with their own profiles. So a program always embeds
//! the guard that matches its `octavo-guard-abi`, and the hook that knows the arguments in its CDI specs.

#![forbid(unsafe_code)]

pub mod guard;

/// The program of CDI hooks: linked statically, so that it runs whatever C library a node has.
pub static HOOK: &[u8] = include_bytes!(env!("OCTAVO_HOOK"));
