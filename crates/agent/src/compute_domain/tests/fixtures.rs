//! A node with two GPUs in a clique, and an API server with claims and one domain.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use octavo_api::{Refusal, names};
use octavo_gpu::{FabricState, Inventory};
use octavo_kube_io::events::Events;
use octavo_node::{ClaimRef, NodePaths};
use octavo_testkit::{FakeApi, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::claims::KubeReader;
use crate::compute_domain::{DomainClaims, DomainNode};
use crate::config::Imex;
use crate::kubelet::plugin::PREPARE_TIMEOUT;
use crate::monitor::Snapshot;
use crate::node::PreparedDevice;
use crate::testing;

/// UID of the domain.
pub(super) const DOMAIN: &str = "0d3b9a2e-8a39-4a3c-9d0c-6d1f6b1a2c3d";
/// The clique of the test GPUs.
pub(super) const CLIQUE: &str = "9c6f1f3e-0000-0000-0000-000000000001.1";

const CLAIMS: &str = "/apis/resource.k8s.io/v1/resourceclaims";
const DOMAINS: &str = "/apis/resource.nvidia.com/v1beta1/computedomains";
const EVENTS: &str = "/apis/events.k8s.io/v1/events";

const PROC_DEVICES: &str = "Character devices:\n195 nvidia\n236 nvidia-caps\n237 \
                            nvidia-caps-imex-channels\n508 nvidia-uvm\n";

pub(super) struct Node {
    folder: TempDir,
    api: FakeApi,
    snapshots: watch::Sender<Snapshot>,
}

/// The claim of this name. `d` is that of a daemon in the driver's namespace.
pub(super) fn claim(name: impl AsRef<str>) -> ClaimRef {
    let name = name.as_ref();
    let namespace = if name == "d" { "octavo-system" } else { "team" };
    ClaimRef {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
    }
}

/// Prepares a claim, as a kubelet does.
pub(super) async fn prepare(
    claims: &DomainClaims,
    claim: &ClaimRef,
) -> Result<Vec<PreparedDevice>, Refusal> {
    claims.prepare(claim, Instant::now() + PREPARE_TIMEOUT).await
}

/// The id of a claim's share of the channel.
pub(super) fn share_of(name: &str) -> String {
    format!("share-of-{name}")
}

impl Node {
    pub(super) fn new() -> Self {
        Self::with(testing::inventory(2))
    }

    pub(super) fn without_fabric() -> Self {
        let mut inventory = testing::inventory(2);
        inventory.gpus.iter_mut().for_each(|gpu| gpu.fabric = None);
        Self::with(inventory)
    }

    pub(super) fn with_fabric_in_progress() -> Self {
        let mut inventory = testing::inventory(2);
        let fabric = inventory.gpus[1].fabric.as_mut().unwrap();
        (fabric.state, fabric.clique) = (FabricState::InProgress, None);
        Self::with(inventory)
    }

    fn with(inventory: Inventory) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let capabilities = folder.path().join("proc/driver/nvidia/capabilities");
        for part in ["proc/sys/kernel/random", "driver/usr/lib64"] {
            fs::create_dir_all(folder.path().join(part)).unwrap();
        }
        fs::create_dir_all(&capabilities).unwrap();
        let text = "DeviceFileMinor: 4323\nDeviceFileMode: 256\nDeviceFileModify: 1\n";
        fs::write(capabilities.join("fabric-imex-mgmt"), text).unwrap();
        fs::write(folder.path().join("proc/devices"), PROC_DEVICES).unwrap();
        let params = "ResmanDebugLevel: 4294967295\nImexChannelCount: 16\n";
        fs::write(folder.path().join("proc/driver/nvidia/params"), params).unwrap();
        let snapshot = Snapshot { inventory: Some(Arc::new(inventory)), ..Snapshot::default() };
        let node = Self { folder, api: FakeApi::default(), snapshots: watch::channel(snapshot).0 };
        node.boot("boot-1");
        node
    }

    /// Begins another boot.
    pub(super) fn boot(&self, id: &str) {
        fs::write(self.path("proc/sys/kernel/random/boot_id"), id).unwrap();
    }

    /// Opens the claims, as an agent that starts.
    pub(super) fn open(&self) -> DomainClaims {
        self.open_with(Imex::PerDomain)
    }

    /// The same, with these IMEX services.
    pub(super) fn open_with(&self, imex: Imex) -> DomainClaims {
        let path = |part: &str| self.path(part);
        let paths = NodePaths {
            driver_root: "/".into(),
            driver_root_seen: path("driver"),
            proc_root: path("proc"),
            sys_root: path("sys"),
            cgroup_root: path("sys/fs/cgroup"),
            kubelet_root: path("kubelet"),
            device_plugin_root: path("kubelet/device-plugins"),
            cdi_root: path("cdi"),
            run_root: path("run"),
            hook_path: "/opt/octavo/bin/octavo-cdi-hook".into(),
            share_tmpfs: false,
            mounts: Vec::new(),
        };
        let node = DomainNode {
            name: "node".to_owned(),
            paths,
            namespace: "octavo-system".to_owned(),
            imex,
            snapshots: self.snapshots.subscribe(),
        };
        let client = self.api.client();
        let reader = Arc::new(KubeReader::new(client.clone()));
        let events = Events::new(client.clone(), names::AGENT_CONTROLLER, "node");
        DomainClaims::open(node, reader, client, events).unwrap().0
    }

    /// Makes a claim on the node's channel; returns its name.
    pub(super) fn channel<'a>(&self, name: &'a str, mode: &str) -> &'a str {
        let parameters = json!({"domainID": DOMAIN, "allocationMode": mode});
        self.claim(name, "team", "channel", "ComputeDomainChannelConfig", parameters)
    }

    /// Makes a claim on the place of a daemon; returns its name. That of `d` is in the driver's namespace.
    pub(super) fn daemon<'a>(&self, name: &'a str) -> &'a str {
        let (namespace, parameters) = (claim(name).namespace, json!({"domainID": DOMAIN}));
        self.claim(name, &namespace, "daemon", "ComputeDomainDaemonConfig", parameters)
    }

    fn claim<'a>(
        &self,
        name: &'a str,
        namespace: &str,
        device: &str,
        kind: &str,
        mut parameters: Value,
    ) -> &'a str {
        let driver = names::DRIVER_COMPUTE_DOMAIN;
        parameters["apiVersion"] = names::NVIDIA_API_VERSION.into();
        parameters["kind"] = kind.into();
        let opaque = json!({"driver": driver, "parameters": parameters});
        let result = json!({
            "request": device, "driver": driver, "pool": "node", "device": format!("{device}-0"),
        });
        let object = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": format!("uid-of-{name}"),
                "annotations": {names::ANNOTATION_COMPUTE_DOMAIN: "team/domain"},
            },
            "spec": {},
            "status": {"allocation": {"devices": {
                "results": [result],
                "config": [{"source": "FromClaim", "requests": [device], "opaque": opaque}],
            }}},
        });
        self.api.put(CLAIMS, object);
        name
    }

    /// Makes a claim on a share of the node's channel, for a domain of this UID; returns its name.
    pub(super) fn shared_channel<'a>(&self, name: &'a str, domain: &str) -> &'a str {
        self.channel(name, "Single");
        let mut object = self.api.object(CLAIMS, "team", name).unwrap();
        let devices = &mut object["status"]["allocation"]["devices"];
        devices["results"][0]["shareID"] = share_of(name).into();
        devices["config"][0]["opaque"]["parameters"]["domainID"] = domain.into();
        let annotation = json!({names::ANNOTATION_COMPUTE_DOMAIN: format!("team/{domain}")});
        object["metadata"]["annotations"] = annotation;
        self.api.put(CLAIMS, object);
        name
    }

    /// Sets a channel in the status of a domain that is ready. Its name is its UID.
    pub(super) fn domain_with_channel(&self, uid: &str, channel: Option<u32>) {
        let channels = channel.map(|channel| json!({"cliqueID": CLIQUE, "channel": channel}));
        let status = json!({
            "status": "Ready",
            "nodes": [{"name": "node", "ipAddress": "", "cliqueID": CLIQUE, "status": "Ready"}],
            "channels": channels.into_iter().collect::<Vec<_>>(),
        });
        self.store_domain_named(uid, uid, &status);
    }

    /// Takes the share out of a claim's allocation: it has the whole device.
    pub(super) fn drop_share(&self, name: &str) {
        let mut object = self.api.object(CLAIMS, "team", name).unwrap();
        let result = &mut object["status"]["allocation"]["devices"]["results"][0];
        result.as_object_mut().unwrap().remove("shareID");
        self.api.put(CLAIMS, object);
    }

    /// Changes the UID of the domain in the config of a claim.
    pub(super) fn set_domain_id(&self, name: &str, uid: &str) {
        let namespace = claim(name).namespace;
        let mut object = self.api.object(CLAIMS, &namespace, name).unwrap();
        let devices = &mut object["status"]["allocation"]["devices"];
        devices["config"][0]["opaque"]["parameters"]["domainID"] = uid.into();
        self.api.put(CLAIMS, object);
    }

    /// Changes the annotation with a claim's domain.
    pub(super) fn annotate(&self, name: &str, domain: Option<&str>) {
        let namespace = claim(name).namespace;
        let mut object = self.api.object(CLAIMS, &namespace, name).unwrap();
        object["metadata"]["annotations"] = match domain {
            Some(domain) => json!({names::ANNOTATION_COMPUTE_DOMAIN: domain}),
            None => json!({}),
        };
        self.api.put(CLAIMS, object);
    }

    /// Gives a claim's device with admin access.
    pub(super) fn with_admin_access(&self, name: &str) {
        let mut object = self.api.object(CLAIMS, &claim(name).namespace, name).unwrap();
        object["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = true.into();
        self.api.put(CLAIMS, object);
    }

    pub(super) fn delete_claim(&self, name: &str) {
        self.api.delete(CLAIMS, &claim(name).namespace, name);
    }

    /// Sets the status of the domain.
    pub(super) fn domain(&self, nodes: &[(&str, bool)], is_complete: bool) {
        let nodes = nodes.iter().map(|(name, is_ready)| {
            let status = if *is_ready { "Ready" } else { "NotReady" };
            json!({"name": name, "ipAddress": "", "cliqueID": CLIQUE, "status": status})
        });
        let condition = json!({
            "type": names::CONDITION_MEMBERS_READY,
            "status": if is_complete { "True" } else { "False" },
            "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({
            "status": "NotReady",
            "nodes": nodes.collect::<Vec<_>>(),
            "conditions": [condition],
        });
        self.store_domain(DOMAIN, &status);
    }

    /// Replaces the domain by one with another UID.
    pub(super) fn domain_with_uid(&self, uid: &str) {
        self.store_domain(uid, &json!({"status": "NotReady"}));
    }

    fn store_domain(&self, uid: &str, status: &Value) {
        self.store_domain_named("domain", uid, status);
    }

    fn store_domain_named(&self, name: &str, uid: &str, status: &Value) {
        let object = json!({
            "apiVersion": names::NVIDIA_API_VERSION,
            "kind": "ComputeDomain",
            "metadata": {"name": name, "namespace": "team", "uid": uid},
            "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "template"}}},
            "status": status,
        });
        self.api.put(DOMAINS, object);
    }

    /// Waits until a prepare watches the domain.
    pub(super) async fn watched(&self) {
        eventually("the domain is watched", || self.api.watchers(DOMAINS) > 0).await;
    }

    pub(super) fn end_watches(&self) {
        self.api.end_watches(DOMAINS);
    }

    pub(super) fn has_event(&self, reason: &str) -> bool {
        self.api.objects(EVENTS).iter().any(|event| event["reason"] == reason)
    }

    /// The event with this reason.
    pub(super) fn event(&self, reason: &str) -> Value {
        let events = self.api.objects(EVENTS);
        events.into_iter().find(|event| event["reason"] == reason).unwrap()
    }

    pub(super) fn spec_path(&self, name: &str) -> PathBuf {
        self.path(&format!("cdi/k8s.compute-domain.nvidia.com-claim_uid-of-{name}.yaml"))
    }

    pub(super) fn has_spec(&self, name: &str) -> bool {
        self.spec_path(name).is_file()
    }

    pub(super) fn spec(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.spec_path(name)).unwrap()).unwrap()
    }

    pub(super) fn checkpoint_path(&self, name: &str) -> PathBuf {
        let folder = "kubelet/plugins/compute-domain.nvidia.com/checkpoint";
        self.path(&format!("{folder}/uid-of-{name}.json"))
    }

    /// Names of all checkpoints.
    pub(super) fn checkpoints(&self) -> Vec<String> {
        let folder = self.checkpoint_path("any").parent().map(Path::to_owned).unwrap();
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        names.filter(|name| name.starts_with("uid-of-")).collect()
    }

    /// Puts a program into the driver's root.
    pub(super) fn install(&self, path: &str, script: &str) {
        let path = self.path(&format!("driver/{path}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A path below the folder of the node.
    pub(super) fn path(&self, part: &str) -> PathBuf {
        self.folder.path().join(part)
    }
}
