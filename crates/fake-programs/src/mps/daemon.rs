//! The daemon: its files in the pipe folder, its clients, and its end.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use octavo_fake_gpu::mps::{CONTROL, CONTROL_PRIVILEGED, limits_line};
use rustix::fs::{FileType, FlockOperation, Mode};

use crate::say;

use super::commands::{Service, is_privileged};

/// The file whose lock a daemon holds.
const LOCK: &str = "control_lock";
const PID_FILE: &str = "nvidia-cuda-mps-control.pid";
const LOG_PIPE: &str = "log";

/// Runs the daemon until `quit`.
pub(super) fn run(folder: &Path) -> anyhow::Result<ExitCode> {
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let lock = OpenOptions::new().create(true).append(true).open(folder.join(LOCK))?;
    fs::set_permissions(folder.join(LOCK), Permissions::from_mode(0o666))?;
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        say("An instance of this daemon is already running\n");
        return Ok(ExitCode::FAILURE);
    }
    fs::write(folder.join(PID_FILE), std::process::id().to_string())?;
    let pipe = folder.join(LOG_PIPE);
    let _ = fs::remove_file(&pipe);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o666), 0)?;
    // The privileged socket is first: who finds the other one may use both.
    let privileged = listen(&folder.join(CONTROL_PRIVILEGED), 0o755)?;
    let plain = listen(&folder.join(CONTROL), 0o666)?;
    say(&format!("Starting control daemon using socket {}\n", folder.join(CONTROL).display()));
    let service = Arc::new(Mutex::new(Service::default()));
    let daemon = Daemon { folder: folder.to_owned(), _lock: lock, service };
    let daemon = Arc::new(daemon);
    let other = Arc::clone(&daemon);
    std::thread::spawn(move || other.serve(&privileged, true));
    daemon.serve(&plain, false);
    Ok(ExitCode::SUCCESS)
}

fn listen(path: &Path, mode: u32) -> anyhow::Result<UnixListener> {
    let _ = fs::remove_file(path);
    let listener =
        UnixListener::bind(path).with_context(|| format!("listen on {}", path.display()))?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok(listener)
}

struct Daemon {
    folder: std::path::PathBuf,
    _lock: File,
    service: Arc<Mutex<Service>>,
}

impl Daemon {
    fn serve(self: &Arc<Self>, listener: &UnixListener, by_privileged: bool) {
        for stream in listener.incoming().flatten() {
            let daemon = Arc::clone(self);
            std::thread::spawn(move || daemon.answer(stream, by_privileged));
        }
    }

    fn answer(&self, mut stream: UnixStream, by_privileged: bool) {
        let mut line = String::new();
        if BufReader::new(&stream).read_line(&mut line).is_err() {
            return;
        }
        let line = line.trim_end();
        if let Some(command) = line.strip_prefix("command ") {
            let is_end = command.split_whitespace().next() == Some("quit");
            if is_end && by_privileged && is_privileged(command) {
                self.end();
            }
            let answer = self.service().answer(command, by_privileged);
            let _ = stream.write_all(answer.as_bytes());
            return;
        }
        let mut words = line.split_whitespace().skip(1);
        let (Some(pid), Some(gpu)) = (words.next().and_then(|it| it.parse().ok()), words.next())
        else {
            return;
        };
        let limits = self.service().enter(pid, gpu);
        if stream.write_all(limits_line(limits).as_bytes()).is_ok() {
            // To the client's end.
            let _ = stream.read(&mut [0]);
        }
        self.service().leave(pid, gpu);
    }

    /// Ends the process. The sockets stay, as those of the real daemon do.
    fn end(&self) -> ! {
        let _ = fs::remove_file(self.folder.join(PID_FILE));
        let _ = fs::remove_file(self.folder.join(LOG_PIPE));
        std::process::exit(0);
    }

    fn service(&self) -> std::sync::MutexGuard<'_, Service> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
