use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use octavo_node::ClaimRef;
use octavo_testkit::{Request, ScriptedApi};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::claims::{AllocatedClaim, ClaimReader, ReadError, SilentReporter};
use crate::config::NodeFile;

/// Claims that do not exist.
struct NoClaims;

impl ClaimReader for NoClaims {
    fn read<'a>(
        &'a self,
        _: &'a ClaimRef,
    ) -> futures::future::BoxFuture<'a, Result<Option<AllocatedClaim>, ReadError>> {
        Box::pin(async { Ok(None) })
    }
}

struct Fixture {
    folder: TempDir,
    mode: NodeMode,
    has_slices: Arc<AtomicBool>,
    offers: watch::Sender<Arc<Offer>>,
    daemon_state: watch::Sender<PluginDaemons>,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| Some(folder.path().join(path));
        fs::create_dir_all(folder.path().join("proc/sys/kernel/random")).unwrap();
        fs::write(folder.path().join("proc/sys/kernel/random/boot_id"), "boot-1").unwrap();
        fs::create_dir_all(folder.path().join("kubelet/device-plugins")).unwrap();
        let file = NodeFile {
            node_name: Some("node".to_owned()),
            proc_root: at("proc"),
            cgroup_root: at("cgroups"),
            kubelet_root: at("kubelet"),
            device_plugin_root: at("kubelet/device-plugins"),
            cdi_root: at("cdi"),
            run_root: at("run"),
            ..NodeFile::default()
        };
        let config = file.complete().unwrap();
        let (reader, reporter) = (Arc::new(NoClaims), Arc::new(SilentReporter));
        let paths = config.paths.clone();
        let (claims, _) = Claims::open(paths, "node".to_owned(), reader, reporter).unwrap();
        let has_slices = Arc::new(AtomicBool::new(true));
        let shown = Arc::clone(&has_slices);
        let api = ScriptedApi::new(move |request: &Request| {
            let query = request.uri().query().unwrap_or_default();
            assert!(query.contains("spec.nodeName%3Dnode"), "{query}");
            let slice = json!({
                "metadata": {"name": "s"},
                "spec": {
                    "driver": "gpu.nvidia.com", "nodeName": "node", "devices": [{"name": "gpu-0"}],
                    "pool": {"name": "node", "generation": 1, "resourceSliceCount": 1},
                },
            });
            let items = if shown.load(Ordering::Relaxed) { json!([slice]) } else { json!([]) };
            let list = json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "metadata": {},
                "items": items,
            });
            (200, list)
        });
        let (offers, listed) = watch::channel(Arc::default());
        let (daemon_state, daemons) = watch::channel(PluginDaemons::default());
        let offering = Offering {
            slices: watch::channel(None).0,
            plugin: watch::channel(PluginInput::default()).0,
            listed,
            listed_at: None,
            daemons,
        };
        let problems = watch::channel(Problems::default()).0;
        let client = api.client();
        let config = Arc::new(config);
        let reached = watch::channel(None).0;
        let mode = NodeMode { config, client, claims, offering, reached, problems };
        Self { folder, mode, has_slices, offers, daemon_state }
    }

    async fn step(&mut self, mode: Mode) -> Option<Obstacle> {
        self.mode.step(mode).await
    }

    /// What the kubelet's file says of pods with devices of a plugin.
    fn set_pods(&self, pods: &[&str]) {
        let entries: Vec<_> = pods
            .iter()
            .map(|pod| {
                let cgroup = format!("cgroups/kubepods/pod{pod}");
                fs::create_dir_all(self.folder.path().join(cgroup)).unwrap();
                json!({
                    "PodUID": pod, "ContainerName": "c", "ResourceName": "nvidia.com/gpu",
                    "DeviceIDs": {"0": ["GPU-1"]}, "AllocResp": "",
                })
            })
            .collect();
        let text = json!({"Data": {"PodDeviceEntries": entries}, "Checksum": 1}).to_string();
        self.write_checkpoint(&text);
    }

    fn write_checkpoint(&self, text: &str) {
        let file = "kubelet/device-plugins/kubelet_internal_checkpoint";
        fs::write(self.folder.path().join(file), text).unwrap();
    }

    fn offers(&self) -> (Option<bool>, bool) {
        let Offering { slices, plugin, .. } = &self.mode.offering;
        (*slices.borrow(), plugin.borrow().is_offering)
    }
}

#[tokio::test]
async fn a_node_that_was_never_a_plugin_s_publishes_at_once() {
    let mut node = Fixture::new();
    node.mode.begin().await;
    assert_eq!(node.offers(), (None, false));
    assert!(!node.mode.claims.is_lent());
    assert_eq!(node.step(Mode::Dra).await, None);
    assert_eq!(node.offers(), (Some(true), false));
}

#[tokio::test]
async fn pods_of_a_plugin_are_waited_for_and_named_and_no_claim_gets_a_gpu_meanwhile() {
    let mut node = Fixture::new();
    node.set_pods(&["a", "b"]);
    node.mode.begin().await;
    assert!(node.mode.claims.is_lent());
    let obstacle = node.step(Mode::Dra).await.unwrap();
    let note = obstacle.note(Mode::Dra).unwrap();
    assert!(note.contains("mode dra: 2 pods have GPUs of a device plugin: UID a, UID b"), "{note}");
    assert_eq!(node.offers(), (Some(false), false));
    assert!(node.mode.claims.is_lent());
    node.set_pods(&[]);
    assert_eq!(node.step(Mode::Dra).await, None);
    assert_eq!(node.offers(), (Some(true), false));
    assert!(!node.mode.claims.is_lent());
}

#[tokio::test]
async fn resources_are_listed_once_no_slice_is_left_and_withdrawn_first() {
    let mut node = Fixture::new();
    assert_eq!(node.step(Mode::Dra).await, None);
    assert_eq!(node.step(Mode::DevicePlugin).await, Some(Obstacle::Withdrawal));
    assert_eq!(node.offers(), (Some(false), false));
    assert!(node.mode.claims.is_lent());
    node.has_slices.store(false, Ordering::Relaxed);
    assert_eq!(node.step(Mode::DevicePlugin).await, None);
    assert_eq!(node.offers(), (Some(false), true));
    node.offers.send_replace(Arc::new(Offer::of_gpus(crate::testing::inventory(1))));
    assert_eq!(node.step(Mode::Dra).await, Some(Obstacle::Withdrawal), "the list is not empty yet");
    assert_eq!(node.offers(), (Some(false), false));
    assert!(node.mode.claims.is_lent());
    node.offers.send_replace(Arc::default());
    node.set_pods(&["a"]);
    assert!(matches!(node.step(Mode::Dra).await, Some(Obstacle::Pods(_))));
    assert_eq!(node.offers(), (Some(false), false));
}

#[tokio::test]
async fn a_node_leaves_once_no_claim_and_no_pod_has_a_gpu() {
    let mut node = Fixture::new();
    assert_eq!(node.step(Mode::Dra).await, None);
    assert_eq!(node.step(Mode::None).await, Some(Obstacle::Withdrawal), "of the slices");
    assert_eq!(node.offers(), (Some(false), false));
    assert!(node.mode.claims.is_lent());
    node.has_slices.store(false, Ordering::Relaxed);
    node.set_pods(&["a"]);
    let obstacle = node.step(Mode::None).await.unwrap();
    let note = obstacle.note(Mode::None).unwrap();
    assert!(note.contains("mode none: 1 pods have GPUs of a device plugin: UID a"), "{note}");
    node.set_pods(&[]);
    assert_eq!(node.step(Mode::None).await, None);
    node.mode.reached.send_replace(Some(Mode::None));
    // Another device plugin may have the node now.
    node.set_pods(&["b"]);
    assert_eq!(node.step(Mode::None).await, None);
    assert!(node.mode.claims.is_lent());
    node.set_pods(&[]);
    assert_eq!(node.step(Mode::Dra).await, None);
    assert_eq!(node.offers(), (Some(true), false));
}

#[tokio::test]
async fn mps_daemons_of_the_plugin_end_before_claims_get_their_gpus() {
    let mut node = Fixture::new();
    let left = node.folder.path().join("run/octavo/mps/r-nvidia.com-gpu");
    fs::create_dir_all(&left).unwrap();
    node.mode.begin().await;
    assert!(node.mode.claims.is_lent());
    assert_eq!(node.step(Mode::Dra).await, Some(Obstacle::Withdrawal), "one of an earlier agent");
    fs::remove_dir(&left).unwrap();
    node.daemon_state.send_modify(|state| state.asked.extend(["r-nvidia.com-gpu".to_owned()]));
    assert_eq!(node.step(Mode::Dra).await, Some(Obstacle::Withdrawal), "one that is wanted");
    assert!(node.mode.claims.is_lent());
    node.daemon_state.send_replace(PluginDaemons::default());
    assert_eq!(node.step(Mode::Dra).await, None);
    assert!(!node.mode.claims.is_lent());
}

#[tokio::test]
async fn a_kubelet_s_file_that_cannot_be_read_leaves_slices_and_serves_no_claim() {
    let mut node = Fixture::new();
    node.write_checkpoint("{");
    node.mode.begin().await;
    let obstacle = node.step(Mode::Dra).await.unwrap();
    let note = obstacle.note(Mode::Dra).unwrap();
    assert!(note.contains("it is not known what has GPUs"), "{note}");
    assert_eq!(node.offers(), (None, false));
    assert!(node.mode.claims.is_lent());
}

#[test]
fn a_note_names_a_few_holders() {
    let names = (0..7).map(|number| format!("team/claim-{number}")).collect();
    let note = Obstacle::Claims(names).note(Mode::DevicePlugin).unwrap();
    assert!(note.contains("mode device-plugin: 7 claims have GPUs: team/claim-0,"), "{note}");
    assert!(note.contains("team/claim-4 and 2 more; the node offers no GPU"), "{note}");
}
