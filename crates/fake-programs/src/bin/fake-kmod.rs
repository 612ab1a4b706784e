//! The simulated `modprobe` and `rmmod`. A node has it by these names. Here it has another one: folders of built programs may be in a
//! search path, and a name of the system's own programs would hide them.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let args: Vec<_> = args.collect();
    octavo_fake_programs::kmod::run(&name, &args, octavo_fake_gpu::locate::machine_of_program())
}
