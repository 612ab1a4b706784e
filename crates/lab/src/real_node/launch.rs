//! Starts a real node and finds its processes from outside.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, bail};

use super::{NodeContext, RealProgram, cgroups, host_network, requirements, virtual_machine};
use crate::cluster::layout::Layout;
use crate::cluster::process::{self, CommandLine, Process};
use crate::cluster::start;
use crate::nodes::provision;

/// Lines of a node's log in an error message.
const LOG_TAIL_LINES: usize = 12;

/// Starts a node unless it runs. Removes the remains of its last run first.
pub(crate) async fn start(context: &NodeContext<'_>) -> anyhow::Result<()> {
    let (layout, name) = (context.layout, context.node.name.as_str());
    if let Some(image) = &context.real.virtual_machines {
        if main_process(layout, name).is_some() {
            return Ok(());
        }
        stop(layout, name).await;
        provision::reboot(&layout.node(name))?;
        return virtual_machine::start(context, image).await;
    }
    if main_process(layout, name).is_some() && init(layout, name).is_some() {
        return Ok(());
    }
    stop(layout, name).await;
    cgroups::remove_node(layout, name).await?;
    cgroups::create(layout, name)?;
    let unshare_path =
        requirements::find("unshare").context("there is no unshare on this machine")?;
    let words = ["--net", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child=SIGKILL"];
    let mut args: Vec<String> = words.map(str::to_owned).to_vec();
    args.push(context.settings.octavo.display().to_string());
    args.extend(["lab", "real-node", "--state-dir"].map(str::to_owned));
    args.push(layout.root().display().to_string());
    args.push(name.to_owned());
    let command =
        CommandLine { program: unshare_path, args, env: std::collections::BTreeMap::new() };
    process::allow_open_files();
    let log = layout.real_log(name, "node");
    let unshare = process::spawn(&command, layout.root(), &log, &layout.real_pid(name))
        .with_context(|| format!("start {name}"))?;
    host_network::connect(context, unshare).await
}

/// Kills a node with all its processes and mounts.
pub(crate) async fn stop(layout: &Layout, name: &str) {
    let all: Vec<Process> = main_process(layout, name)
        .into_iter()
        .chain(init(layout, name))
        .chain(virtual_machine::files_process(layout, name))
        .collect();
    process::stop(&all, std::time::Duration::ZERO).await;
}

/// Fails with the end of the node's log if the node has ended.
pub(crate) fn check_alive(layout: &Layout, name: &str) -> anyhow::Result<()> {
    if main_process(layout, name).is_some() {
        return Ok(());
    }
    let log = layout.real_log(name, "node");
    bail!(
        "{name} has ended; the end of its log {}:\n{}",
        log.display(),
        start::tail(&fs::read_to_string(&log).unwrap_or_default(), LOG_TAIL_LINES)
    )
}

/// The node's `unshare` or QEMU process; the node ends with it.
pub(crate) fn main_process(layout: &Layout, name: &str) -> Option<Process> {
    Process::read(&layout.real_pid(name)).filter(|process| process.is_alive())
}

/// The processes that keep the lab's nodes alive, independent of the lab's settings.
pub(crate) fn all_processes(layout: &Layout) -> Vec<Process> {
    let inits = process::processes_of_lab(layout.root())
        .into_iter()
        .filter(|process| inner_pid(process.pid) == Some(1));
    let files = fs::read_dir(layout.pids()).into_iter().flatten().flatten();
    let is_real = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b"real-");
    let main_processes = files
        .filter(|file| is_real(&file.file_name()))
        .filter_map(|file| Process::read(&file.path()))
        .filter(|process| process.is_alive());
    main_processes.chain(inits).collect()
}

/// Process 1 of the node.
pub(crate) fn init(layout: &Layout, name: &str) -> Option<Process> {
    process::processes_of_lab(layout.root())
        .into_iter()
        .find(|process| inner_pid(process.pid) == Some(1) && has_last_argument(process.pid, name))
}

/// A running program of the node.
pub(crate) fn program(layout: &Layout, name: &str, program: RealProgram) -> Option<Process> {
    let text = fs::read_to_string(layout.real_pid_file(name, program)).ok()?;
    let inner: i32 = text.trim().parse().ok()?;
    let namespace = namespace(init(layout, name)?.pid)?;
    process::processes_of_lab(layout.root())
        .into_iter()
        .find(|process| {
            inner_pid(process.pid) == Some(inner)
                && self::namespace(process.pid).as_ref() == Some(&namespace)
        })
        .filter(|process| process.is_alive())
}

/// Identifies the pid namespace of a process.
fn namespace(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

/// Whether the last argument of a process is `name`.
fn has_last_argument(pid: i32, name: &str) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.strip_suffix(b"\0").and_then(|words| words.rsplit(|byte| *byte == 0).next())
        == Some(name.as_bytes())
}

/// The process's id in its own pid namespace.
fn inner_pid(pid: i32) -> Option<i32> {
    status(pid, "NSpid:")?.split_whitespace().last()?.parse().ok()
}

fn status(pid: i32, field: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(field)).map(str::to_owned)
}
