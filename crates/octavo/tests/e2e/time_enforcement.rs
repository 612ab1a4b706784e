//! Leases of GPU time in real containers: `octavo probe --busy` keeps one GPU busy in two shares.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::memory_enforcement::{probe_pod, remove};
use crate::real_node::{allocated_gpu, lock_real_nodes};
use crate::shares::share_claim;
use crate::testbed::{Testbed, eventually};

const NAMESPACE: &str = "octavo-system";

/// Longer than the test takes.
const BUSY: [&str; 2] = ["--busy", "600"];

async fn create(testbed: &Testbed, name: &str, percent: &str, args: &[&str]) {
    let mut claim = share_claim(name, &json!({"memory": "8Gi", "compute": percent}));
    claim["spec"]["devices"]["config"] = json!([{"opaque": {
        "driver": "gpu.nvidia.com",
        "parameters": {
            "apiVersion": "octavo.dev/v1alpha1", "kind": "GpuShareConfig", "computeLimit": "90%",
        },
    }}]);
    testbed.create::<ResourceClaim>(claim).await;
    testbed.create::<Pod>(probe_pod(name, args)).await;
    testbed.wait_until_running(name).await;
}

/// Changes settings of the agent, and starts it again.
pub(crate) async fn set(testbed: &Testbed, settings: &[(&str, &str)]) {
    let maps: Api<ConfigMap> = Api::namespaced(testbed.client.clone(), NAMESPACE);
    let mut config = maps.get("octavo-agent").await.unwrap().data.unwrap()["agent.yaml"].clone();
    for (name, value) in settings {
        let start = format!("{name}: ");
        let lines = config.lines().map(|line| {
            let is_it = line.starts_with(&start);
            if is_it { format!("{start}{value:?}\n") } else { format!("{line}\n") }
        });
        config = lines.collect();
        assert!(config.contains(&format!("{start}{value:?}")), "{config}");
    }
    let patch = json!({"data": {"agent.yaml": config}});
    maps.patch("octavo-agent", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    restart_agent(testbed).await;
}

pub(crate) async fn restart_agent(testbed: &Testbed) {
    let pods: Api<Pod> = Api::namespaced(testbed.client.clone(), NAMESPACE);
    let agents = ListParams::default().labels("app.kubernetes.io/component=agent");
    for pod in pods.list(&agents).await.unwrap().items {
        pods.delete(&pod.metadata.name.unwrap(), &DeleteParams::default()).await.unwrap();
    }
}

async fn wait_for_condition(
    testbed: &Testbed,
    claim: &str,
    status: &str,
    reason: &str,
    part: &str,
) {
    eventually(&format!("{claim} says TimeEnforced={status}, {reason}"), || async {
        let devices = testbed.claims().get(claim).await.ok()?.status?.devices?;
        let mut conditions =
            devices.into_iter().flat_map(|device| device.conditions.unwrap_or_default());
        let found = conditions.find(|condition| condition.type_ == "TimeEnforced")?;
        let is_so =
            found.status == status && found.reason == reason && found.message.contains(part);
        is_so.then_some(())
    })
    .await;
}

/// Waits until both shares have used time and waited for each other, by the agent that runs now.
async fn wait_for_turns(testbed: &Testbed) {
    eventually("both shares have turns", || async {
        let text = testbed.octavo(&["top", "--shares", "-o", "json"]).stdout;
        let report: Value = serde_json::from_slice(&text).ok()?;
        let shares = report["shares"].as_array()?;
        let has_turns = |share: &Value| {
            let time = &share["figures"]["time"];
            time["usedMs"].as_u64() > Some(0) && time["waitedMs"].as_u64() > Some(0)
        };
        (shares.len() == 2 && shares.iter().all(has_turns)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_shares_have_leases_and_outlive_their_agent() {
    let Some(_guard) = lock_real_nodes().await else { return };
    let testbed = Testbed::up_real("1:dgx-h100").await;
    // One begins before the setting: its guard asks each agent for leases.
    create(&testbed, "small", "30", &BUSY).await;
    wait_for_condition(&testbed, "small", "False", "TimeNotEnforced", "timeEnforcement: leases")
        .await;
    set(&testbed, &[("timeEnforcement", "leases")]).await;
    let part = "have 30 % of the GPU's time while they want it, and never more than 90 %";
    wait_for_condition(&testbed, "small", "True", "Leases", part).await;
    create(&testbed, "large", "70", &BUSY).await;
    let gpus = [allocated_gpu(&testbed, "small").await, allocated_gpu(&testbed, "large").await];
    assert_eq!(gpus[0], gpus[1], "two shares of one GPU");
    wait_for_turns(&testbed).await;

    restart_agent(&testbed).await;
    wait_for_turns(&testbed).await;

    // A program that ends gives its turn back, and its report says what it got done.
    create_third(&testbed).await;
    for name in ["small", "large", "short"] {
        remove(&testbed, name).await;
    }
}

/// A third share without a part of its own has time, too, and its program ends.
async fn create_third(testbed: &Testbed) {
    testbed.create::<ResourceClaim>(share_claim("short", &json!({"memory": "8Gi"}))).await;
    testbed.create::<Pod>(probe_pod("short", &["--busy", "1"])).await;
    let report = eventually("the third share's program has ended", || async {
        let output = testbed.octavo(&["lab", "kubectl", "logs", "short"]);
        serde_json::from_slice::<Value>(&output.stdout).ok()
    })
    .await;
    assert!(report["kernels"].as_u64() > Some(0), "{report:#}");
}
