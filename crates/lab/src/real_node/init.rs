//! Process 1 of a real node. It sets up the file system and the network, and supervises the node's
//! programs. It also reaps orphans. When it ends, the kernel ends every process of the node.

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
use super::{NodeContext, RealProgram, config, mounts, node_contexts, node_network, tool};
use crate::cluster::layout::Layout;
use crate::cluster::process::STATE_DIR_VARIABLE;
use crate::cluster::settings::Settings;
use crate::cluster::start;
use crate::nodes::provision;

/// A program that ends sooner than this after its start counts as a failed start.
const MIN_UPTIME: Duration = Duration::from_secs(2);

/// Consecutive failed starts of a program that end the node.
const MAX_FAILED_STARTS: u32 = 5;

/// Delay before the next start after a failed one.
const RESTART_DELAY: Duration = Duration::from_millis(300);

/// Interval between two attempts to connect to containerd.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Lines of a program's log in an error message.
const LOG_TAIL_LINES: usize = 8;

/// A child process that has ended.
type Exit = (Pid, ExitStatus);

/// Runs the node until it is killed, or until one of its programs cannot be started.
pub(crate) async fn run(layout: &Layout, name: &str) -> anyhow::Result<()> {
    if std::process::id() != 1 {
        bail!("a real node needs namespaces of its own: `octavo lab up --real-node 1` starts one");
    }
    let settings = Settings::read(layout)?.context("there is no lab in this folder")?;
    let context = node_contexts(layout, &settings)
        .find(|context| context.node.name == name)
        .with_context(|| format!("the lab has no real node {name}"))?;
    mounts::prepare(&context)?;
    node_network::set_up(&context).await?;
    // The node's `/run` is empty, so its programs see a fresh boot.
    provision::reboot(&layout.node(name))?;
    let mut node = RunningNode { context, children: Vec::new() };
    node.start(RealProgram::Containerd, 0)?;
    let mut exits = reap();
    wait_for_containerd(&mut node, &mut exits).await?;
    node.start(RealProgram::Kubelet, 0)?;
    loop {
        let exit = exits.recv().await.context("the node's processes cannot be waited for")?;
        node.handle_exit(exit).await?;
    }
}

struct RunningNode<'a> {
    context: NodeContext<'a>,
    children: Vec<Child>,
}

struct Child {
    pid: Pid,
    program: RealProgram,
    began: Instant,
    /// Number of consecutive failed starts before this one.
    failed_starts: u32,
}

impl RunningNode<'_> {
    fn start(&mut self, program: RealProgram, failed_starts: u32) -> anyhow::Result<()> {
        let log = self.context.layout.real_log(&self.context.node.name, program.name());
        let mut command = config::command(&self.context, program);
        let pid = spawn(&mut command, &log)?;
        let pid_file = self.context.layout.real_pid_file(&self.context.node.name, program);
        std::fs::write(&pid_file, pid.as_raw_nonzero().to_string())
            .with_context(|| format!("write {}", pid_file.display()))?;
        self.children.push(Child { pid, program, began: Instant::now(), failed_starts });
        Ok(())
    }

    /// Restarts an ended program. Unknown processes are orphans of containers.
    async fn handle_exit(&mut self, (pid, status): Exit) -> anyhow::Result<()> {
        let Some(at) = self.children.iter().position(|child| child.pid == pid) else {
            return Ok(());
        };
        let child = self.children.swap_remove(at);
        let ended_early = child.began.elapsed() < MIN_UPTIME;
        let failed_starts = if ended_early { child.failed_starts + 1 } else { 0 };
        let name = child.program.name();
        if failed_starts >= MAX_FAILED_STARTS {
            let log = self.context.layout.real_log(&self.context.node.name, name);
            bail!(
                "{name} cannot be started ({status}); the end of its log {}:\n{}",
                log.display(),
                start::tail(&std::fs::read_to_string(&log).unwrap_or_default(), LOG_TAIL_LINES)
            );
        }
        tracing::info!(program = name, %status, "ended; starting it again");
        if ended_early {
            tokio::time::sleep(RESTART_DELAY).await;
        }
        self.start(child.program, failed_starts)
    }
}

async fn wait_for_containerd(
    node: &mut RunningNode<'_>,
    exits: &mut mpsc::Receiver<Exit>,
) -> anyhow::Result<()> {
    let mut poll = tokio::time::interval(POLL_INTERVAL);
    loop {
        tokio::select! {
            Some(exit) = exits.recv() => node.handle_exit(exit).await?,
            _ = poll.tick() => if UnixStream::connect(CONTAINERD_SOCKET).await.is_ok() {
                return Ok(());
            }
        }
    }
}

/// Starts a program in its own process group. Its environment has only the lab's identity and basic
/// paths, and its output is appended to a log.
fn spawn(command: &mut Command, log: &std::path::Path) -> anyhow::Result<Pid> {
    let open = || File::options().create(true).append(true).open(log);
    let (out, errors) =
        open().and_then(|file| Ok((file.try_clone()?, file))).context("open the program's log")?;
    let program = command.get_program().to_owned();
    let child = command
        .env_clear()
        .env("PATH", tool::PATH)
        .env("HOME", "/root")
        .env(STATE_DIR_VARIABLE, std::env::var_os(STATE_DIR_VARIABLE).unwrap_or_default())
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(errors)
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    // [`reap`] waits for all children and reports the exit.
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a process id fits 31 bits")
}

/// Reaps children on a separate thread. At least containerd is always running.
fn reap() -> mpsc::Receiver<Exit> {
    let (sender, receiver) = mpsc::channel(64);
    std::thread::spawn(move || {
        loop {
            let exit = match rustix::process::wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) => (pid, ExitStatus::from_raw(status.as_raw())),
                // Between the end of the last child and the start of the next.
                Err(rustix::io::Errno::CHILD) => {
                    std::thread::sleep(POLL_INTERVAL);
                    continue;
                }
                _ => continue,
            };
            if sender.blocking_send(exit).is_err() {
                return;
            }
        }
    });
    receiver
}
