//! The wall of a share in real containers: `octavo probe` asks for memory in every way, and says what it got.

use std::path::Path;

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use octavo_lab::TOOLS_IMAGE;
use serde_json::{Value, json};

use crate::bed::{Bed, OCTAVO, eventually};
use crate::real_node::{log_of, place, shell_pod};
use crate::shares::share;

/// Memory of a share in MiB: an eighth of an H100, so that eight fill it.
const EIGHTH: u64 = 10_000;

/// Memory of a context in bytes, about.
const CONTEXT: u64 = 128 << 20;

/// Where a container of these tests has the program under test.
const PROBE: &str = "/octavo/octavo";

/// A pod whose container's main process is `octavo probe`, with a claim.
fn probe_pod(name: &str, args: &[&str]) -> Value {
    let command: Vec<&str> = [PROBE, "probe"].into_iter().chain(args.iter().copied()).collect();
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

/// The pod with the program under test in its container.
fn with_program(mut pod: Value) -> Value {
    let folder = Path::new(OCTAVO).parent().expect("a folder of the program");
    pod["spec"]["volumes"] = json!([{"name": "octavo", "hostPath": {"path": folder}}]);
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "octavo", "mountPath": "/octavo", "readOnly": true}]);
    pod
}

async fn create(bed: &Bed, name: &str, memory_mib: u64, pod: Value) {
    let amounts = json!({"memory": format!("{memory_mib}Mi")});
    bed.create::<ResourceClaim>(share(name, &amounts)).await;
    bed.create::<Pod>(pod).await;
}

/// What the probe of a pod wrote, once it has written all.
async fn report(bed: &Bed, pod: &str) -> Value {
    eventually(&format!("the probe in {pod} has told all"), || async {
        let output = bed.octavo(&["lab", "kubectl", "logs", pod]);
        serde_json::from_slice(&output.stdout).ok()
    })
    .await
}

async fn remove(bed: &Bed, name: &str) {
    bed.delete_pod(name).await;
    bed.claims().delete(name, &DeleteParams::default()).await.unwrap();
}

/// Reasons of the events of an object.
async fn reasons(bed: &Bed, name: &str) -> Vec<String> {
    let events: Api<Event> = Api::default_namespaced(bed.pods().into_client());
    let events = events.list(&ListParams::default()).await.unwrap();
    let of_object = events
        .items
        .into_iter()
        .filter(|event| event.involved_object.name.as_deref() == Some(name));
    of_object.filter_map(|event| event.reason).collect()
}

/// Waits until a claim's device says this of what holds it: the agent writes it while containers start already.
async fn enforced(bed: &Bed, claim: &str, status: &str, reason: &str) {
    eventually(&format!("{claim} says Enforced={status}, {reason}"), || async {
        let devices = bed.claims().get(claim).await.ok()?.status?.devices?;
        let mut conditions =
            devices.into_iter().flat_map(|device| device.conditions.unwrap_or_default());
        let found = conditions.find(|condition| condition.type_ == "Enforced")?;
        (found.status == status && found.reason == reason).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_shares_of_one_gpu_hold_in_real_containers_and_who_goes_round_is_stopped() {
    let Some(_place) = place().await else { return };
    let bed = Bed::up_real("1:dgx-h100").await;
    let names: Vec<String> = (0..8).map(|index| format!("wall-{index}")).collect();
    // All hold what they got, so that the last ones meet their own walls and not their neighbours.
    let args = ["--no-timing", "--hold", "10000", "--output", "json"];
    for name in &names {
        create(&bed, name, EIGHTH, probe_pod(name, &args)).await;
        bed.bound(name).await;
    }
    let mut gpus = Vec::new();
    for name in &names {
        bed.running(name).await;
        let report = report(&bed, name).await;
        let seen = report["seen"]["gpus"].as_array().unwrap();
        assert_eq!(seen.len(), 1, "{report:#}");
        assert_eq!(seen[0]["totalBytes"], EIGHTH << 20, "the share is the GPU: {report:#}");
        assert_eq!(seen[0]["management"]["totalBytes"], EIGHTH << 20, "NVML, too: {report:#}");
        gpus.push(seen[0]["uuid"].as_str().unwrap().to_owned());
        let findings = report["gpus"][0]["findings"].as_array().unwrap();
        assert!(findings.len() >= 12, "every way was tried: {report:#}");
        for finding in findings {
            assert_eq!(finding["verdict"], "holds", "{name}: {finding:#}");
            // The agent has found meanwhile that the context is larger than was thought.
            let lost = finding["lostBytes"].as_u64().unwrap_or(0);
            assert!(lost < CONTEXT, "{name}: {finding:#}");
        }
        let granted = findings.iter().filter_map(|finding| finding["grantedBytes"].as_u64());
        let least = granted.min().unwrap();
        assert!(
            least > (EIGHTH << 20) / 10 * 9,
            "the share is its owner's: {least} of {EIGHTH} MiB"
        );
        enforced(&bed, name, "True", "Guard").await;
    }
    gpus.dedup();
    assert_eq!(gpus.len(), 1, "eight containers, one GPU: {gpus:?}");
    for name in &names {
        remove(&bed, name).await;
    }

    // A neighbour lives beside one that goes round its wall, and only that one is ended.
    create(&bed, "neighbour", EIGHTH, probe_pod("neighbour", &args)).await;
    report(&bed, "neighbour").await;
    let args = ["--no-timing", "--path", "alloc", "--bypass", "1000"];
    create(&bed, "rogue", EIGHTH, probe_pod("rogue", &args)).await;
    let code = eventually("who goes round the wall is ended", || async {
        let status = bed.pods().get("rogue").await.ok()?.status?;
        let state = status.container_statuses?.first()?.state.clone()?;
        state.terminated.map(|end| end.exit_code)
    })
    .await;
    assert_eq!(code, 137, "by SIGKILL");
    let told = String::from_utf8_lossy(&bed.octavo(&["lab", "kubectl", "logs", "rogue"]).stdout)
        .into_owned();
    // Whether it came to say that it had gone round depends on who was faster.
    assert!(!told.contains("not stopped within"), "{told}");
    eventually("the pod's events say why", || async {
        reasons(&bed, "rogue").await.contains(&"MemoryOverflow".to_owned()).then_some(())
    })
    .await;
    let neighbour = bed.running("neighbour").await;
    let statuses = neighbour.status.unwrap().container_statuses.unwrap();
    assert!(
        statuses[0].state.as_ref().unwrap().running.is_some() && statuses[0].restart_count == 0
    );
    assert!(!reasons(&bed, "neighbour").await.contains(&"MemoryOverflow".to_owned()));
    remove(&bed, "rogue").await;

    // One that spoils its ledger is fenced; its neighbour is not.
    let spoil = format!(
        "dd if=/dev/zero of=$(echo /run/octavo/shares/*/state) bs=64 count=1 conv=notrunc; sleep 2; \
         {PROBE} probe --no-timing --path alloc; echo code $?"
    );
    let spoiler = with_program(shell_pod("spoiler", "real-0", &spoil, &["spoiler"]));
    let amounts = json!({"memory": format!("{EIGHTH}Mi")});
    bed.create::<ResourceClaim>(share("spoiler", &amounts)).await;
    let log = log_of(&bed, spoiler).await;
    assert!(log.contains("code 1") && !log.contains("holds"), "nothing is granted: {log}");
    enforced(&bed, "spoiler", "False", "StateTampered").await;
    enforced(&bed, "neighbour", "True", "Guard").await;
    for name in ["spoiler", "neighbour"] {
        remove(&bed, name).await;
    }
}
