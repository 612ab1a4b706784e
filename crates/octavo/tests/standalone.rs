//! `octavo share run` on a simulated machine, without a cluster: shares that lend memory to each other.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]
#![allow(clippy::print_stderr, reason = "a test says why it is skipped")]

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
    /// Programs without their commands.
    programs: Vec<Pid>,
}

impl Machine {
    /// `None` without the rights for it.
    async fn up() -> Option<Self> {
        if !geteuid().is_root() {
            eprintln!("skipped, for it makes mounts: run it as root");
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
        let (commands, programs) = (Vec::new(), Vec::new());
        let machine = Self { temp, namespace: namespace.unwrap(), commands, programs };
        eventually("a machine", || machine.path("ready").exists()).await;
        Some(machine)
    }

    /// A file of its `/run`.
    fn path(&self, file: &str) -> PathBuf {
        Path::new("/proc").join(self.namespace.id().to_string()).join("root/run").join(file)
    }

    /// Runs a command in a share. Returns its pid.
    fn run(&mut self, share: &str, memory: &[&str], command: &[&str]) -> u32 {
        let out = self.temp.path().join(share);
        let out = File::options().append(true).create(true).open(out).unwrap();
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
        end(&children(command));
        self.take(command).wait().unwrap();
    }

    /// Ends a command, and leaves its program until the end of the test.
    fn kill(&mut self, command: u32) {
        self.programs.extend(children(command));
        let mut child = self.take(command);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn take(&mut self, command: u32) -> Child {
        let index = self.commands.iter().position(|child| child.id() == command).unwrap();
        self.commands.remove(index)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for child in &mut self.commands {
            end(&children(child.id()));
            let _ = child.kill();
            let _ = child.wait();
        }
        end(&self.programs);
        let _ = self.namespace.kill();
        let _ = self.namespace.wait();
    }
}

/// The processes that a process has started.
fn children(parent: u32) -> Vec<Pid> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let children = children.unwrap_or_default();
    children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Ends processes.
fn end(processes: &[Pid]) {
    for process in processes {
        let _ = kill_process(*process, Signal::KILL);
    }
}

#[tokio::test]
async fn commands_that_begin_together_have_one_share() {
    let Some(mut machine) = Machine::up().await else { return };
    // What a command that was killed has left is not used.
    let left = machine.path("octavo-share/team/octavo/shares/team_0");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("state"), "damaged").unwrap();
    for _ in 0..8 {
        let once = [OCTAVO, "probe", "--keep", "16", "--checks", "0"];
        machine.run("team", &["--memory", "6Gi"], &once);
    }
    for mut command in machine.commands.drain(..) {
        assert!(command.wait().unwrap().success());
    }
    assert_eq!(machine.checks("team"), 8);
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

    // It returns when there is room, with its memory as it was. Its command need not be there for that.
    machine.kill(notebook);
    machine.end(service);
    let last = machine.run("last", &["--memory", "1Gi"], &["sleep", "600"]);
    machine.wait_for_checks("notebook", of_notebook + 2).await;
    assert!(!machine.is_away("notebook"));
    machine.end(last);
}
