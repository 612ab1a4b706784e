//! One life of `nvidia-imex`, as a child process.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use crate::ctl::cannot_start;

/// Time for an orderly end.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A running service. It is killed when dropped.
#[derive(Debug)]
pub(crate) struct Service {
    child: Child,
    started: Instant,
}

impl Service {
    /// Starts the service. Its output is that of this process.
    pub(crate) fn start(program: &Path, config_file: &Path) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.arg("-c").arg(config_file).stdin(Stdio::null()).kill_on_drop(true);
        let child = command
            .spawn()
            .map_err(|error| cannot_start(&program.display().to_string(), &error))?;
        Ok(Self { child, started: Instant::now() })
    }

    /// The process; `None` once it has ended and was reaped.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Waits for the end, and reaps the process. It may be dropped without a loss.
    pub(crate) async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Sends a signal. A process that has ended gets none.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else { return };
        if let Err(error) = kill_process(pid, signal) {
            tracing::warn!(pid = pid.as_raw_nonzero().get(), %error, "cannot signal nvidia-imex");
        }
    }

    /// Ends the service: SIGTERM, and SIGKILL five seconds later.
    pub(crate) async fn stop(mut self) {
        self.signal(Signal::TERM);
        if timeout(STOP_TIMEOUT, self.child.wait()).await.is_ok() {
            return;
        }
        tracing::warn!("nvidia-imex does not end in {} s: it is killed", STOP_TIMEOUT.as_secs());
        if let Err(error) = self.child.kill().await {
            tracing::warn!(%error, "cannot kill nvidia-imex");
        }
    }
}
