//! A simulated `libnvidia-ml.so.1`: NVML's binary interface, answered from a file.
//!
//! The library looks beside itself for `machine.yaml` (what the machine is made of) and
//! `state.json` (what has happened to it since; see [`octavo_machine::State`]). Programs load it
//! as they load NVIDIA's, and cannot tell the difference through the calls that it serves. A
//! change of the state file takes effect with the next call.
//!
//! Rules that keep hundreds of copies, each from its own file, at peace in one process:
//!
//! - Nothing is shared between copies; a copy knows only its own folder.
//! - It reads no environment variables, starts no threads and prints nothing. If the machine
//!   cannot be read, `nvmlInit` fails and the reason lies as `machine.error` beside the library.
//! - Whoever waits for events looks at the state file four times a second and holds nothing in
//!   between: an inotify instance each would be more than a user may have.
//!
//! Layout of the code: [`exports`](self) holds the C functions by subject, each a line or two on
//! top of the safe parts below them. All structures and constants are NVML's own, from its header
//! as `nvml-wrapper-sys` gives it.

mod code;
mod events;
mod exports;
mod handle;
mod library;
mod pointers;
mod processes;
mod session;
