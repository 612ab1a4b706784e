//! The simulated daemon of NVIDIA's Multi-Process Service, and its commands.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    octavo_fake_programs::mps::run(&args)
}
