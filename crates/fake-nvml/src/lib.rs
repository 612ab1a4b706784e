//! A simulated `libnvidia-ml.so.1`: NVML's binary interface, answered from a file.
//!
//! The library reads two files beside itself. `machine.yaml` describes the machine; `state.json`
//! holds what has happened to it since (see [`octavo_machine::State`]). Programs load it like
//! NVIDIA's library, and cannot tell the difference through the functions that it has. A change of
//! the state file takes effect with the next call.
//!
//! Rules that allow hundreds of copies in one process, each with its own file:
//!
//! - Copies share nothing; a copy knows only its own folder.
//! - It reads no environment variables, starts no threads and prints nothing. If the machine cannot
//!   be read, `nvmlInit` fails and the reason is in `machine.error` beside the library.
//! - A wait for events polls the state file four times a second and holds nothing in between: an
//!   inotify instance for each would exceed a user's limit.
//!
//! [`exports`](self) holds the C functions by subject, each a line or two on top of the safe
//! modules below. All structures and constants are NVML's own, from its header by
//! `nvml-wrapper-sys`.

mod code;
mod events;
mod exports;
mod handle;
mod library;
mod permission;
mod pointers;
mod processes;
mod session;
