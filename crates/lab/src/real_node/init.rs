//! What runs as process 1 of a real node: makes the file system and the network, starts the node's
//! programs, starts them again when they end, and takes orphans off the process table. When it
//! ends, the kernel ends everything in the node.

use std::fs::File;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, WaitOptions};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::config::CONTAINERD_SOCKET;
use super::{Place, RealProgram, config, inside, mounts, places, tool};
use crate::layout::Layout;
use crate::process::MARK;
use crate::settings::Settings;
use crate::{nodes, start};

/// A program that ends sooner than this after its start did not work at all.
const TOO_SOON: Duration = Duration::from_secs(2);

/// So many starts in a row that do not work at all end the node.
const ATTEMPTS: u32 = 5;

/// How long to wait before the next of these starts.
const PAUSE: Duration = Duration::from_millis(300);

/// How often containerd's socket is tried.
const POLL: Duration = Duration::from_millis(10);

/// How many lines of a program's log a message shows.
const TAIL: usize = 8;

/// A child process that has ended.
type Exit = (Pid, ExitStatus);

/// Runs the node until it is killed, or until one of its programs cannot be started.
pub(crate) async fn run(layout: &Layout, name: &str) -> anyhow::Result<()> {
    if std::process::id() != 1 {
        bail!("a real node needs namespaces of its own: `octavo lab up --real-node 1` starts one");
    }
    let settings = Settings::read(layout)?.context("there is no lab in this folder")?;
    let place = places(layout, &settings)
        .find(|place| place.node.name == name)
        .with_context(|| format!("the lab has no real node {name}"))?;
    mounts::prepare(&place)?;
    inside::set_up(&place).await?;
    // The node's `/run` is empty: for its programs it has booted.
    nodes::reboot(&layout.node(name))?;
    let mut node = RunningNode { place, children: Vec::new() };
    node.start(RealProgram::Containerd, 0)?;
    let mut exits = reap();
    containerd_serves(&mut node, &mut exits).await?;
    import_images(&mut node, &mut exits).await?;
    node.start(RealProgram::Kubelet, 0)?;
    node.start(RealProgram::Agent, 0)?;
    loop {
        let exit = exits.recv().await.context("the node's processes cannot be waited for")?;
        node.see(exit).await?;
    }
}

struct RunningNode<'a> {
    place: Place<'a>,
    children: Vec<Child>,
}

struct Child {
    pid: Pid,
    program: RealProgram,
    began: Instant,
    /// How many starts before this one did not work at all, in a row.
    failures: u32,
}

impl RunningNode<'_> {
    fn start(&mut self, program: RealProgram, failures: u32) -> anyhow::Result<()> {
        let log = self.place.layout.real_log(&self.place.node.name, program.name());
        let mut command = config::command(&self.place, program);
        let pid = spawn(&mut command, &log)?;
        let pid_file = self.place.layout.real_pid_file(&self.place.node.name, program);
        std::fs::write(&pid_file, pid.as_raw_nonzero().to_string())
            .with_context(|| format!("write {}", pid_file.display()))?;
        self.children.push(Child { pid, program, began: Instant::now(), failures });
        Ok(())
    }

    /// Starts again what has ended. What is not known is an orphan of a container.
    async fn see(&mut self, (pid, status): Exit) -> anyhow::Result<()> {
        let Some(at) = self.children.iter().position(|child| child.pid == pid) else {
            return Ok(());
        };
        let child = self.children.swap_remove(at);
        let soon = child.began.elapsed() < TOO_SOON;
        let failures = if soon { child.failures + 1 } else { 0 };
        let name = child.program.name();
        if failures >= ATTEMPTS {
            let log = self.place.layout.real_log(&self.place.node.name, name);
            bail!(
                "{name} cannot be started ({status}); the end of its log {}:\n{}",
                log.display(),
                start::tail(&std::fs::read_to_string(&log).unwrap_or_default(), TAIL)
            );
        }
        tracing::info!(program = name, %status, "ended; starting it again");
        if soon {
            tokio::time::sleep(PAUSE).await;
        }
        self.start(child.program, failures)
    }
}

async fn containerd_serves(
    node: &mut RunningNode<'_>,
    exits: &mut mpsc::Receiver<Exit>,
) -> anyhow::Result<()> {
    let mut poll = tokio::time::interval(POLL);
    loop {
        tokio::select! {
            Some(exit) = exits.recv() => node.see(exit).await?,
            _ = poll.tick() => if UnixStream::connect(CONTAINERD_SOCKET).await.is_ok() {
                return Ok(());
            }
        }
    }
}

async fn import_images(
    node: &mut RunningNode<'_>,
    exits: &mut mpsc::Receiver<Exit>,
) -> anyhow::Result<()> {
    let log = node.place.layout.real_log(&node.place.node.name, "node");
    let importer = spawn(&mut config::import(&node.place), &log)?;
    while let Some((pid, status)) = exits.recv().await {
        if pid != importer {
            node.see((pid, status)).await?;
        } else if status.success() {
            return Ok(());
        } else {
            bail!("containerd did not take the images ({status})");
        }
    }
    bail!("the node's processes cannot be waited for")
}

/// Starts a program in a process group of its own, with an environment that says no more than which
/// lab it is of, and its output added to a log.
fn spawn(command: &mut Command, log: &std::path::Path) -> anyhow::Result<Pid> {
    let open = || File::options().create(true).append(true).open(log);
    let (out, errors) =
        open().and_then(|file| Ok((file.try_clone()?, file))).context("open the program's log")?;
    let containerd = command.get_program().to_owned();
    let child = command
        .env_clear()
        .env("PATH", tool::PATH)
        .env("HOME", "/root")
        .env(MARK, std::env::var_os(MARK).unwrap_or_default())
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(errors)
        .spawn()
        .with_context(|| format!("start {}", containerd.display()))?;
    // Its end is told by [`reap`], which waits for every child.
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a process id fits 31 bits")
}

/// Waits for every child that ends, on a thread of its own: there is always one, containerd at
/// least.
fn reap() -> mpsc::Receiver<Exit> {
    let (tell, told) = mpsc::channel(64);
    std::thread::spawn(move || {
        loop {
            let exit = match rustix::process::wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) => (pid, ExitStatus::from_raw(status.as_raw())),
                // Between the end of the last child and the start of the next.
                Err(rustix::io::Errno::CHILD) => {
                    std::thread::sleep(POLL);
                    continue;
                }
                _ => continue,
            };
            if tell.blocking_send(exit).is_err() {
                return;
            }
        }
    });
    told
}
