//! The component `cuda`: a program works on the GPUs.
//!
//! `octavo probe --round-trip` runs in a process of its own: a broken driver may end or stop the process, and its first answer may stay.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::report::{Component, Finding};

/// Time for all GPUs. The first call of a driver without persistence mode takes seconds for each.
const LIMIT: Duration = Duration::from_mins(2);
/// What to look at if CUDA does not work.
const REMEDY: &str = "compare the versions of the driver's library and of its kernel module (nvidia-smi on the node), and see \
    that nvidia-uvm is loaded";

/// Runs the program.
pub(super) async fn check(octavo: &Path) -> Finding {
    let failed = |message: String| Finding::failed(Component::Cuda, message, REMEDY);
    let mut command = Command::new(octavo);
    command.args(["probe", "--round-trip"]).stdin(Stdio::null()).kill_on_drop(true);
    let output = match timeout(LIMIT, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => {
            return failed(format!("the program on the GPU cannot be started: {error}"));
        }
        Err(_) => {
            return failed(format!(
                "the program on the GPU did not end within {} s",
                LIMIT.as_secs()
            ));
        }
    };
    if output.status.success() {
        let gpus = String::from_utf8_lossy(&output.stdout).lines().count();
        let message = format!("memory of GPUs was written, read and compared: {gpus}");
        return Finding::ready(Component::Cuda, message);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> = errors.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if errors.is_empty() {
        return failed(format!("the program on the GPU ended with {}", output.status));
    }
    failed(errors.join(" "))
}
