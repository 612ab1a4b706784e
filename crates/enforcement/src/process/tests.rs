//! A container of runc in a hierarchy of cgroup version 2, as nodes have it: its device rules are eBPF programs, and it is
//! found, frozen and killed. Needs root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::Process;
use super::freezer::Freezer;
use super::kill::kill;
use super::proc::Proc;

/// Set where the test runs in a mount namespace of its own.
const INSIDE: &str = "OCTAVO_TEST_IN_CGROUP2";
const HIERARCHY: &str = "/sys/fs/cgroup";
const POD: &str = "0d3b9a2e-8a39-4a3c-9d0c-6d1f6b1a2c3d";

/// A running container; removed when dropped.
struct Container {
    folder: PathBuf,
    name: String,
    pods: PathBuf,
}

#[test]
fn a_container_of_version_2_is_confined_found_frozen_and_killed() {
    if std::env::var_os(INSIDE).is_some() {
        return in_version_2();
    }
    if !can_run() {
        println!("left out: this needs root, runc and busybox, as docs/lab-real-node.md says");
        return;
    }
    let test = "process::tests::a_container_of_version_2_is_confined_found_frozen_and_killed";
    // The machine's own hierarchies stay as they are: runc takes the version that it finds there.
    let script =
        format!("mount -t cgroup2 none {HIERARCHY} && exec \"$0\" --exact --nocapture {test}");
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

fn can_run() -> bool {
    let found = Command::new("sh").args(["-c", "command -v runc && command -v busybox"]).output();
    rustix::process::geteuid().is_root() && found.is_ok_and(|found| found.status.success())
}

fn in_version_2() {
    let folder = tempfile::tempdir().unwrap();
    let container = Container::start(folder.path());
    // No driver stands behind the nodes: the device cgroup decides first.
    let allowed = container.run("busybox cat /dev/nvidia0");
    assert!(error(&allowed).contains("No such device or address"), "{allowed:?}");
    let other = container.run("busybox mknod /dev/nvidia1 c 195 1 && busybox cat /dev/nvidia1");
    assert!(error(&other).contains("Operation not permitted"), "{other:?}");

    let (proc, pid) = (Proc::new("/proc".into()), container.pid());
    let cgroups = proc.cgroups(&pid.to_string()).unwrap();
    assert_eq!(cgroups.pod().as_deref(), Some(POD), "{cgroups:?}");
    let process = Process { pid, start_time: proc.stat(pid).unwrap().start_time };
    let own = proc.cgroups("self").unwrap();
    let freezer = Freezer::new(Path::new(HIERARCHY), own);
    let share = folder.path().join("share");
    freezer.freeze(&share, process, &cgroups).unwrap();
    container.wait_for("frozen 1");
    freezer.thaw(&share).unwrap();
    container.wait_for("frozen 0");
    // A frozen process of version 2 can be killed.
    freezer.freeze(&share, process, &cgroups).unwrap();
    kill(&proc, process).unwrap();
    container.wait_for("populated 0");
    freezer.thaw(&share).unwrap();
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

impl Container {
    /// Starts a container that sleeps, with one device node by number.
    fn start(folder: &Path) -> Self {
        let root = folder.join("rootfs");
        for name in ["bin", "dev", "proc"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        let find = Command::new("sh").args(["-c", "command -v busybox"]).output().unwrap();
        let busybox = String::from_utf8_lossy(&find.stdout).trim().to_owned();
        fs::copy(&busybox, root.join("bin/busybox")).expect("busybox is installed");
        let pods = format!("octavo-test-{}", std::process::id());
        let rights = json!(["CAP_MKNOD"]);
        let config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0}, "cwd": "/", "env": ["PATH=/bin"],
                "args": ["/bin/busybox", "sleep", "600"],
                "capabilities": {"bounding": rights, "effective": rights, "permitted": rights},
            },
            "root": {"path": "rootfs"},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            ],
            "linux": {
                "cgroupsPath": format!("/{pods}/burstable/pod{POD}/c1"),
                "namespaces": [{"type": "pid"}, {"type": "mount"}],
                "devices": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0,
                    "fileMode": 0o666, "uid": 0, "gid": 0}],
                "resources": {"devices": [
                    {"allow": false, "access": "rwm"},
                    {"allow": true, "type": "c", "access": "m"},
                    {"allow": true, "type": "c", "major": 195, "minor": 0, "access": "rw"},
                ]},
            },
        });
        fs::write(folder.join("config.json"), config.to_string()).unwrap();
        let name = pods.clone();
        let pods = Path::new(HIERARCHY).join(pods);
        let container = Self { folder: folder.to_owned(), name, pods };
        let started = container.runc(&["run", "--detach", "--bundle", &folder.to_string_lossy()]);
        assert!(started, "runc starts a container: this needs root, and cgroups of version 2");
        container
    }

    /// Runs an action of runc on it.
    fn runc(&self, action: &[&str]) -> bool {
        let quiet = (Stdio::null(), Stdio::null());
        let mut command = self.command(action);
        command.arg(&self.name).stdin(quiet.0).stdout(quiet.1);
        command.status().unwrap().success()
    }

    fn command(&self, action: &[&str]) -> Command {
        let mut command = Command::new("runc");
        command.arg("--root").arg(self.folder.join("state")).args(action);
        command
    }

    /// Runs a shell's commands in it.
    fn run(&self, commands: &str) -> Output {
        let mut command = self.command(&["exec"]);
        command.args([&self.name, "/bin/busybox", "sh", "-c", commands]).output().unwrap()
    }

    fn cgroup(&self) -> PathBuf {
        self.pods.join(format!("burstable/pod{POD}/c1"))
    }

    fn pid(&self) -> u32 {
        let pids = fs::read_to_string(self.cgroup().join("cgroup.procs")).unwrap();
        pids.trim().parse().unwrap()
    }

    /// Waits until the cgroup's events have a line.
    fn wait_for(&self, event: &str) {
        let deadline = Instant::now() + Duration::from_secs(10);
        let events = || fs::read_to_string(self.cgroup().join("cgroup.events")).unwrap();
        while !events().lines().any(|line| line == event) {
            assert!(Instant::now() < deadline, "never {event:?}: {}", events());
            std::thread::yield_now();
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.runc(&["delete", "--force"]);
        // A cgroup with processes that end cannot be removed yet. The next level needs this one gone.
        for folder in [
            self.cgroup(),
            self.pods.join(format!("burstable/pod{POD}")),
            self.pods.join("burstable"),
            self.pods.clone(),
        ] {
            let _ = fs::remove_dir(folder);
        }
    }
}
