//! The IMEX service that the host runs, as `nvidia-imex-ctl` reports it.
//!
//! NVIDIA's driver runs the command with the driver's root as its own. Here it is run where it lies, and gets the socket's path
//! as this process sees it: a change of root needs a program that the agent's image does not have.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use octavo_hook::rootfs::Rootfs;
use octavo_node::NodePaths;
use tokio::process::Command;
use tokio::time::timeout;

/// The command.
pub(super) const PROGRAM: &str = "nvidia-imex-ctl";
/// Folders of the driver's root in which it may lie.
const FOLDERS: [&str; 6] = ["/opt/bin", "/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"];
/// Time for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Most characters of an answer that a message shows.
const SHOWN: usize = 300;

/// Asks the host's service once. The error says what is wrong, and what to do.
pub(super) async fn check(paths: &NodePaths, socket: &Path) -> Result<(), String> {
    let root = paths.driver_root_seen.clone();
    let found = tokio::task::spawn_blocking(move || find(&root, PROGRAM)).await;
    let Some(program) = found.ok().flatten() else {
        return Err(format!(
            "the driver's root {} has no {PROGRAM}, which tells whether the node's IMEX service is ready (imex.mode: \
             hostManaged): install nvidia-imex on the node",
            paths.driver_root.display()
        ));
    };
    let mut command = Command::new(program);
    let seen = paths.driver_seen(socket);
    command.arg("-q").arg(format!("--u={}", seen.display()));
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = match timeout(ANSWER_TIMEOUT, command.output()).await {
        Err(_) => {
            let seconds = ANSWER_TIMEOUT.as_secs();
            return Err(format!(
                "{PROGRAM} does not end in {seconds} s: see the service nvidia-imex of the node"
            ));
        }
        Ok(Err(error)) => return Err(format!("cannot start {PROGRAM} of the node: {error}")),
        Ok(Ok(output)) => output,
    };
    judge(&output, socket)
}

/// A program of the driver as this process sees it. Links do not lead out of the root.
pub(super) fn find(root: &Path, program: &str) -> Option<PathBuf> {
    let rootfs = Rootfs::open(root).ok()?;
    FOLDERS.iter().find_map(|folder| {
        let path = Path::new(folder).join(program);
        let place = rootfs.is_file(&path).then(|| rootfs.place(&path).ok())??;
        fs::read_link(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()
    })
}

/// Ready is the word `READY` anywhere in the output, but not after `NOT`.
fn judge(output: &Output, socket: &Path) -> Result<(), String> {
    let answer = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let text = if errors.trim().is_empty() { &answer } else { &errors };
        return Err(format!(
            "the node's IMEX service does not answer ({PROGRAM}: {}; {}): start the service nvidia-imex, with \
             IMEX_CMD_ENABLED=1 and IMEX_CMD_UNIX_DOMAIN_PATH={} in its config",
            shorten(text),
            output.status,
            socket.display()
        ));
    }
    let text = format!("{answer} {errors}");
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let is_ready = words.iter().enumerate().any(|(place, word)| {
        let before = place.checked_sub(1).and_then(|before| words.get(before));
        *word == "READY" && before != Some(&"NOT")
    });
    if is_ready {
        return Ok(());
    }
    Err(format!(
        "the node's IMEX service is not ready (it answers {:?}): see the service nvidia-imex of the node, and its list of nodes",
        shorten(&text)
    ))
}

/// The first line of a text, without its end if it is long.
fn shorten(text: &str) -> String {
    text.trim().lines().next().unwrap_or_default().chars().take(SHOWN).collect()
}
