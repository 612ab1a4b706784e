//! `nvidia-cuda-mps-control`: the daemon of NVIDIA's Multi-Process Service, and its commands.

mod commands;
mod daemon;

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use octavo_fake_gpu::mps::{CONTROL, CONTROL_PRIVILEGED, DEFAULT_PIPE, PIPE_VARIABLE};

use crate::say;

/// How long the daemon may take before it answers.
const START: Duration = Duration::from_secs(5);

/// Runs the program.
///
/// # Errors
///
/// Files or sockets of the daemon fail.
pub fn run(args: &[OsString]) -> anyhow::Result<ExitCode> {
    let folder = pipe_folder();
    let has = |short: &str, long: &str| args.iter().any(|arg| arg == short || arg == long);
    if has("-f", "--forground") {
        return daemon::run(&folder);
    }
    if has("-d", "--daemon") {
        return start_in_background(&folder);
    }
    let words: Vec<_> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let mut text = words.join(" ");
    if text.is_empty() {
        std::io::stdin().read_to_string(&mut text)?;
    }
    for command in text.lines().filter(|line| !line.trim().is_empty()) {
        let socket = if commands::is_privileged(command) { CONTROL_PRIVILEGED } else { CONTROL };
        let Ok(mut stream) = UnixStream::connect(folder.join(socket)) else {
            say("Cannot find MPS control daemon process\n");
            return Ok(ExitCode::FAILURE);
        };
        writeln!(stream, "command {command}")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        say(&answer);
    }
    Ok(ExitCode::SUCCESS)
}

fn pipe_folder() -> PathBuf {
    std::env::var_os(PIPE_VARIABLE).map_or_else(|| DEFAULT_PIPE.into(), PathBuf::from)
}

/// Starts the daemon in the background, with its log in the log folder.
fn start_in_background(folder: &std::path::Path) -> anyhow::Result<ExitCode> {
    let logs = std::env::var_os("CUDA_MPS_LOG_DIRECTORY")
        .map_or_else(|| "/var/log/nvidia-mps".into(), PathBuf::from);
    std::fs::create_dir_all(&logs)?;
    let log = std::fs::File::create(logs.join("control.log"))?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg("-f")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("start the daemon")?;
    let end = std::time::Instant::now() + START;
    while UnixStream::connect(folder.join(CONTROL)).is_err() {
        if child.try_wait()?.is_some() || std::time::Instant::now() > end {
            say("An instance of this daemon is already running\n");
            return Ok(ExitCode::FAILURE);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(ExitCode::SUCCESS)
}
