//! `octavo share run` on a simulated machine, without a cluster: shares that lend memory to each other.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use octavo_testkit::{eventually, simulated_cuda, simulated_nvml};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const OCTAVO: &str = env!("CARGO_BIN_EXE_octavo");

/// A machine with four GPUs of 15 GiB; one of them remains.
const DESCRIPTION: &str = include_str!("../../../machines/t4.yaml");

/// Makes the files of such a machine in a mount namespace of their own, and keeps that until its input ends.
const ENTER: &str = r#"set -e
mount --make-rprivate /
mount -t tmpfs octavo /run
library=/run/node/driver/usr/lib64
mkdir -p /run/octavo-simulator /run/octavo "$library" /run/node/sys /run/dev
cp "$1" "$library/libcuda.so.1"
cp "$2" "$library/libnvidia-ml.so.1"
cp "$3" "$library/machine.yaml"
mount --bind "$library" /run/octavo-simulator
mount -t tmpfs octavo /run/dev
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/fd /dev/std* /run/dev/
for device in nvidiactl nvidia-modeset nvidia-uvm nvidia-uvm-tools nvidia0; do : > "/run/dev/$device"; done
mkdir /run/dev/shm /run/dev/pts
mount --bind /dev/shm /run/dev/shm
mount --rbind /run/dev /dev
: > /run/ready
exec cat"#;

/// A simulated machine.
struct Machine {
    temp: TempDir,
    namespace: Child,
    commands: Vec<Child>,
}

impl Machine {
    /// `None` without the rights for it.
    async fn up() -> Option<Self> {
        if !geteuid().is_root() {
            return None;
        }
        let temp = tempfile::tempdir().unwrap();
        let (one, _) = DESCRIPTION.split_once("  - minor: 1").unwrap();
        let uuid = "    uuid: GPU-0c7a0000-0000-4000-8000-000000000000";
        let one = one.replace("  - minor: 0\n", &format!("  - minor: 0\n{uuid}\n"));
        let description = temp.path().join("machine.yaml");
        fs::write(&description, one + "simulation: {contextMib: 100}\n").unwrap();
        let namespace = Command::new("unshare")
            .args(["--mount", "bash", "-c", ENTER, "bash"])
            .args([simulated_cuda(), simulated_nvml(), description])
            .stdin(Stdio::piped())
            .spawn();
        let machine = Self { temp, namespace: namespace.unwrap(), commands: Vec::new() };
        eventually("a machine", || machine.path("ready").exists()).await;
        Some(machine)
    }

    /// A file of its `/run`.
    fn path(&self, file: &str) -> PathBuf {
        Path::new("/proc").join(self.namespace.id().to_string()).join("root/run").join(file)
    }

    /// Runs a command in a share. Returns its pid.
    fn run(&mut self, share: &str, memory: &[&str], command: &[&str]) -> u32 {
        let out = File::create(self.temp.path().join(share)).unwrap();
        let child = Command::new("nsenter")
            .arg(format!("--mount=/proc/{}/ns/mnt", self.namespace.id()))
            .args([OCTAVO, "share", "run", "--name", share, "--driver-root", "/run/node/driver"])
            .args(["--sys-root", "/run/node/sys"])
            .args(memory)
            .arg("--")
            .args(command)
            .env("LD_LIBRARY_PATH", "/run/node/driver/usr/lib64")
            .stdin(Stdio::null())
            .stdout(out)
            .spawn();
        self.commands.push(child.unwrap());
        self.commands.last().unwrap().id()
    }

    /// Runs a program that keeps so many MiB, and checks them each second.
    fn keep(&mut self, share: &str, memory: &[&str], mebibytes: &str) -> u32 {
        let check = ["probe", "--keep", mebibytes, "--check-interval", "1"];
        self.run(share, memory, &[&[OCTAVO], &check[..]].concat())
    }

    /// The checks that the program of a share has made. None has found a change.
    fn checks(&self, share: &str) -> usize {
        let text = fs::read_to_string(self.temp.path().join(share)).unwrap();
        let whole = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        whole.inspect(|check| assert_eq!(check["wrongPieces"], 0, "{share}: {check}")).count()
    }

    async fn wait_for_checks(&self, share: &str, count: usize) {
        eventually(&format!("check {count} of {share}"), || self.checks(share) >= count).await;
    }

    /// Whether processes of a share are recorded as on the host.
    fn is_away(&self, share: &str) -> bool {
        let record = format!("octavo-share/{share}/octavo/shares/.{share}_0.swapped");
        self.path(&record).exists()
    }

    /// Whether a command serves the shares.
    fn has_leader(&self) -> bool {
        File::open(self.path("octavo-share/.leases")).is_ok_and(|file| file.try_lock().is_err())
    }

    /// Ends the program of a command, and waits for the command's end.
    fn end(&mut self, command: u32) {
        end_children(command);
        let index = self.commands.iter().position(|child| child.id() == command).unwrap();
        self.commands.remove(index).wait().unwrap();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for child in &mut self.commands {
            end_children(child.id());
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = self.namespace.kill();
        let _ = self.namespace.wait();
    }
}

/// Ends the processes that a process has started.
fn end_children(parent: u32) {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    for child in children.unwrap_or_default().split_whitespace() {
        let child = child.parse().ok().and_then(Pid::from_raw).unwrap();
        let _ = kill_process(child, Signal::KILL);
    }
}

#[tokio::test]
async fn memory_is_lent_and_outlives_the_command_that_divides_it() {
    let Some(mut machine) = Machine::up().await else { return };
    let first = machine.run("first", &["--memory", "1Gi"], &["sleep", "600"]);
    eventually("a command that serves the shares", || machine.has_leader()).await;
    let notebook = machine.keep("notebook", &["--memory", "1Gi", "--memory-limit", "8Gi"], "3072");
    machine.wait_for_checks("notebook", 1).await;
    assert!(!machine.is_away("notebook"));

    // The service is within its request, so the notebook leaves.
    let service = machine.keep("service", &["--memory", "12Gi", "--memory-limit", "13Gi"], "11264");
    machine.wait_for_checks("service", 1).await;
    eventually("the notebook on the host", || machine.is_away("notebook")).await;

    // Another command takes over, and leaves it there.
    machine.end(first);
    eventually("a further command that serves the shares", || machine.has_leader()).await;
    let (of_service, of_notebook) = (machine.checks("service"), machine.checks("notebook"));
    machine.wait_for_checks("service", of_service + 3).await;
    assert!(machine.is_away("notebook"));
    assert_eq!(machine.checks("notebook"), of_notebook);

    // It returns when there is room, with its memory as it was.
    machine.end(service);
    machine.wait_for_checks("notebook", of_notebook + 2).await;
    assert!(!machine.is_away("notebook"));
    machine.end(notebook);
}
