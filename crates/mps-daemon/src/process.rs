//! One life of a daemon, as a child process.
//!
//! The daemon runs in a folder of root's. Clients have a folder with links to the sockets that they need, which they cannot change: a
//! client may be root, and may not end the daemon, change its limits, or stand in for it.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use octavo_gpu::programs;
use octavo_node::mps::{MpsDaemonFolder, MpsSettings};
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
/// Lines of the daemon's output that an error has.
const KEPT_LINES: usize = 4;

/// What clients need of the daemon's folder: its socket for clients, and its pipe for their logs. The lock is for commands.
const FOR_CLIENTS: [&str; 3] = ["control", "control_lock", "log"];

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

/// The last lines of the daemon's output.
type LastLines = Arc<Mutex<VecDeque<String>>>;

impl Process {
    /// Starts a daemon, and waits until it has its limits. An error says why that failed; nothing runs then.
    pub(crate) async fn start(
        programs: &Programs,
        name: &str,
        folder: &MpsDaemonFolder,
        settings: &MpsSettings,
    ) -> Result<Self, String> {
        prepare(folder).map_err(|error| format!("its folder cannot be prepared: {error}"))?;
        let mut command = command(programs, &folder.shm(), settings.multi_user)?;
        command
            .env(PIPE_VARIABLE, folder.private())
            .env("CUDA_MPS_LOG_DIRECTORY", folder.private())
            .env("CUDA_VISIBLE_DEVICES", settings.devices.join(","))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child =
            command.spawn().map_err(|error| format!("{PROGRAM} cannot be started: {error}"))?;
        let lines = LastLines::default();
        log(name, child.stdout.take(), &lines);
        log(name, child.stderr.take(), &lines);
        let control = Control::new(&programs.driver_root, folder.private());
        let end = Instant::now() + START_TIME;
        while !control.answers().await {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!(
                    "{PROGRAM} has ended at its start ({status}): {}",
                    last_words(&lines)
                ));
            }
            if Instant::now() >= end {
                let seconds = START_TIME.as_secs();
                return Err(format!(
                    "{PROGRAM} does not answer after {seconds} s: {}",
                    last_words(&lines)
                ));
            }
            sleep(START_LOOK).await;
        }
        control.set_limits(settings).await.map_err(|error| error.to_string())?;
        open(folder).map_err(|error| format!("clients cannot have its socket: {error}"))?;
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
            let own = std::process::id().to_string();
            command.args(["mps-daemon", "enter", "--parent", &own, "--shm"]).arg(shm).arg("--");
            command.arg(daemon.get_program());
            command.envs(daemon.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command
        }
    };
    command.arg("-f").args(multi_user.then_some("-M"));
    Ok(command)
}

/// Makes the folders of a daemon. What an earlier life left has no daemon, but for the shared memory: containers have it.
fn prepare(folder: &MpsDaemonFolder) -> std::io::Result<()> {
    let private = folder.private();
    if private.exists() {
        fs::remove_dir_all(&private)?;
    }
    fs::DirBuilder::new().mode(0o700).create(&private)?;
    fs::create_dir_all(folder.pipe())?;
    fs::set_permissions(folder.pipe(), fs::Permissions::from_mode(0o755))?;
    shm::prepare(&folder.shm())?;
    shm::label(&folder.pipe())?;
    shm::label(&folder.shm())
}

/// Gives clients the daemon's sockets. Containers have their folder since an earlier life, so it stays.
fn open(folder: &MpsDaemonFolder) -> std::io::Result<()> {
    for name in FOR_CLIENTS {
        let (own, link) = (folder.private().join(name), folder.pipe().join(name));
        if link.symlink_metadata().is_ok() {
            fs::remove_file(&link)?;
        }
        match fs::hard_link(&own, &link) {
            // A daemon that has no such file does not need it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(()) => shm::label(&link)?,
        }
    }
    Ok(())
}

/// Passes on what the daemon writes, and keeps the last lines.
fn log(name: &str, stream: Option<impl AsyncRead + Unpin + Send + 'static>, last: &LastLines) {
    let Some(stream) = stream else { return };
    let (name, last) = (name.to_owned(), Arc::clone(last));
    tokio::spawn(async move {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            // Commands and their answers are in every line of a look at clients.
            tracing::debug!(daemon = name, "{line}");
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            last.truncate(KEPT_LINES - 1);
            last.push_front(line);
        }
    });
}

/// The last lines, in order.
fn last_words(lines: &LastLines) -> String {
    let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
    let lines: Vec<&str> = lines.iter().rev().map(String::as_str).collect();
    if lines.is_empty() { "it wrote nothing".to_owned() } else { lines.join("; ") }
}
