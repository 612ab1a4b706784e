//! MPS daemons of the device plugin, which take GPUs from everything else.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use octavo_node::mps::MpsSettings;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::fixtures::Node;
use super::sharing::{MpsProgram, node};
use crate::claims::Claims;
use crate::device_plugin::{MpsOwner, PluginDaemons, WantedDaemons};
use crate::mps::MpsDaemons;
use crate::problems::Problems;

const NAME: &str = "r-nvidia.com-gpu";
/// More than any test needs.
const LONG: Duration = Duration::from_secs(30);

struct Owner {
    wanted: watch::Sender<Option<WantedDaemons>>,
    state: watch::Receiver<PluginDaemons>,
    problems: watch::Receiver<Problems>,
    task: JoinHandle<()>,
}

impl Owner {
    fn start(node: &Node, claims: &Claims, wanted: WantedDaemons) -> Self {
        claims.lend();
        let (wanted, wanted_changes) = watch::channel(Some(wanted));
        let (state, state_changes) = watch::channel(PluginDaemons::default());
        let (problems, problem_changes) = watch::channel(Problems::default());
        let owner = MpsOwner {
            paths: node.paths(),
            claims: claims.clone(),
            daemons: MpsDaemons::of(&node.paths()),
            wanted: wanted_changes,
            state,
            problems,
        };
        let task = tokio::spawn(owner.run());
        Self { wanted, state: state_changes, problems: problem_changes, task }
    }

    async fn until(&mut self, is_so: impl FnMut(&PluginDaemons) -> bool) {
        timeout(LONG, self.state.wait_for(is_so)).await.expect("in time").expect("runs");
    }

    async fn until_ready(&mut self) {
        self.until(|state| state.ready.contains(NAME) && state.leaving.is_empty()).await;
    }

    async fn until_seen(&mut self, word: &str) {
        let is_seen = |problems: &Problems| format!("{problems:?}").contains(word);
        timeout(LONG, self.problems.wait_for(is_seen)).await.expect("in time").expect("runs");
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn daemon(gpus: &[&str]) -> WantedDaemons {
    let devices = gpus.iter().map(|&gpu| gpu.to_owned()).collect();
    [(NAME.to_owned(), MpsSettings { devices, ..MpsSettings::default() })].into()
}

fn exclusive(node: &Node) -> Vec<&'static str> {
    let all = ["GPU-2", "GPU-3", "GPU-4"];
    all.into_iter().filter(|gpu| node.driver.with(gpu, |card| card.is_exclusive)).collect()
}

/// A pod with a replica of a GPU: the kubelet's file has it, and it has a cgroup, which is returned.
fn pod(node: &Node) -> PathBuf {
    let cgroup = node.path("sys/fs/cgroup/kubepods/poda");
    fs::create_dir_all(&cgroup).expect("makes a folder");
    fs::create_dir_all(node.path("kubelet/device-plugins")).expect("makes a folder");
    let entry = json!({
        "PodUID": "a", "ContainerName": "c", "ResourceName": "nvidia.com/gpu.shared",
        "DeviceIDs": {"0": ["GPU-2::1"]}, "AllocResp": "",
    });
    let text = json!({"Data": {"PodDeviceEntries": [entry]}, "Checksum": 1}).to_string();
    fs::write(node.path("kubelet/device-plugins/kubelet_internal_checkpoint"), text)
        .expect("writes");
    cgroup
}

#[tokio::test]
async fn a_gpu_is_exclusive_as_long_as_its_daemon_runs() {
    let (node, claims) = node().await;
    let mut owner = Owner::start(&node, &claims, WantedDaemons::new());
    owner.until(PluginDaemons::are_gone).await;
    owner.wanted.send_replace(Some(daemon(&["GPU-2", "GPU-3"])));
    owner.until_seen("agent.mps.enabled").await;
    let program = MpsProgram::start(&node);
    owner.until_ready().await;
    assert_eq!(exclusive(&node), ["GPU-2", "GPU-3"]);
    // Its program ends: nothing is served until it is back.
    drop(program);
    owner.until(|state| state.ready.is_empty()).await;
    let program = MpsProgram::start(&node);
    owner.until_ready().await;
    owner.wanted.send_replace(Some(WantedDaemons::new()));
    owner.until(PluginDaemons::are_gone).await;
    assert_eq!((exclusive(&node), program.settings()), (vec![], vec![]));
}

#[tokio::test]
async fn a_daemon_that_is_no_longer_wanted_keeps_its_clients() {
    let (node, claims) = node().await;
    let program = MpsProgram::start(&node);
    let mut owner = Owner::start(&node, &claims, daemon(&["GPU-2"]));
    owner.until_ready().await;
    fs::write(node.path("clients"), "").expect("writes");
    owner.wanted.send_replace(Some(WantedDaemons::new()));
    owner.until_seen("1 programs use it").await;
    owner.until(|state| state.leaving.contains("GPU-2") && !state.are_gone()).await;
    assert_eq!((exclusive(&node), program.settings().len()), (vec!["GPU-2"], 1));
    // The next agent knows it.
    drop(owner);
    let mut owner = Owner::start(&node, &claims, WantedDaemons::new());
    owner.until(|state| state.leaving.contains("GPU-2")).await;
    fs::remove_file(node.path("clients")).expect("removes");
    owner.until(PluginDaemons::are_gone).await;
    assert_eq!((exclusive(&node), program.settings()), (vec![], vec![]));
}

#[tokio::test]
async fn a_daemon_stays_as_long_as_pods_have_its_devices() {
    let (node, claims) = node().await;
    let _program = MpsProgram::start(&node);
    let mut owner = Owner::start(&node, &claims, daemon(&["GPU-2"]));
    owner.until_ready().await;
    let cgroup = pod(&node);
    owner.wanted.send_replace(Some(WantedDaemons::new()));
    owner.until_seen("1 pods have its devices: UID a").await;
    assert_eq!(exclusive(&node), ["GPU-2"]);
    fs::remove_dir(&cgroup).expect("removes");
    owner.until(PluginDaemons::are_gone).await;
    assert_eq!(exclusive(&node), Vec::<&str>::new());
}

#[tokio::test]
async fn a_gpu_that_pods_use_without_a_daemon_gets_one_after_them() {
    let (node, claims) = node().await;
    let _program = MpsProgram::start(&node);
    let cgroup = pod(&node);
    let mut owner = Owner::start(&node, &claims, daemon(&["GPU-2"]));
    owner.until_seen("it starts after their end").await;
    assert_eq!(exclusive(&node), Vec::<&str>::new(), "their programs would fail");
    fs::remove_dir(&cgroup).expect("removes");
    owner.until_ready().await;
    assert_eq!(exclusive(&node), ["GPU-2"]);
}

#[tokio::test]
async fn nothing_is_done_before_it_is_known_what_is_wanted() {
    let (node, claims) = node().await;
    let program = MpsProgram::start(&node);
    let mut owner = Owner::start(&node, &claims, daemon(&["GPU-2"]));
    owner.until_ready().await;
    drop(owner);
    let mut owner = Owner::start(&node, &claims, WantedDaemons::new());
    owner.wanted.send_replace(None);
    owner.wanted.send_replace(Some(daemon(&["GPU-2"])));
    owner.until_ready().await;
    assert_eq!((exclusive(&node), program.settings().len()), (vec!["GPU-2"], 1));
    // Claims that have their GPUs back are not disturbed.
    drop(owner);
    claims.take_back();
    assert!(claims.set_exclusive("GPU-3", true).await.is_err());
}

#[tokio::test]
async fn a_gpu_that_leaves_its_daemon_is_shared_again() {
    let (node, claims) = node().await;
    let _program = MpsProgram::start(&node);
    let mut owner = Owner::start(&node, &claims, daemon(&["GPU-2", "GPU-3"]));
    owner.until_ready().await;
    owner.wanted.send_replace(Some(daemon(&["GPU-3", "GPU-4"])));
    let changed = async {
        while exclusive(&node) != ["GPU-3", "GPU-4"] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, changed).await.expect("in time");
    owner.until_ready().await;
}

#[tokio::test]
async fn a_driver_that_is_closed_is_seen_and_tried_again() {
    let (node, claims) = node().await;
    let _program = MpsProgram::start(&node);
    claims.set_driver(None).await;
    let mut owner = Owner::start(&node, &claims, daemon(&["GPU-2"]));
    owner.until_seen("the driver is closed").await;
    node.give_driver(&claims).await;
    owner.until_ready().await;
}
