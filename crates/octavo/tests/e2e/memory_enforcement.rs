//! Memory enforcement of shares in real containers: `octavo probe` requests memory on every
//! allocation path and reports the results.

use std::path::Path;

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use octavo_lab::TOOLS_IMAGE;
use serde_json::{Value, json};

use crate::real_node::{lock_real_nodes, log_of, shell_pod};
use crate::shares::share_claim;
use crate::testbed::{OCTAVO, Testbed, eventually};

/// Memory of a share in MiB: an eighth of the 81,559 of an H100.
const EIGHTH_MIB: u64 = 10_194;

/// What it gives in MiB. Driver and firmware reserve 551 of the GPU, so that eight such shares fit.
const USABLE_MIB: u64 = 10_125;

/// What a share may lack at first, in bytes. Until the agent has measured contexts, each of the eight is larger than its
/// charge, and the GPU is full.
const MAX_LOST_BYTES: u64 = 512 << 20;

/// Path of the binary under test in containers.
const OCTAVO_IN_CONTAINER: &str = "/octavo/octavo";

/// Arguments of a probe that reports and then keeps its memory.
const HOLD: [&str; 5] = ["--no-timing", "--hold", "10000", "--output", "json"];

/// A pod with a claim that runs `octavo probe` as its main process.
pub(crate) fn probe_pod(name: &str, args: &[&str]) -> Value {
    let command: Vec<&str> =
        [OCTAVO_IN_CONTAINER, "probe"].into_iter().chain(args.iter().copied()).collect();
    with_program(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": "real-0"},
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            "containers": [{
                "name": "main",
                "image": TOOLS_IMAGE,
                "command": command,
                "resources": {"claims": [{"name": "gpu"}]},
            }],
        },
    }))
}

/// The pod with the binary under test mounted.
fn with_program(mut pod: Value) -> Value {
    let folder = Path::new(OCTAVO).parent().expect("a folder of the program");
    pod["spec"]["volumes"] = json!([{"name": "octavo", "hostPath": {"path": folder}}]);
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "octavo", "mountPath": "/octavo", "readOnly": true}]);
    pod
}

async fn create(testbed: &Testbed, name: &str, memory_mib: u64, pod: Value) {
    let amounts = json!({"memory": format!("{memory_mib}Mi")});
    testbed.create::<ResourceClaim>(share_claim(name, &amounts)).await;
    testbed.create::<Pod>(pod).await;
}

/// The complete report of a pod's probe.
async fn wait_for_report(testbed: &Testbed, pod: &str) -> Value {
    eventually(&format!("the probe in {pod} has told all"), || async {
        let output = testbed.octavo(&["lab", "kubectl", "logs", pod]);
        serde_json::from_slice(&output.stdout).ok()
    })
    .await
}

pub(crate) async fn remove(testbed: &Testbed, name: &str) {
    testbed.delete_pod(name).await;
    testbed.claims().delete(name, &DeleteParams::default()).await.unwrap();
}

/// Reasons of the events of an object.
async fn event_reasons(testbed: &Testbed, name: &str) -> Vec<String> {
    let events: Api<Event> = Api::default_namespaced(testbed.pods().into_client());
    let events = events.list(&ListParams::default()).await.unwrap();
    let of_object = events
        .items
        .into_iter()
        .filter(|event| event.involved_object.name.as_deref() == Some(name));
    of_object.filter_map(|event| event.reason).collect()
}

/// Waits for the Enforced condition of a claim's device. The agent writes it while containers are
/// already starting.
async fn wait_for_enforced(testbed: &Testbed, claim: &str, status: &str, reason: &str) {
    eventually(&format!("{claim} says Enforced={status}, {reason}"), || async {
        let devices = testbed.claims().get(claim).await.ok()?.status?.devices?;
        let mut conditions =
            devices.into_iter().flat_map(|device| device.conditions.unwrap_or_default());
        let found = conditions.find(|condition| condition.type_ == "Enforced")?;
        (found.status == status && found.reason == reason).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_shares_are_enforced_and_a_bypass_is_stopped() {
    let Some(_guard) = lock_real_nodes().await else { return };
    let testbed = Testbed::up_real("1:dgx-h100").await;
    let names = eight_shares_are_enforced(&testbed).await;
    for name in &names {
        remove(&testbed, name).await;
    }
    newer_cuda_of_an_image_is_held_too(&testbed).await;
    a_bypass_and_a_spoiled_table_are_stopped(&testbed).await;
}

/// A container with a CUDA library that is newer than the node's uses it within its share (CUDA forward compatibility).
async fn newer_cuda_of_an_image_is_held_too(testbed: &Testbed) {
    let compat = testbed.lab.state_dir().join("compat");
    std::fs::create_dir(&compat).unwrap();
    let newer = compat.join("libcuda.so.990.1");
    let library = Path::new(OCTAVO).with_file_name("liboctavo_fake_cuda.so");
    std::fs::copy(&library, &newer).unwrap();
    std::os::unix::fs::symlink("libcuda.so.990.1", compat.join("libcuda.so.1")).unwrap();
    let mut pod = probe_pod("newer", &HOLD);
    let volume = json!({"name": "compat", "hostPath": {"path": compat}});
    pod["spec"]["volumes"].as_array_mut().unwrap().push(volume);
    let mount = json!({"name": "compat", "mountPath": "/usr/local/cuda/compat"});
    pod["spec"]["containers"][0]["volumeMounts"].as_array_mut().unwrap().push(mount);
    create(testbed, "newer", EIGHTH_MIB, pod).await;
    let report = wait_for_report(testbed, "newer").await;
    assert_eq!(report["seen"]["gpus"][0]["totalBytes"], USABLE_MIB << 20, "{report:#}");
    let findings = report["gpus"][0]["findings"].as_array().unwrap();
    assert!(findings.len() >= 12, "every way was tried: {report:#}");
    assert!(findings.iter().all(|finding| finding["verdict"] == "holds"), "{report:#}");
    let loaded = "grep -ho '/.*libcuda.*' /proc/[0-9]*/maps | sort -u";
    let loaded = testbed.octavo_ok(&["lab", "kubectl", "exec", "newer", "--", "sh", "-c", loaded]);
    let loaded: Vec<&str> = loaded.lines().collect();
    assert!(loaded.contains(&"/run/octavo/real/compat/libcuda.so.1"), "{loaded:?}");
    assert!(
        !loaded.iter().any(|path| path.starts_with("/run/octavo/real/libcuda.so.5")),
        "{loaded:?}"
    );
    assert_eq!(std::fs::read(&newer).unwrap(), std::fs::read(&library).unwrap(), "it is unchanged");
    remove(testbed, "newer").await;
}

/// Eight containers probe their shares of one GPU, and keep their memory. Returns their names.
pub(crate) async fn eight_shares_are_enforced(testbed: &Testbed) -> Vec<String> {
    let names: Vec<String> = (0..8).map(|index| format!("share-{index}")).collect();
    // All pods hold their memory, so the last ones meet their own limits and not their neighbours'.
    for name in &names {
        create(testbed, name, EIGHTH_MIB, probe_pod(name, &HOLD)).await;
        testbed.wait_until_bound(name).await;
    }
    let mut gpus = Vec::new();
    for name in &names {
        testbed.wait_until_running(name).await;
        let report = wait_for_report(testbed, name).await;
        let seen = report["seen"]["gpus"].as_array().unwrap();
        assert_eq!(seen.len(), 1, "{report:#}");
        assert_eq!(seen[0]["totalBytes"], USABLE_MIB << 20, "the share is the GPU: {report:#}");
        assert_eq!(seen[0]["management"]["totalBytes"], USABLE_MIB << 20, "NVML, too: {report:#}");
        gpus.push(seen[0]["uuid"].as_str().unwrap().to_owned());
        let findings = report["gpus"][0]["findings"].as_array().unwrap();
        assert!(findings.len() >= 12, "every way was tried: {report:#}");
        for finding in findings {
            assert_eq!(finding["verdict"], "holds", "{name}: {finding:#}");
            // The agent has meanwhile measured a larger context than it first assumed.
            let lost = finding["lostBytes"].as_u64().unwrap_or(0);
            assert!(lost < MAX_LOST_BYTES, "{name}: {finding:#}");
        }
        let granted = findings.iter().filter_map(|finding| finding["grantedBytes"].as_u64());
        let least = granted.min().unwrap();
        assert!(
            least > (USABLE_MIB << 20) / 10 * 9,
            "the share is its owner's: {least} of {USABLE_MIB} MiB"
        );
        wait_for_enforced(testbed, name, "True", "Guard").await;
    }
    gpus.dedup();
    assert_eq!(gpus.len(), 1, "eight containers, one GPU: {gpus:?}");
    names
}

/// Of a GPU's tenants only the one is stopped that takes what it may not have.
pub(crate) async fn a_bypass_and_a_spoiled_table_are_stopped(testbed: &Testbed) {
    // One pod bypasses its limit beside a neighbour, and only that pod is ended.
    create(testbed, "neighbour", EIGHTH_MIB, probe_pod("neighbour", &HOLD)).await;
    wait_for_report(testbed, "neighbour").await;
    let args = ["--no-timing", "--path", "alloc", "--bypass", "1000"];
    create(testbed, "rogue", EIGHTH_MIB, probe_pod("rogue", &args)).await;
    let code = eventually("a program that bypasses the guard is killed", || async {
        let status = testbed.pods().get("rogue").await.ok()?.status?;
        let state = status.container_statuses?.first()?.state.clone()?;
        state.terminated.map(|end| end.exit_code)
    })
    .await;
    assert_eq!(code, 137, "by SIGKILL");
    let log = String::from_utf8_lossy(&testbed.octavo(&["lab", "kubectl", "logs", "rogue"]).stdout)
        .into_owned();
    // Whether it could report the bypass depends on timing.
    assert!(!log.contains("not stopped within"), "{log}");
    eventually("the pod's events say why", || async {
        event_reasons(testbed, "rogue").await.contains(&"MemoryOverflow".to_owned()).then_some(())
    })
    .await;
    let neighbour = testbed.wait_until_running("neighbour").await;
    let statuses = neighbour.status.unwrap().container_statuses.unwrap();
    assert!(
        statuses[0].state.as_ref().unwrap().running.is_some() && statuses[0].restart_count == 0
    );
    assert!(!event_reasons(testbed, "neighbour").await.contains(&"MemoryOverflow".to_owned()));
    remove(testbed, "rogue").await;

    // A pod that corrupts its slot table is fenced; its neighbour is not.
    let spoil = format!(
        "dd if=/dev/zero of=$(echo /run/octavo/shares/*/state) bs=64 count=1 conv=notrunc; sleep 2; \
         {OCTAVO_IN_CONTAINER} probe --no-timing --path alloc; echo code $?"
    );
    let spoiler = with_program(shell_pod("spoiler", "real-0", &spoil, &["spoiler"]));
    let amounts = json!({"memory": format!("{EIGHTH_MIB}Mi")});
    testbed.create::<ResourceClaim>(share_claim("spoiler", &amounts)).await;
    let log = log_of(testbed, spoiler).await;
    assert!(log.contains("code 1") && !log.contains("holds"), "nothing is granted: {log}");
    wait_for_enforced(testbed, "spoiler", "False", "StateTampered").await;
    wait_for_enforced(testbed, "neighbour", "True", "Guard").await;
    for name in ["spoiler", "neighbour"] {
        remove(testbed, name).await;
    }
}
