//! One life of a daemon, as a child process.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use octavo_gpu::programs;
use octavo_node::mps::{MpsDaemonFolder, MpsSpec};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::control::{Control, PIPE_VARIABLE, PROGRAM};
use crate::shm;

/// Time until the daemon answers.
const START_TIME: Duration = Duration::from_secs(10);
/// Interval of questions whether it does.
const START_LOOK: Duration = Duration::from_millis(10);
/// Time for an orderly end.
const STOP_TIME: Duration = Duration::from_secs(5);

/// The socket by which limits are changed.
const PRIVILEGED: &str = "control_privileged";
/// What else the commands need beside it.
const SHARED: [&str; 4] = ["control", "control_lock", "log", "nvidia-cuda-mps-control.pid"];

/// Programs that a life needs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// The driver's root.
    pub(crate) driver_root: PathBuf,
    /// This program, which starts the daemon with its own shared memory; `None`: the daemon is started as it is.
    pub(crate) enter: Option<PathBuf>,
}

/// A running daemon. It is killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    control: Control,
}

impl Process {
    /// Starts a daemon, and waits until it has its limits. An error says why that failed; nothing runs then.
    pub(crate) async fn start(
        programs: &Programs,
        name: &str,
        folder: &MpsDaemonFolder,
        spec: &MpsSpec,
    ) -> Result<Self, String> {
        prepare(folder).map_err(|error| format!("its folder cannot be prepared: {error}"))?;
        let mut command = command(programs, &folder.shm(), spec.multi_user)?;
        command
            .env(PIPE_VARIABLE, folder.pipe())
            .env("CUDA_MPS_LOG_DIRECTORY", folder.log())
            .env("CUDA_VISIBLE_DEVICES", spec.devices.join(","))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child =
            command.spawn().map_err(|error| format!("{PROGRAM} cannot be started: {error}"))?;
        log(name, child.stdout.take());
        log(name, child.stderr.take());
        let mut control = Control::new(&programs.driver_root, folder.pipe());
        let end = Instant::now() + START_TIME;
        while !control.answers().await {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!(
                    "{PROGRAM} has ended at its start ({status}); see the log of this program"
                ));
            }
            if Instant::now() >= end {
                return Err(format!("{PROGRAM} does not answer after {} s", START_TIME.as_secs()));
            }
            sleep(START_LOOK).await;
        }
        control = Control::new(
            &programs.driver_root,
            hide_privileged(folder)
                .map_err(|error| format!("its socket cannot be moved: {error}"))?,
        );
        control.set_limits(spec).await.map_err(|error| error.to_string())?;
        Ok(Self { child, control })
    }

    /// Speaks to it.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// The process; `None` once it has ended.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for its end. It may be dropped without a loss.
    pub(crate) async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends it, and so its clients.
    pub(crate) async fn stop(mut self) {
        if self.control.quit().await.is_ok() && timeout(STOP_TIME, self.child.wait()).await.is_ok()
        {
            return;
        }
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
        }
        if timeout(STOP_TIME, self.child.wait()).await.is_err()
            && let Err(error) = self.child.kill().await
        {
            tracing::warn!(%error, "cannot kill {PROGRAM}");
        }
    }
}

/// The daemon in the foreground, in one or in several users' mode.
fn command(programs: &Programs, shm: &Path, multi_user: bool) -> Result<Command, String> {
    let daemon = programs::command(&programs.driver_root, PROGRAM).map_err(|it| it.to_string())?;
    let mut command = match &programs.enter {
        None => Command::from(daemon),
        Some(enter) => {
            let mut command = Command::new(enter);
            command.args(["mps-daemon", "enter", "--shm"]).arg(shm).arg("--");
            command.arg(daemon.get_program());
            command.envs(daemon.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command
        }
    };
    command.arg("-f").args(multi_user.then_some("-M"));
    Ok(command)
}

/// Makes the folders of a daemon.
fn prepare(folder: &MpsDaemonFolder) -> std::io::Result<()> {
    // Sockets of an earlier life have no daemon.
    let _ = fs::remove_dir_all(folder.private());
    for path in [folder.pipe(), folder.log()] {
        fs::create_dir_all(&path)?;
        shm::label(&path)?;
    }
    shm::prepare(&folder.shm())?;
    shm::label(&folder.shm())
}

/// Moves the socket that changes limits and ends the daemon to where clients cannot reach it: a client may be root. Returns the folder
/// that commands use.
fn hide_privileged(folder: &MpsDaemonFolder) -> std::io::Result<PathBuf> {
    let (pipe, private) = (folder.pipe(), folder.private());
    fs::create_dir_all(&private)?;
    for name in SHARED {
        symlink(pipe.join(name), private.join(name))?;
    }
    match fs::rename(pipe.join(PRIVILEGED), private.join(PRIVILEGED)) {
        // Older daemons have one socket for all commands.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(pipe),
        Err(error) => Err(error),
        Ok(()) => Ok(private),
    }
}

/// Passes on what the daemon writes.
fn log(name: &str, stream: Option<impl AsyncRead + Unpin + Send + 'static>) {
    let Some(stream) = stream else { return };
    let name = name.to_owned();
    tokio::spawn(async move {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            // Commands and their answers are in every line of a look at clients.
            tracing::debug!(daemon = name, "{line}");
        }
    });
}
