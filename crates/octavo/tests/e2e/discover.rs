//! `octavo discover` with the chart's account: it labels its own node, and may change nothing else.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::{Value, json};

use crate::chart::helm_binary;
use crate::testbed::{OCTAVO, Testbed, eventually};

const NODE: &str = "t4-0";
const OTHER: &str = "t4-1";
const LABEL: &str = "nvidia.com/gpu.present";

/// Installs what the chart has for `discover`, and nothing that the lab has not.
fn install(testbed: &Testbed) {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/octavo");
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(helm_binary())
        .args(["upgrade", "--install", "octavo", chart, "--take-ownership", "--force-conflicts"])
        .args([
            "--namespace",
            "octavo-system",
            "--set",
            "agent.enabled=false,scheduler.enabled=false",
        ])
        .args(["--set", "discover.enabled=true,discover.nodeSelector.pool=none"])
        .env("KUBECONFIG", testbed.lab.kubeconfig())
        .envs(
            ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "KUBECACHEDIR"]
                .map(|it| (it, home.path())),
        )
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A kubeconfig with a token of the account, as a pod on the node has it.
async fn kubeconfig(testbed: &Testbed, folder: &Path) -> (Kubeconfig, PathBuf) {
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    let node = nodes.get(NODE).await.unwrap();
    let bound = BoundObjectReference {
        kind: Some("Node".to_owned()),
        api_version: Some("v1".to_owned()),
        name: Some(node.name_any()),
        uid: node.uid(),
    };
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            bound_object_ref: Some(bound),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(testbed.client.clone(), "octavo-system");
    let made =
        accounts.create_token_request("octavo-discover", &PostParams::default(), &request).await;
    let token = made.unwrap().status.unwrap().token.unwrap();
    let mut config = Kubeconfig::read_from(testbed.lab.kubeconfig()).unwrap();
    for user in &mut config.auth_infos {
        user.auth_info =
            Some(AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() });
    }
    let path = folder.join("kubeconfig");
    // The type hides its token when it is written.
    let mut written = serde_json::to_value(&config).unwrap();
    for user in written["users"].as_array_mut().unwrap() {
        user["user"] = json!({"token": token});
    }
    std::fs::write(&path, written.to_string()).unwrap();
    (config, path)
}

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn label(testbed: &Testbed, node: &str) -> Option<String> {
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    nodes.get(node).await.unwrap().labels().get(LABEL).cloned()
}

async fn patch_as(client: &Client, node: &str, patch: Value) -> Result<(), String> {
    let nodes: Api<Node> = Api::all(client.clone());
    let patched = nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discover_labels_its_own_node_while_it_has_a_gpu_and_changes_nothing_else() {
    let testbed = Testbed::up("t4=2").await;
    install(&testbed);
    // The lab labels its nodes itself.
    patch_as(&testbed.client, NODE, json!({"metadata": {"labels": {LABEL: null}}})).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (config, path) = kubeconfig(&testbed, folder.path()).await;
    let config =
        Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();

    // The API server learns of policies and rights a moment after their creation.
    // Each try has another value: one that got through too early would be no change for the next.
    let other = "octavo.dev/mode";
    let tries = std::sync::atomic::AtomicU32::new(0);
    eventually("the policy is in force", || async {
        let value = tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string();
        let patch = json!({"metadata": {"labels": {other: value}}});
        let error = patch_as(&client, NODE, patch).await.err()?;
        error.contains("discover may change nvidia.com/gpu.present only").then_some(())
    })
    .await;
    let error =
        patch_as(&client, OTHER, json!({"metadata": {"labels": {LABEL: "x"}}})).await.unwrap_err();
    assert!(error.contains("may change its own node only"), "{error}");
    for change in [
        json!({"metadata": {"labels": {"nvidia.com/gpu.product": "x"}}}),
        json!({"metadata": {"annotations": {"a": "b"}}}),
        json!({"spec": {"unschedulable": true}}),
    ] {
        let error = patch_as(&client, NODE, change.clone()).await.unwrap_err();
        assert!(error.contains("discover may change"), "{change}: {error}");
    }

    // A bus of its own: the lab's nodes share theirs.
    let sys = folder.path().join("sys");
    let device = sys.join("bus/pci/devices/0000:17:00.0");
    std::fs::create_dir_all(&device).unwrap();
    std::fs::write(device.join("vendor"), "0x10de\n").unwrap();
    std::fs::write(device.join("class"), "0x030200\n").unwrap();
    let child = Command::new(OCTAVO)
        .args(["discover", "--interval", "100ms", "--node-name", NODE])
        .arg("--kubeconfig")
        .arg(&path)
        .arg("--sys-root")
        .arg(&sys)
        .spawn();
    let _program = Program(child.unwrap());
    eventually("the node is labelled", || async {
        (label(&testbed, NODE).await.as_deref() == Some("true")).then_some(())
    })
    .await;
    std::fs::remove_dir_all(&device).unwrap();
    eventually("the label is gone", || async {
        label(&testbed, NODE).await.is_none().then_some(())
    })
    .await;
    assert_eq!(label(&testbed, OTHER).await.as_deref(), Some("true"), "another program set it");
}
