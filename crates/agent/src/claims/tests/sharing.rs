//! Time slices and MPS daemons of claims.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use octavo_gpu::DriverError;
use octavo_node::ClaimRef;
use octavo_node::mps::{MpsEnd, MpsFolder, MpsSettings, MpsStatus};
use serde_json::{Value, json};

use super::fixtures::{Node, known_mig};
use crate::claims::Claims;

const SMALL: &str = "gpu-0-mig-1g10gb-19-3";

/// A node with an `nvidia-smi` that writes its arguments to the file `slices`, and fails as long as there is a file `broken`.
pub(super) async fn node() -> (Node, Claims) {
    let node = Node::new();
    let program = node.path("driver/usr/bin/nvidia-smi");
    fs::create_dir_all(program.parent().expect("has one")).expect("makes a folder");
    let (log, broken) = (node.path("slices"), node.path("broken"));
    let script = format!(
        "#!/bin/sh\n[ -e {} ] && echo No devices were found && exit 6\necho \"$*\" >>{}\n",
        broken.display(),
        log.display()
    );
    fs::write(&program, script).expect("writes");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("changes");
    let claims = node.start_mig().await;
    (node, claims)
}

/// What `nvidia-smi` was asked.
fn slices(node: &Node) -> Vec<String> {
    let text = fs::read_to_string(node.path("slices")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn claim(node: &Node, kind: &str, devices: &[&str], sharing: &Value) -> ClaimRef {
    node.allocate_with("a", devices, |claim| {
        let parameters = json!({
            "apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, "sharing": sharing,
        });
        claim["status"]["allocation"]["devices"]["config"] = json!([{
            "source": "FromClaim", "requests": [],
            "opaque": {"driver": "gpu.nvidia.com", "parameters": parameters},
        }]);
    })
}

fn sliced(node: &Node) -> ClaimRef {
    let sharing = json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}});
    claim(node, "GpuConfig", &["gpu-3"], &sharing)
}

fn by_mps(node: &Node, devices: &[&str]) -> ClaimRef {
    let limits =
        json!({"defaultActiveThreadPercentage": 40, "defaultPinnedDeviceMemoryLimit": "2Gi"});
    claim(node, "GpuConfig", devices, &json!({"strategy": "MPS", "mpsConfig": limits}))
}

/// Does what a node's MPS program does, without daemons. Each has a client as long as there is a file `clients`.
pub(super) struct MpsProgram {
    folder: MpsFolder,
    /// Its end is that of the program.
    stop: Option<Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl MpsProgram {
    pub(super) fn start(node: &Node) -> Self {
        let folder = MpsFolder::below(&node.path("run"));
        let lock = folder.lock().expect("locks").expect("is the only one");
        let (stop, stopped) = channel::<()>();
        let (own, clients) = (folder.clone(), node.path("clients"));
        let thread = std::thread::spawn(move || {
            let _lock = lock;
            while stopped.recv_timeout(Duration::from_millis(2)) == Err(RecvTimeoutError::Timeout) {
                for name in own.names().expect("lists") {
                    let daemon = own.daemon(&name);
                    let Ok(Some(spec)) = daemon.spec() else { continue };
                    let waits = clients.exists();
                    let has_ended = match spec.ends {
                        MpsEnd::Never => false,
                        MpsEnd::WithoutClients => !waits,
                        MpsEnd::Now => true,
                    };
                    let problem = (spec.ends == MpsEnd::WithoutClients && waits)
                        .then(|| "1 programs use it".to_owned());
                    let running = (!has_ended).then_some(spec.settings);
                    let status = MpsStatus { running, problem, has_ended };
                    // The agent may remove the folder meanwhile.
                    let _ =
                        fs::metadata(daemon.path()).is_ok() && daemon.set_status(&status).is_ok();
                }
            }
        });
        Self { folder, stop: Some(stop), thread: Some(thread) }
    }

    /// What the agent asks for, of each daemon.
    pub(super) fn settings(&self) -> Vec<MpsSettings> {
        let names = self.folder.names().expect("lists");
        let specs = names.iter().filter_map(|name| self.folder.daemon(name).spec().expect("reads"));
        specs.map(|spec| spec.settings).collect()
    }
}

impl Drop for MpsProgram {
    fn drop(&mut self) {
        self.stop.take();
        let _ = self.thread.take().expect("runs").join();
    }
}

#[tokio::test]
async fn a_time_slice_is_set_for_the_claim_and_reset_after_it() {
    let (node, claims) = node().await;
    node.driver.with("GPU-3", |card| card.is_exclusive = true);
    let claim = sliced(&node);
    claims.prepare(&claim).await.expect("prepares");
    assert_eq!(slices(&node), ["compute-policy -i GPU-3 --set-timeslice=3"]);
    node.driver.with("GPU-3", |card| assert!(!card.is_exclusive, "it could not be shared"));
    claims.prepare(&claim).await.expect("prepares again");
    assert_eq!(
        slices(&node)[1..],
        ["compute-policy -i GPU-3 --set-timeslice=3"],
        "as after a reset"
    );
    // The next agent knows it.
    drop(claims);
    let claims = node.start_mig().await;
    claims.unprepare(&claim).await.expect("unprepares");
    assert_eq!(slices(&node)[2..], ["compute-policy -i GPU-3 --set-timeslice=0"]);
    assert_eq!((node.files(), claims.holdings()), (vec![], vec![]));
}

#[tokio::test]
async fn a_time_slice_that_cannot_be_set_leaves_nothing() {
    let (node, claims) = node().await;
    fs::write(node.path("broken"), "").expect("writes");
    let claim = sliced(&node);
    let refusal = claims.prepare(&claim).await.expect_err("fails");
    assert_eq!(refusal.reason(), "SharingNotSet");
    assert!(refusal.to_string().contains("No devices were found"), "{refusal}");
    // Nothing tells whether the GPU has it: it is reset as soon as that is possible.
    assert_eq!(claims.unprepare(&claim).await.expect_err("fails").reason(), "SharingNotReset");
    let other = node.allocate("b", &["gpu-3"]);
    assert_eq!(claims.prepare(&other).await.expect_err("is held").reason(), "DeviceInUse");
    fs::remove_file(node.path("broken")).expect("removes");
    claims.sweep().await;
    assert_eq!(slices(&node), ["compute-policy -i GPU-3 --set-timeslice=0"]);
    assert_eq!((node.files(), claims.holdings()), (vec![], vec![]));
    claims.prepare(&other).await.expect("prepares");
}

#[tokio::test]
async fn a_lost_gpu_is_released_without_a_reset() {
    let (node, claims) = node().await;
    let claim = sliced(&node);
    claims.prepare(&claim).await.expect("prepares");
    let lost = DriverError::GpuLost { call: "nvmlDeviceGetComputeMode" };
    node.driver.fail("compute mode", "GPU-3", lost);
    claims.unprepare(&claim).await.expect("unprepares");
    assert_eq!(slices(&node).len(), 1);
    assert_eq!((node.files(), claims.holdings()), (vec![], vec![]));
}

#[tokio::test]
async fn a_claim_with_mps_waits_for_its_daemon() {
    let (node, claims) = node().await;
    let claim = by_mps(&node, &["gpu-2", "gpu-5"]);
    let refusal = claims.prepare(&claim).await.expect_err("nothing runs daemons");
    assert_eq!(refusal.reason(), "MpsNotReady");
    assert!(refusal.to_string().contains("agent.mps.enabled"), "{refusal}");
    assert_eq!((node.files(), claims.holdings()), (vec![], vec![]));
    node.driver.with("GPU-2", |card| assert!(!card.is_exclusive));

    let program = MpsProgram::start(&node);
    let devices = claims.prepare(&claim).await.expect("prepares");
    assert_eq!(devices.len(), 2);
    let limits = ["GPU-2", "GPU-5"].map(|gpu| (gpu.to_owned(), 2048));
    let settings = MpsSettings {
        devices: vec!["GPU-2".to_owned(), "GPU-5".to_owned()],
        active_thread_percentage: Some(40),
        memory_limits_mib: limits.into(),
        ..MpsSettings::default()
    };
    assert_eq!(program.settings(), [settings]);
    for gpu in ["GPU-2", "GPU-5"] {
        node.driver
            .with(gpu, |card| assert!(card.is_exclusive, "a program could avoid the daemon"));
    }
    let spec = fs::read_to_string(node.path(&Node::cdi(&claim))).expect("reads");
    assert!(spec.contains("CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"), "{spec}");
    assert!(spec.contains("/run/octavo/mps/c-00000000-0000-4000-0/pipe"), "{spec}");
    assert!(spec.contains("/run/octavo/mps/c-00000000-0000-4000-0/shm"), "{spec}");

    claims.unprepare(&claim).await.expect("unprepares");
    assert_eq!(program.settings(), []);
    node.driver.with("GPU-5", |card| assert!(!card.is_exclusive));
    assert_eq!((node.files(), claims.holdings()), (vec![], vec![]));
}

#[tokio::test]
async fn a_container_does_not_start_by_what_a_killed_program_left() {
    let (node, claims) = node().await;
    let program = MpsProgram::start(&node);
    let claim = by_mps(&node, &["gpu-2"]);
    claims.prepare(&claim).await.expect("prepares");
    drop(program);
    let folder = MpsFolder::below(&node.path("run"));
    let [name] = &folder.names().expect("lists")[..] else { panic!("one daemon") };
    assert!(folder.daemon(name).status().expect("reads").running.is_some());
    assert_eq!(claims.prepare(&claim).await.expect_err("has no daemon").reason(), "MpsNotReady");
    // A GPU that was reset meanwhile is exclusive again.
    node.driver.with("GPU-2", |card| card.is_exclusive = false);
    let _program = MpsProgram::start(&node);
    claims.prepare(&claim).await.expect("prepares");
    node.driver.with("GPU-2", |card| assert!(card.is_exclusive));
}

#[tokio::test]
async fn a_mig_device_has_a_daemon_and_its_gpu_keeps_its_mode() {
    let (node, claims) = node().await;
    let program = MpsProgram::start(&node);
    let claim = claim(&node, "MigDeviceConfig", &[SMALL], &json!({"strategy": "MPS"}));
    claims.prepare(&claim).await.expect("prepares");
    let [settings] = &program.settings()[..] else { panic!("one daemon") };
    assert!(settings.devices[0].starts_with("MIG-"), "{settings:?}");
    node.driver.with("GPU-0", |card| assert!(!card.is_exclusive));
    claims.unprepare(&claim).await.expect("unprepares");
    assert_eq!((node.files(), program.settings()), (vec![], vec![]));
    assert_eq!(node.driver.slices("GPU-0"), []);
}

#[tokio::test]
async fn a_daemon_that_no_claim_has_ends_at_the_next_start() {
    let (node, claims) = node().await;
    let program = MpsProgram::start(&node);
    let claim = by_mps(&node, &["gpu-2"]);
    claims.prepare(&claim).await.expect("prepares");
    drop(claims);
    for file in [Node::checkpoint(&claim), Node::cdi(&claim)] {
        fs::remove_file(node.path(&file)).expect("removes");
    }
    let claims = node.start_mig().await;
    assert_eq!((claims.holdings(), program.settings()), (vec![], vec![]));
    node.driver.with("GPU-2", |card| assert!(!card.is_exclusive));
}

#[tokio::test]
async fn a_claim_is_released_although_the_program_of_the_daemons_is_gone() {
    let (node, claims) = node().await;
    let program = MpsProgram::start(&node);
    let claim = by_mps(&node, &["gpu-2"]);
    claims.prepare(&claim).await.expect("prepares");
    drop(program);
    claims.set_devices("580.95.05", known_mig()).await;
    claims.unprepare(&claim).await.expect("unprepares");
    node.driver.with("GPU-2", |card| assert!(!card.is_exclusive));
    let folder = MpsFolder::below(&node.path("run"));
    assert_eq!(folder.names().expect("lists"), Vec::<String>::new());
}
