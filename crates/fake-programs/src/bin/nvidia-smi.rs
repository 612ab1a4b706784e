//! The simulated `nvidia-smi`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    octavo_fake_programs::smi::run(&args, octavo_fake_gpu::locate::machine_of_program())
}
