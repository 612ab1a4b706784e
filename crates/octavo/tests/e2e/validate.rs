//! `octavo validate`: on a real node by Jobs with real containers, and on simulated nodes by hand.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::real_node::{lock_real_nodes, log_of, shell_pod};
use crate::testbed::{OCTAVO, Testbed, eventually};

const REAL: &str = "real-0";
const SIMULATED: &str = "t4-0";
/// GPUs of each node here.
const GPUS: u32 = 4;

/// Gives a driver's root device nodes of its own, as that of a driver container has. The lab makes none.
fn make_device_nodes(driver_root: &Path) {
    let folder = driver_root.join("dev");
    std::fs::create_dir(&folder).unwrap();
    let gpus = (0..GPUS).map(|minor| format!("nvidia{minor}"));
    for name in gpus.chain(["nvidiactl".to_owned()]) {
        symlink("/dev/null", folder.join(name)).unwrap();
    }
}

/// Runs `octavo validate`, which must end with a code. Returns its JSON.
fn validate(testbed: &Testbed, args: &[&str], code: i32) -> Value {
    let output = testbed.octavo(&[&["validate", "-o", "json"], args].concat());
    json_of(&output, code)
}

fn json_of(output: &Output, code: i32) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{text}{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The states of the components, in their order.
fn states(report: &Value) -> Vec<&str> {
    let components = report["components"].as_array().unwrap();
    components.iter().map(|found| found["state"].as_str().unwrap()).collect()
}

/// No Job, no pod of one and no claim is left.
async fn nothing_is_left(testbed: &Testbed, namespace: &str) {
    let client = || testbed.client.clone();
    let jobs: Api<Job> = Api::namespaced(client(), namespace);
    let claims: Api<ResourceClaim> = Api::namespaced(client(), namespace);
    let pods: Api<Pod> = Api::namespaced(client(), namespace);
    let of_jobs = ListParams::default().labels("batch.kubernetes.io/job-name");
    let all = ListParams::default();
    eventually("nothing of a validation is left", || async {
        let left = jobs.list(&all).await.ok()?.items.len()
            + claims.list(&all).await.ok()?.items.len()
            + pods.list(&of_jobs).await.ok()?.items.len();
        (left == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_node_is_validated_in_both_modes_and_nothing_is_left() {
    let Some(_guard) = lock_real_nodes().await else { return };
    let testbed = Testbed::up_real("1:t4").await;
    eventually("the node publishes", || testbed.device(REAL, "gpu-0")).await;
    let files = testbed.lab.real_root(REAL).unwrap().join("run/nvidia/validations");

    let report = validate(&testbed, &[], 1);
    let node = &report["nodes"][0];
    assert_eq!(states(node), ["failed", "notTried", "notTried", "notTried"], "{report:#}");
    let message = node["components"][0]["message"].as_str().unwrap();
    assert!(message.contains("lacks device nodes: nvidiactl"), "{message}");
    assert!(!files.join("driver-ready").exists());

    make_device_nodes(&testbed.node(REAL).join("driver"));
    let report = validate(&testbed, &[], 0);
    let node = &report["nodes"][0];
    assert_eq!(
        (&node["node"], &node["offer"]["mode"]),
        (&json!(REAL), &json!("dra")),
        "{report:#}"
    );
    assert_eq!(states(node), ["ready"; 4], "{report:#}");
    let text = std::fs::read_to_string(files.join("driver-ready")).unwrap();
    assert_eq!(
        text,
        "IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\nDRIVER_ROOT_CTR_PATH=/driver-root\n\
         NVIDIA_DEV_ROOT=/run/nvidia/driver\nDEV_ROOT_CTR_PATH=/driver-root\n"
    );
    for component in ["toolkit", "cuda", "plugin"] {
        assert!(files.join(format!("{component}-ready")).exists(), "{component}");
    }
    nothing_is_left(&testbed, "octavo-system").await;

    a_container_that_does_not_start_is_a_toolkit_that_failed(&testbed).await;
    a_busy_node_is_not_waited_for(&testbed).await;

    let nodes: Api<Node> = Api::all(testbed.client.clone());
    let patch = json!({"metadata": {"labels": {"octavo.dev/mode": "device-plugin"}}});
    nodes.patch(REAL, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    eventually("the kubelet counts the GPUs", || async {
        let allocatable = nodes.get(REAL).await.ok()?.status?.allocatable?;
        (allocatable.get("nvidia.com/gpu")?.0 == GPUS.to_string()).then_some(())
    })
    .await;
    let report = validate(&testbed, &[REAL], 0);
    let node = &report["nodes"][0];
    assert_eq!(
        node["offer"],
        json!({"mode": "device-plugin", "resource": "nvidia.com/gpu", "amount": 4})
    );
    assert_eq!(states(node), ["ready"; 4], "{report:#}");
    nothing_is_left(&testbed, "octavo-system").await;
    the_doctor_knows_the_mode(&testbed).await;
}

/// A node of the agent's device plugin has no fault. A wrong label is one while the agent says so.
async fn the_doctor_knows_the_mode(testbed: &Testbed) {
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    let label = |mode: &str| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"octavo.dev/mode": mode}}}));
        let nodes = nodes.clone();
        async move { nodes.patch(REAL, &PatchParams::default(), &patch).await.unwrap() }
    };
    // While the mode changes, the kubelet counts GPUs that slices have again: an error for a moment.
    let findings = || {
        let output = testbed.octavo(&["doctor", REAL, "-o", "json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap().clone();
        let of_node = |finding: &Value| finding["subject"] == format!("node {REAL}");
        findings.into_iter().filter(of_node).map(|it| it["problem"].as_str().unwrap().to_owned())
    };
    assert_eq!(findings().collect::<Vec<_>>(), [""; 0]);
    label("both").await;
    eventually("the doctor names the label", || async {
        findings().any(|problem| problem.starts_with("ModeLabelInvalid")).then_some(())
    })
    .await;
    label("device-plugin").await;
    eventually("the doctor has nothing to say", || async {
        (findings().count() == 0).then_some(())
    })
    .await;
}

/// The runtime cannot run the program of the agent's CDI hooks.
async fn a_container_that_does_not_start_is_a_toolkit_that_failed(testbed: &Testbed) {
    let hook = testbed.lab.real_root(REAL).unwrap().join("var/lib/octavo/bin/octavo-cdi-hook");
    std::fs::set_permissions(&hook, Permissions::from_mode(0o644)).unwrap();
    let report = validate(testbed, &[REAL], 1);
    std::fs::set_permissions(&hook, Permissions::from_mode(0o755)).unwrap();
    let node = &report["nodes"][0];
    assert_eq!(states(node), ["ready", "failed", "notTried", "notTried"], "{report:#}");
    let message = node["components"][1]["message"].as_str().unwrap();
    assert!(message.contains("octavo-cdi-hook: permission denied"), "{message}");
    nothing_is_left(testbed, "octavo-system").await;
}

/// While all GPUs are in use, the driver alone is checked.
async fn a_busy_node_is_not_waited_for(testbed: &Testbed) {
    let request = json!({"deviceClassName": "gpu.nvidia.com", "count": GPUS});
    let claim = json!({"metadata": {"name": "all"}, "spec": {"devices": {
        "requests": [{"name": "gpu", "exactly": request}]}}});
    testbed.create::<ResourceClaim>(claim).await;
    log_of(testbed, shell_pod("all", REAL, "true", &["all"])).await;
    let output = testbed.octavo(&["validate", REAL, "--gpu-timeout", "2s"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("no free GPU (the scheduler says: "), "{text}");
    assert!(text.contains("toolkit, cuda and plugin were not tried"), "{text}");
    testbed.delete_pod("all").await;
    testbed.claims().delete("all", &kube::api::DeleteParams::default()).await.unwrap();
    nothing_is_left(testbed, "octavo-system").await;
}

/// Runs `octavo validate node` for the simulated node, as a process of this machine.
fn by_hand(testbed: &Testbed, components: &[&str], files: &Path, code: i32) -> Value {
    let driver = testbed.node(SIMULATED).join("driver");
    let output = Command::new(OCTAVO)
        .args(["validate", "node", "-o", "json", "--driver-root=/run/nvidia/driver"])
        .arg(format!("--driver-root-seen={}", driver.display()))
        .arg(format!("--status-dir={}", files.display()))
        .arg(format!("--node-name={SIMULATED}"))
        .args(components)
        .env("KUBECONFIG", testbed.lab.kubeconfig())
        .env("LD_LIBRARY_PATH", driver.join("usr/lib64"))
        .env_remove("KUBERNETES_SERVICE_HOST")
        .output()
        .unwrap();
    json_of(&output, code)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_simulated_node_is_validated_by_hand_and_an_interrupted_command_removes_its_job() {
    let testbed = Testbed::up("t4=1").await;
    eventually("the node publishes", || testbed.device(SIMULATED, "gpu-0")).await;
    make_device_nodes(&testbed.node(SIMULATED).join("driver"));
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("validations");
    let report = by_hand(&testbed, &["driver", "cuda", "plugin"], &files, 0);
    assert_eq!(states(&report), ["ready"; 3], "{report:#}");
    let message = report["components"][2]["message"].as_str().unwrap();
    assert_eq!(message, "the ResourceSlices have devices of class gpu.nvidia.com: 4");
    for component in ["driver", "cuda", "plugin"] {
        assert!(files.join(format!("{component}-ready")).exists(), "{component}");
    }
    let report = by_hand(&testbed, &[], &files, 3);
    assert_eq!(states(&report), ["ready", "notTried", "ready", "ready"], "{report:#}");

    // A GPU that is lost: the files of all that depends on the driver go.
    testbed.octavo_ok(&["lab", "gpu", SIMULATED, "1", "lost"]);
    let report = by_hand(&testbed, &[], &files, 1);
    assert_eq!(states(&report), ["failed", "notTried", "notTried", "notTried"], "{report:#}");
    assert_eq!(std::fs::read_dir(&files).unwrap().count(), 0);

    // Containers of simulated nodes run until their pod is deleted.
    let in_default = ["-n", "default", "--image", "ubuntu:24.04"];
    let report = validate(&testbed, &[&in_default[..], &["--timeout", "5s"]].concat(), 1);
    let message = report["nodes"][0]["components"][0]["message"].as_str().unwrap();
    assert!(message.starts_with("not in time: its pod runs"), "{message}");
    nothing_is_left(&testbed, "default").await;

    interrupted(&testbed, &in_default).await;
}

/// Sends SIGINT to a command whose Job runs.
async fn interrupted(testbed: &Testbed, args: &[&str]) {
    let child = Command::new(OCTAVO)
        .arg("validate")
        .args(args)
        .env("KUBECONFIG", testbed.lab.kubeconfig())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let of_jobs = ListParams::default().labels("batch.kubernetes.io/job-name");
    eventually("the Job's pod runs", || async {
        let pod = testbed.pods().list(&of_jobs).await.ok()?.items.pop()?;
        (pod.status?.phase? == "Running").then_some(())
    })
    .await;
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output =
        tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("error: interrupted before all nodes were checked"), "{errors}");
    nothing_is_left(testbed, "default").await;
}
