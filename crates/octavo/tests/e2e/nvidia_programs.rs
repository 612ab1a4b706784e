//! NVIDIA's own device plugin and GPU feature discovery, beside the agent and before it. `make nvidia` builds them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use octavo_lab::TOOLS_IMAGE;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::real_node::{lock_real_nodes, log_of, shell_pod};
use crate::testbed::{Testbed, eventually};

/// Environment variable with the folder of their programs.
const PROGRAMS: &str = "OCTAVO_TEST_NVIDIA_PROGRAMS";
const NODE: &str = "real-0";
const RESOURCE: &str = "nvidia.com/gpu";
const PODS: usize = 8;
/// Where NVIDIA's static manifest has it.
const PLUGIN_NAMESPACE: &str = "kube-system";
const PLUGIN: &str = "nvidia-device-plugin-daemonset";

/// Their folder; `None`, with a line that says so, where they were not built.
fn programs() -> Option<PathBuf> {
    let folder = std::env::var_os(PROGRAMS).map(PathBuf::from);
    if folder.is_none() {
        let _ = writeln!(std::io::stderr(), "skipped, {PROGRAMS} is not set: run `make nvidia`");
    }
    folder
}

async fn label(testbed: &Testbed, node: &str, labels: Value) {
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    let patch = json!({"metadata": {"labels": labels}});
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

async fn wait_until_allocatable(testbed: &Testbed, count: &str) {
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    eventually(&format!("{NODE} has {count} of {RESOURCE}"), || async {
        let status = nodes.get(NODE).await.ok()?.status?;
        (status.allocatable?.get(RESOURCE)?.0 == count).then_some(())
    })
    .await;
}

/// Starts NVIDIA's plugin on the real node, as its static manifest does, with the simulated driver.
async fn start_plugin(testbed: &Testbed, programs: &Path) {
    let root = testbed.lab.real_root(NODE).unwrap();
    let folder = root.join("var/lib/nvidia-programs");
    fs::create_dir_all(&folder).unwrap();
    let name = "nvidia-device-plugin";
    if !folder.join(name).exists() {
        fs::copy(programs.join(name), folder.join(name)).unwrap();
    }
    let volume = |name: &str, path: &str| json!({"name": name, "hostPath": {"path": path}});
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
    let labels = json!({"name": "nvidia-device-plugin-ds"});
    let object = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": PLUGIN, "namespace": PLUGIN_NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {"kubernetes.io/hostname": NODE},
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "nvidia-device-plugin-ctr",
                        "image": TOOLS_IMAGE,
                        "command": ["/nvidia/nvidia-device-plugin"],
                        "env": [
                            {"name": "FAIL_ON_INIT_ERROR", "value": "true"},
                            {"name": "LD_LIBRARY_PATH", "value": "/run/nvidia/driver/usr/lib64"},
                        ],
                        "volumeMounts": [
                            mount("device-plugin", "/var/lib/kubelet/device-plugins"),
                            mount("hardware", "/run/nvidia"),
                            mount("programs", "/nvidia"),
                        ],
                    }],
                    "volumes": [
                        volume("device-plugin", "/var/lib/kubelet/device-plugins"),
                        volume("hardware", "/run/nvidia"),
                        volume("programs", "/var/lib/nvidia-programs"),
                    ],
                },
            },
        },
    });
    let sets: Api<DaemonSet> = Api::namespaced(testbed.client.clone(), PLUGIN_NAMESPACE);
    let object = serde_json::from_value(object).unwrap();
    sets.create(&PostParams::default(), &object).await.unwrap();
}

/// Ends NVIDIA's plugin, and waits for its end.
async fn end_plugin(testbed: &Testbed) {
    let sets: Api<DaemonSet> = Api::namespaced(testbed.client.clone(), PLUGIN_NAMESPACE);
    sets.delete(PLUGIN, &DeleteParams::default()).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(testbed.client.clone(), PLUGIN_NAMESPACE);
    let of_plugin = ListParams::default().labels("name=nvidia-device-plugin-ds");
    eventually("NVIDIA's plugin has ended", || async {
        pods.list(&of_plugin).await.ok()?.items.is_empty().then_some(())
    })
    .await;
}

fn counting_pod(name: &str, script: &str) -> Value {
    let mut pod = shell_pod(name, NODE, script, &[]);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {RESOURCE: "1"}});
    pod
}

/// Containers and their restarts, by pod.
async fn containers(testbed: &Testbed) -> BTreeMap<String, (Option<String>, i32)> {
    let pods = testbed.pods().list(&ListParams::default()).await.unwrap().items;
    let status = |pod: &Pod| {
        let status = pod.status.clone()?.container_statuses?.pop()?;
        Some((pod.name_any(), (status.container_id, status.restart_count)))
    };
    pods.iter().filter_map(status).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_nvidia_s_device_plugin_keep_running_when_the_agent_takes_over_and_gives_back() {
    let Some(programs) = programs() else { return };
    let Some(_guard) = lock_real_nodes().await else { return };
    let testbed = Testbed::up_real("1:dgx-h100").await;
    eventually("the node publishes", || testbed.device(NODE, "gpu-0")).await;
    label(&testbed, NODE, json!({"octavo.dev/mode": "none"})).await;
    eventually("the node publishes no GPU", || async {
        testbed.device(NODE, "gpu-0").await.is_none().then_some(())
    })
    .await;
    start_plugin(&testbed, &programs).await;
    wait_until_allocatable(&testbed, "8").await;
    let mut gpus = BTreeMap::new();
    for number in 0..PODS {
        let name = format!("train-{number}");
        let log = log_of(&testbed, counting_pod(&name, "echo gpu=$NVIDIA_VISIBLE_DEVICES")).await;
        let gpu = log.lines().find_map(|line| line.strip_prefix("gpu=")).unwrap().to_owned();
        assert!(gpu.starts_with("GPU-"), "{log}");
        gpus.insert(gpu, name);
    }
    assert_eq!(gpus.len(), PODS, "each pod has a GPU of its own: {gpus:?}");
    let before = containers(&testbed).await;

    // The agent takes the same resource over. What pods have stays theirs.
    end_plugin(&testbed).await;
    label(&testbed, NODE, json!({"octavo.dev/mode": "device-plugin"})).await;
    let socket = testbed.lab.real_root(NODE).unwrap();
    let socket = socket.join("var/lib/kubelet/device-plugins/nvidia-gpu.sock");
    eventually("the agent serves the resource", || async { socket.exists().then_some(()) }).await;
    wait_until_allocatable(&testbed, "8").await;
    assert_eq!(containers(&testbed).await, before);
    let ninth = counting_pod("ninth", "ls /dev/nvidia[0-9]*; nvidia-smi -L");
    testbed.create::<Pod>(ninth.clone()).await;
    testbed.wait_until_unschedulable("ninth").await;
    testbed.delete_pod("ninth").await;
    let (gpu, name) = gpus.iter().nth(3).unwrap();
    testbed.delete_pod(name).await;
    let log = log_of(&testbed, ninth).await;
    assert_eq!(log.matches("/dev/nvidia").count(), 1, "{log}");
    assert!(log.contains(gpu.as_str()), "it has the GPU that became free, {gpu}: {log}");

    // Both at once: the kubelet has the newer, and the doctor names the other one.
    start_plugin(&testbed, &programs).await;
    let finding = eventually("the doctor names NVIDIA's plugin", || async {
        let output = testbed.octavo(&["doctor", "-o", "json"]);
        let report: Value = serde_json::from_slice(&output.stdout).ok()?;
        let findings = report["findings"].as_array()?.clone();
        findings.into_iter().find(|it| it.to_string().contains(PLUGIN))
    })
    .await;
    assert!(finding["remedy"].as_str().is_some_and(|it| !it.is_empty()), "{finding:#}");

    // The way back: the agent withdraws, and NVIDIA's plugin serves the resource again.
    end_plugin(&testbed).await;
    let kept = containers(&testbed).await;
    testbed.delete_pod("ninth").await;
    label(&testbed, NODE, json!({"octavo.dev/mode": "none"})).await;
    wait_until_allocatable(&testbed, "0").await;
    // A plugin that ends after another has registered disconnects that one from the kubelet.
    eventually("the agent has left", || async { (!socket.exists()).then_some(()) }).await;
    start_plugin(&testbed, &programs).await;
    wait_until_allocatable(&testbed, "8").await;
    let log = log_of(&testbed, counting_pod("again", "echo gpu=$NVIDIA_VISIBLE_DEVICES")).await;
    assert!(log.contains(&format!("gpu={gpu}")), "the GPU that is free, {gpu}: {log}");
    let now = containers(&testbed).await;
    for (name, container) in kept.iter().filter(|(name, _)| *name != "ninth") {
        assert_eq!(now.get(name), Some(container), "{name}");
        assert_eq!(container.1, 0, "{name}");
    }
}

/// Longer than an agent takes for its labels.
const LABEL_TIMEOUT: Duration = Duration::from_secs(30);

/// Labels that depend on the computer that the lab runs on, of which simulated nodes have files of their own.
const OF_THE_COMPUTER: [&str; 3] =
    ["nvidia.com/gpu.machine", "nvidia.com/gpu.mode", "nvidia.com/gfd.timestamp"];

/// The labels that NVIDIA's feature discovery gives a node, with these arguments.
fn discovered(
    testbed: &Testbed,
    programs: &Path,
    node: &str,
    args: &[&str],
) -> BTreeMap<String, String> {
    let folder = testbed.node(node);
    let file = folder.join("gfd-labels");
    let output = Command::new(programs.join("gpu-feature-discovery"))
        .args(["--oneshot", "--no-timestamp", "--output-file"])
        .arg(&file)
        .args(args)
        .env("NODE_NAME", node)
        .env("LD_LIBRARY_PATH", folder.join("driver/usr/lib64"))
        .output()
        .unwrap();
    let text = fs::read_to_string(&file).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    });
    let labels = text.lines().filter_map(|line| line.split_once('='));
    let labels = labels.filter(|(key, _)| !OF_THE_COMPUTER.contains(key));
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The agent gives the node every label of NVIDIA's program with its value.
async fn compare(testbed: &Testbed, programs: &Path, node: &str, args: &[&str]) {
    let wanted = discovered(testbed, programs, node, args);
    assert!(wanted.len() > 20, "{wanted:?}");
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    let lacks = |labels: &BTreeMap<String, String>| -> Vec<String> {
        let differs = |(key, value): &(&String, &String)| labels.get(*key) != Some(*value);
        let show = |(key, value): (&String, &String)| {
            format!("{key}: {value}, and the agent has {:?}", labels.get(key))
        };
        wanted.iter().filter(differs).map(show).collect()
    };
    let same = eventually("the labels are those of NVIDIA's program", || async {
        lacks(&nodes.get(node).await.ok()?.metadata.labels?).is_empty().then_some(())
    });
    if timeout(LABEL_TIMEOUT, same).await.is_err() {
        let labels = nodes.get(node).await.unwrap().metadata.labels.unwrap();
        panic!("{node} with {args:?}: {:#?}", lacks(&labels));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_labels_are_those_of_nvidia_s_feature_discovery() {
    let Some(programs) = programs() else { return };
    let kinds = ["dgx-h100", "dgx-a100-80", "hgx-h200", "l4", "t4", "gh200", "gb200-tray"];
    let set = kinds.map(|kind| format!("{kind}=1")).join(",");
    let testbed = Testbed::up(&set).await;
    for kind in kinds {
        let node = format!("{kind}-0");
        testbed.configure_agent(&node, "featureLabels: node").await;
        compare(&testbed, &programs, &node, &[]).await;
    }

    // Shared GPUs.
    let counting = "featureLabels: node\nmode: device-plugin";
    let node = "dgx-h100-0";
    let configs = testbed.node(node).join("plugin-configs");
    fs::create_dir_all(&configs).unwrap();
    for (name, renames) in [("same-name", false), ("renamed", true)] {
        let text = format!(
            "version: v1\nsharing: {{timeSlicing: {{renameByDefault: {renames}, resources: [{{name: {RESOURCE}, replicas: 4}}]}}}}\n"
        );
        let file = configs.join(name);
        fs::write(&file, text).unwrap();
        let plugin = format!("{{configFolder: {}, defaultConfig: {name}}}", configs.display());
        testbed.configure_agent(node, &format!("{counting}\ndevicePlugin: {plugin}")).await;
        let file = file.display().to_string();
        compare(&testbed, &programs, node, &["--config-file", &file]).await;
    }

    // MIG devices, alike on all GPUs and not.
    for layout in ["all-1g.10gb", "all-balanced"] {
        for strategy in ["none", "single", "mixed"] {
            let plugin = format!("devicePlugin: {{flags: {{mig-strategy: {strategy}}}}}");
            let settings = format!("{counting}\nmigManager: true\n{plugin}");
            testbed.configure_agent(node, &settings).await;
            label(&testbed, node, json!({"nvidia.com/mig.config": layout})).await;
            let nodes: Api<Node> = Api::all(testbed.client.clone());
            eventually(&format!("{node} has {layout}"), || async {
                let labels = nodes.get(node).await.ok()?.metadata.labels?;
                (labels.get("nvidia.com/mig.config.state")? == "success").then_some(())
            })
            .await;
            compare(&testbed, &programs, node, &["--mig-strategy", strategy]).await;
        }
    }
}
