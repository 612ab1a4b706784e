//! Real nodes that are virtual machines: a Debian kernel, systemd, cgroup version 2 alone, `AppArmor`.
//!
//! QEMU emulates the processor, so the machine needs no right to virtualise. Only the launch and the
//! node's own setup differ from a node in namespaces. The programs, their config and the agent's
//! chart are the same:
//!
//! ```text
//!  the machine                                     the virtual machine
//!
//!  bridge octavo-<lab> ── ov<lab>-<n> (tap) ═════> eth0
//!  /, by virtiofsd ══════════════════════════════> /machine, parts of it also at their own paths
//!  <state>/real/<node>/disk.img ═════════════════> /, a copy of the cached image
//!  qemu ─────────────── its kernel starts ───────> systemd ──> octavo-node, containerd, kubelet
//! ```
//!
//! | file | content |
//! |---|---|
//! | `image` | the disk with Debian, made once |
//! | `guest` | script and systemd units that make the machine a node |

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::time::Instant;

use super::{NodeContext, host_network, requirements, tool};
use crate::cluster::layout::Layout;
use crate::cluster::process::{self, CommandLine, Process};

pub(super) mod guest;
pub(crate) mod image;

/// Memory of a virtual machine.
const MEMORY: &str = "3G";

/// Processors of a virtual machine.
const PROCESSORS: &str = "2";

/// Tag by which the virtual machine mounts the machine's files.
const FILES_TAG: &str = "machine";

/// Name of the socket between QEMU and virtiofsd in a node's folder.
const SOCKET: &str = "files.sock";

/// Folder of virtiofsd's pid files.
const PID_FILES: &str = "/run/virtiofsd";

/// Longest wait for the program that shares the machine's files.
const FILES_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts the virtual machine of a node. The remains of its last run are gone.
pub(super) async fn start(context: &NodeContext<'_>, image: &Path) -> anyhow::Result<()> {
    let (layout, name) = (context.layout, context.node.name.as_str());
    let disk = layout.real_node(name).join("disk.img");
    if !disk.exists() {
        let (from, to) = (image.join(image::DISK), disk.with_extension("next"));
        let (from, to) = (from.to_string_lossy(), to.to_string_lossy());
        tool::run("cp", &["--sparse=always", "--reflink=auto", &from, &to])?;
        std::fs::rename(&*to, &disk).with_context(|| format!("write {}", disk.display()))?;
    }
    let tap = host_network::add_tap(context)?;
    process::allow_open_files();
    let log = layout.real_log(name, "node");
    let socket = layout.real_node(name).join(SOCKET);
    let _ = std::fs::remove_file(&socket);
    let files = process::spawn(&files(&socket)?, layout.root(), &log, &files_pid(layout, name))
        .context("start virtiofsd")?;
    wait_for(&socket, files, &log).await?;
    let command = qemu(context, image, &disk, &socket, &tap)?;
    process::spawn(&command, layout.root(), &log, &layout.real_pid(name))
        .with_context(|| format!("start {name}"))?;
    Ok(())
}

/// The process that shares the machine's files with a node. It ends with the virtual machine.
pub(super) fn files_process(layout: &Layout, name: &str) -> Option<Process> {
    Process::read(&files_pid(layout, name)).filter(|process| process.is_alive())
}

/// Removes what virtiofsd of Debian 12 leaves outside of the state folder: pid files, named after their
/// sockets.
pub(super) fn remove_pid_files(layout: &Layout) {
    for node in std::fs::read_dir(layout.real()).into_iter().flatten().flatten() {
        let socket = node.path().join(SOCKET);
        let stem = socket.to_string_lossy().replace('/', ".");
        let _ = std::fs::remove_file(format!("{PID_FILES}/{stem}.pid"));
    }
}

fn files_pid(layout: &Layout, name: &str) -> PathBuf {
    layout.pids().join(format!("{name}.files"))
}

fn files(socket: &Path) -> anyhow::Result<CommandLine> {
    let program = requirements::virtiofsd().context("there is no virtiofsd on this machine")?;
    let socket = format!("--socket-path={}", socket.display());
    let options = "source=/,cache=auto,sandbox=chroot,announce_submounts";
    Ok(command_line(program, [socket, "-o".to_owned(), options.to_owned()]))
}

async fn wait_for(socket: &Path, files: Process, log: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + FILES_TIMEOUT;
    while !socket.exists() {
        if !files.is_alive() || Instant::now() >= deadline {
            bail!("virtiofsd shares no files with the virtual machine: see {}", log.display());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn qemu(
    context: &NodeContext<'_>,
    image: &Path,
    disk: &Path,
    socket: &Path,
    tap: &str,
) -> anyhow::Result<CommandLine> {
    let program = requirements::find(requirements::QEMU).context("there is no QEMU here")?;
    let kernel = format!(
        "root=/dev/vda rw console=ttyS0 quiet panic=1 net.ifnames=0 systemd.show_status=no \
         systemd.mask=serial-getty@ttyS0.service systemd.hostname={} {}={}",
        context.node.name,
        guest::SETUP_PARAMETER,
        guest::setup_path(context)?.display()
    );
    let memory = format!("memory-backend-memfd,id=memory,share=on,size={MEMORY}");
    let drive = format!("file={},format=raw,if=virtio,cache=unsafe", comma_escaped(disk));
    let files = format!("socket,id=files,path={}", comma_escaped(socket));
    let (device, net) = (
        format!("vhost-user-fs-pci,chardev=files,tag={FILES_TAG}"),
        format!("tap,id=net,ifname={tap},script=no,downscript=no"),
    );
    let card = format!("virtio-net-pci,netdev=net,mac=52:54:00:0c:7a:{:02x}", context.number);
    let path = |name: &str| image.join(name).display().to_string();
    let args = [
        ["-no-user-config", "-nodefaults"],
        ["-machine", "q35,memory-backend=memory"],
        // Emulated even where the processor could virtualise: the same machine everywhere.
        ["-accel", "tcg,thread=multi"],
        ["-cpu", "max"],
        ["-smp", PROCESSORS],
        ["-m", MEMORY],
        ["-object", &memory],
        ["-kernel", &path(image::KERNEL)],
        ["-initrd", &path(image::INITRD)],
        ["-append", &kernel],
        // A killed QEMU loses nothing: what was written is in the machine's page cache.
        ["-drive", &drive],
        ["-chardev", &files],
        ["-device", &device],
        ["-netdev", &net],
        ["-device", &card],
        ["-device", "virtio-rng-pci"],
        // Appended: QEMU's own messages are in the same log.
        ["-chardev", "file,id=console,path=/dev/stdout,append=on"],
        ["-serial", "chardev:console"],
        ["-display", "none"],
        ["-monitor", "none"],
    ];
    let args = args.iter().flatten().map(|word| (*word).to_owned());
    Ok(command_line(program, args.chain(["-no-reboot".to_owned()])))
}

fn command_line(program: PathBuf, args: impl IntoIterator<Item = String>) -> CommandLine {
    CommandLine { program, args: args.into_iter().collect(), env: BTreeMap::new() }
}

/// A path as a value of one of QEMU's lists, in which a comma is written twice.
fn comma_escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}
