use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use octavo_fake_gpu::mps::{Client, Limits};
use octavo_node::mps::{MpsDaemonFolder, MpsSettings, MpsSpec};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::control::PROGRAM;

/// Those of [`spec`] on the first GPU.
const LIMITS: Limits = Limits { percentage: 25.0, memory_bytes: Some(1 << 30) };
/// More than any test needs.
const LONG: Duration = Duration::from_secs(30);

/// A copy of the simulated program beside the nodes' folders. There is one: a file cannot run while another test starts a process and so
/// has it open to be written.
fn program() -> &'static Path {
    static COPY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = COPY.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(PROGRAM);
        fs::copy(octavo_testkit::simulated_program(PROGRAM), &path).unwrap();
        (folder, path)
    });
    path
}

/// A node with the simulated driver's programs, and this program.
struct Node {
    folder: TempDir,
    mps: MpsFolder,
    stop: CancellationToken,
    task: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("mps").tempdir().unwrap();
        let bin = folder.path().join("driver/usr/bin");
        fs::create_dir_all(&bin).unwrap();
        fs::hard_link(program(), bin.join(PROGRAM)).unwrap();
        let mps = MpsFolder::at(folder.path().join("mps"));
        let mut node = Self { folder, mps, stop: CancellationToken::new(), task: None };
        node.start();
        node
    }

    fn start(&mut self) {
        self.stop = CancellationToken::new();
        let driver_root = self.folder.path().join("driver");
        let programs = Programs { driver_root, enter: None };
        let served = serve(self.mps.clone(), programs, self.stop.clone());
        self.task = Some(tokio::spawn(served));
    }

    /// Ends the program as a signal does.
    async fn end(&mut self) {
        self.stop.cancel();
        timeout(LONG, self.task.take().unwrap()).await.unwrap().unwrap().unwrap();
    }

    fn daemon(&self) -> MpsDaemonFolder {
        self.mps.daemon("a")
    }

    fn client(&self) -> Client {
        Client::connect(&self.daemon().pipe(), std::process::id(), "GPU-1").unwrap()
    }

    /// The PID of the daemon.
    fn pid(&self) -> Option<Pid> {
        let file = self.daemon().private().join("nvidia-cuda-mps-control.pid");
        Pid::from_raw(fs::read_to_string(file).ok()?.trim().parse().ok()?)
    }

    fn ask(&self, spec: &MpsSpec) {
        self.daemon().set_spec(spec).unwrap();
    }

    /// Removes the daemon's folder as the agent does.
    fn remove(&self) {
        let _ = unmount(self.daemon().shm(), UnmountFlags::DETACH);
        self.daemon().remove().unwrap();
    }

    async fn until(&self, what: &str, is_so: impl Fn(&MpsStatus) -> bool) -> MpsStatus {
        let daemon = self.daemon();
        let found = async {
            loop {
                let status = daemon.status().unwrap();
                if is_so(&status) {
                    return status;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        let found = timeout(LONG, found).await;
        found.unwrap_or_else(|_| panic!("never {what}: {:?}", daemon.status()))
    }

    async fn until_runs(&self, spec: &MpsSpec) {
        self.until("runs", |status| status.running.as_ref() == Some(&spec.settings)).await;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Root has mounted it.
        let _ = unmount(self.daemon().shm(), UnmountFlags::DETACH);
    }
}

fn spec() -> MpsSpec {
    of(MpsSettings {
        devices: vec!["GPU-1".to_owned(), "GPU-2".to_owned()],
        active_thread_percentage: Some(25),
        memory_limits_mib: [("GPU-1".to_owned(), 1024), ("GPU-2".to_owned(), 500)].into(),
        ..MpsSettings::default()
    })
}

fn of(settings: MpsSettings) -> MpsSpec {
    MpsSpec { settings, ..MpsSpec::default() }
}

fn with_percentage(percentage: u8) -> MpsSpec {
    of(MpsSettings { active_thread_percentage: Some(percentage), ..spec().settings })
}

async fn until(is_so: impl Fn() -> bool) {
    let found = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, found).await.unwrap();
}

#[tokio::test]
async fn clients_have_the_limits_that_the_agent_asks_for() {
    let mut node = Node::new();
    node.ask(&spec());
    node.until_runs(&spec()).await;
    let client = node.client();
    assert_eq!(client.limits(), LIMITS);
    // Other limits apply to those that come later, and no client fails.
    let other = with_percentage(50);
    node.ask(&other);
    node.until_runs(&other).await;
    assert!(client.is_served());
    assert_eq!(node.client().limits(), Limits { percentage: 50.0, ..LIMITS });
    node.end().await;
    until(|| !client.is_served()).await;
    assert_eq!(node.daemon().status().unwrap(), MpsStatus::default());
}

#[tokio::test]
async fn a_client_can_neither_end_the_daemon_nor_change_its_limits() {
    use std::io::{Read as _, Write as _};
    let node = Node::new();
    node.ask(&spec());
    node.until_runs(&spec()).await;
    let pipe = node.daemon().pipe();
    let mut names: Vec<_> =
        fs::read_dir(&pipe).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["control", "control_lock", "log"]);
    let private = fs::metadata(node.daemon().private()).unwrap();
    assert_eq!(private.permissions().mode() & 0o777, 0o700);
    for command in ["quit", "set_default_active_thread_percentage 100"] {
        let mut stream = UnixStream::connect(pipe.join("control")).unwrap();
        writeln!(stream, "command {command}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "Permission denied\n");
    }
    assert_eq!(node.client().limits(), LIMITS);
}

#[tokio::test]
async fn a_daemon_with_clients_is_not_restarted_for_a_change() {
    let node = Node::new();
    node.ask(&spec());
    node.until_runs(&spec()).await;
    let (client, pid) = (node.client(), node.pid());
    let fewer = of(MpsSettings {
        devices: vec!["GPU-1".to_owned()],
        memory_limits_mib: [("GPU-1".to_owned(), 1024)].into(),
        ..spec().settings
    });
    node.ask(&fewer);
    let waits = node.until("waits", |status| status.problem.is_some()).await;
    assert_eq!((waits.running, node.pid()), (Some(spec().settings), pid));
    assert!(client.is_served());
    drop(client);
    node.until_runs(&fewer).await;
    assert_ne!(node.pid(), pid);
}

#[tokio::test]
async fn a_daemon_ends_without_clients_or_at_once() {
    let node = Node::new();
    node.ask(&spec());
    node.until_runs(&spec()).await;
    let client = node.client();
    node.ask(&MpsSpec { ends: MpsEnd::WithoutClients, ..spec() });
    let waits = node.until("waits", |status| status.problem.is_some()).await;
    assert!(!waits.has_ended && client.is_served());
    node.ask(&MpsSpec { ends: MpsEnd::Now, ..spec() });
    node.until("has ended", |status| status.has_ended).await;
    until(|| !client.is_served()).await;
    // It may be wanted again.
    node.ask(&spec());
    node.until_runs(&spec()).await;
    node.ask(&MpsSpec { ends: MpsEnd::WithoutClients, ..spec() });
    node.until("has ended", |status| status.has_ended && status.running.is_none()).await;
    // The folder goes with what is in it.
    node.remove();
    node.ask(&spec());
    node.until_runs(&spec()).await;
    let client = node.client();
    node.remove();
    until(|| !client.is_served()).await;
}

#[tokio::test]
async fn a_killed_daemon_is_reported_and_started_again() {
    let node = Node::new();
    node.ask(&spec());
    node.until_runs(&spec()).await;
    let client = node.client();
    let pid = node.pid();
    kill_process(pid.unwrap(), Signal::KILL).unwrap();
    until(|| !client.is_served()).await;
    until(|| node.pid() != pid).await;
    node.until_runs(&spec()).await;
    assert_eq!(node.client().limits(), LIMITS);
}

#[tokio::test]
async fn the_next_program_runs_the_same_daemons() {
    let mut node = Node::new();
    node.ask(&spec());
    node.until_runs(&spec()).await;
    node.end().await;
    assert!(!node.mps.is_served().unwrap());
    node.start();
    node.until_runs(&spec()).await;
    assert!(node.mps.is_served().unwrap());
}

#[tokio::test]
async fn what_cannot_be_is_reported_and_tried_again() {
    let node = Node::new();
    let wrong = with_percentage(0);
    node.ask(&wrong);
    let status = node.until("is reported", |status| status.problem.is_some()).await;
    let problem = status.problem.unwrap();
    assert!(problem.contains("set_default_active_thread_percentage 0"), "{problem}");
    assert_eq!(status.running, None);
    node.ask(&spec());
    node.until_runs(&spec()).await;
    // Without the program nothing starts.
    let program: PathBuf = node.folder.path().join("driver/usr/bin").join(PROGRAM);
    fs::remove_file(program).unwrap();
    kill_process(node.pid().unwrap(), Signal::KILL).unwrap();
    let is_missing = |status: &MpsStatus| {
        status
            .problem
            .as_ref()
            .is_some_and(|it| it.contains("the driver has no nvidia-cuda-mps-control"))
    };
    node.until("is missing", is_missing).await;
}

#[tokio::test]
async fn a_damaged_spec_changes_nothing() {
    let node = Node::new();
    node.ask(&spec());
    node.until_runs(&spec()).await;
    let (client, pid) = (node.client(), node.pid());
    fs::write(node.daemon().path().join("spec.json"), "{").unwrap();
    // Another daemon shows that the files were read since.
    node.mps.daemon("b").set_spec(&with_percentage(10)).unwrap();
    let other = node.mps.daemon("b");
    until(|| other.status().unwrap().running.is_some()).await;
    assert!(client.is_served() && node.pid() == pid);
    node.ask(&MpsSpec { ends: MpsEnd::Now, ..MpsSpec::default() });
    node.until("has ended", |status| status.has_ended).await;
    let _ = unmount(other.shm(), UnmountFlags::DETACH);
}

#[tokio::test]
async fn a_folder_that_is_made_again_at_once_has_a_daemon() {
    let node = Node::new();
    for percentage in [20, 30, 40, 50] {
        node.ask(&with_percentage(percentage));
        node.until_runs(&with_percentage(percentage)).await;
        node.remove();
    }
}

#[tokio::test]
async fn containers_keep_their_shared_memory_when_a_daemon_starts_again() {
    let mut node = Node::new();
    node.ask(&spec());
    node.until_runs(&spec()).await;
    let shm = node.daemon().shm();
    let device = fs::metadata(&shm).unwrap().dev();
    let other = of(MpsSettings { multi_user: true, ..spec().settings });
    node.ask(&other);
    node.until_runs(&other).await;
    assert_eq!(fs::metadata(&shm).unwrap().dev(), device);
    node.end().await;
    node.start();
    node.until_runs(&other).await;
    assert_eq!(fs::metadata(&shm).unwrap().dev(), device);
}

#[tokio::test]
async fn the_check_says_what_is_not_as_it_should_be() {
    let mut node = Node::new();
    let folder = || crate::args::FolderArgs { folder: node.mps.path().to_owned() };
    let checks = [true, false].map(|served| CheckArgs { folder: folder(), served });
    let ask = |check: &CheckArgs| -> Result<(), String> {
        super::check(check).map_err(|error| format!("{error:#}"))
    };
    until(|| ask(&checks[0]).is_ok()).await;
    ask(&checks[1]).unwrap();
    node.ask(&with_percentage(0));
    node.until("is reported", |status| status.problem.is_some()).await;
    let problem = ask(&checks[1]).unwrap_err();
    assert!(problem.contains("MPS daemon a is not as it should be"), "{problem}");
    ask(&checks[0]).unwrap();
    node.end().await;
    let problem = ask(&checks[0]).unwrap_err();
    assert!(problem.contains("no `octavo mps-daemon run`"), "{problem}");
}

#[tokio::test]
async fn a_second_program_waits_for_the_first() {
    let mut node = Node::new();
    until(|| node.mps.is_served().unwrap()).await;
    let stop = CancellationToken::new();
    let driver_root = node.folder.path().join("driver");
    let programs = Programs { driver_root, enter: None };
    let second = tokio::spawn(serve(node.mps.clone(), programs, stop.clone()));
    node.ask(&spec());
    node.until_runs(&spec()).await;
    let pid = node.pid();
    node.end().await;
    node.until_runs(&spec()).await;
    assert_ne!(node.pid(), pid);
    stop.cancel();
    timeout(LONG, second).await.unwrap().unwrap().unwrap();
}
