//! Memory that is lent, in real containers: `octavo probe --keep` keeps memory with known contents in two shares of one GPU.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::{Value, json};

use crate::memory_enforcement::{probe_pod, remove};
use crate::real_node::lock_real_nodes;
use crate::shares::share_claim;
use crate::testbed::{Testbed, eventually};
use crate::time_enforcement::{restart_agent, set};

/// Starts a program that keeps so many MiB. Its share has `request`, and `limit` while others leave it, and moves by a `unit`.
async fn keep(
    testbed: &Testbed,
    name: &str,
    (request, limit, unit): (&str, &str, &str),
    args: &[&str],
) {
    let mut claim = share_claim(name, &json!({"memory": request}));
    claim["spec"]["devices"]["config"] = json!([{"opaque": {
        "driver": "gpu.nvidia.com",
        "parameters": {
            "apiVersion": "octavo.dev/v1alpha1", "kind": "GpuShareConfig", "memoryLimit": limit,
            "swapUnit": unit,
        },
    }}]);
    testbed.create::<ResourceClaim>(claim).await;
    testbed.create::<Pod>(probe_pod(name, args)).await;
    testbed.wait_until_running(name).await;
}

/// The checks of a program so far.
fn checks(testbed: &Testbed, name: &str) -> Vec<Value> {
    let output = testbed.octavo(&["lab", "kubectl", "logs", name]).stdout;
    let text = String::from_utf8_lossy(&output).into_owned();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Waits until a program has made a check, and returns it. No check finds a change.
async fn check(testbed: &Testbed, name: &str, number: usize) -> Value {
    let check = eventually(&format!("{name} has made check {number}"), || async {
        checks(testbed, name).get(number).cloned()
    })
    .await;
    assert_eq!(check["wrongPieces"], 0, "{name}: {check}");
    check
}

/// Waits for an event of a claim.
async fn wait_for_event(testbed: &Testbed, claim: &str, reason: &str) {
    eventually(&format!("an event {reason} of {claim}"), || async {
        let fields = format!("involvedObject.name={claim},reason={reason}");
        let args = ["lab", "kubectl", "get", "events", "-o", "name", "--field-selector", &fields];
        (!testbed.octavo(&args).stdout.is_empty()).then_some(())
    })
    .await;
}

/// Memory of a share on the host, in bytes, by the metrics of the agent that runs now.
async fn wait_for_swapped(testbed: &Testbed, claim: &str, is_so: impl Fn(u64) -> bool) {
    eventually(&format!("memory of {claim} on the host"), || async {
        let text = testbed.octavo(&["top", "--shares", "-o", "json"]).stdout;
        let report: Value = serde_json::from_slice(&text).ok()?;
        let share = report["shares"].as_array()?.iter().find(|it| it["claim"] == claim)?.clone();
        is_so(share["figures"]["swappedBytes"].as_u64()?).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_notebook_lends_its_memory_and_has_it_back() {
    let Some(_guard) = lock_real_nodes().await else { return };
    let testbed = Testbed::up_real("1:t4").await;
    set(&testbed, &[("timeEnforcement", "leases"), ("memorySwap", "processes")]).await;

    for unit in ["Processes", "Pages"] {
        lends_and_has_back(&testbed, unit).await;
    }
}

/// A notebook whose memory moves by a unit, and a service that needs it.
async fn lends_and_has_back(testbed: &Testbed, unit: &str) {
    let notebook = format!("notebook-{}", unit.to_lowercase());
    let service = format!("service-{}", unit.to_lowercase());
    let (notebook, service) = (notebook.as_str(), service.as_str());

    // The notebook has more than its request: the service does not use its own yet.
    let args = ["--keep", "3072", "--check-interval", "20"];
    keep(testbed, notebook, ("1Gi", "8Gi", unit), &args).await;
    check(testbed, notebook, 0).await;
    let args = ["--keep", "11264", "--check-interval", "1"];
    keep(testbed, service, ("12Gi", "13Gi", unit), &args).await;
    check(testbed, service, 3).await;
    wait_for_event(testbed, notebook, "SwappedOut").await;
    wait_for_swapped(testbed, notebook, |bytes| bytes >= 3 << 30).await;

    // An agent that begins meanwhile finds it on the host. The service goes on.
    restart_agent(testbed).await;
    wait_for_swapped(testbed, notebook, |bytes| bytes >= 3 << 30).await;
    let before = checks(testbed, service).len();
    check(testbed, service, before + 2).await;
    let before = checks(testbed, notebook).len();

    // Once there is room the notebook goes on, with its memory as it was.
    remove(testbed, service).await;
    wait_for_event(testbed, notebook, "SwappedIn").await;
    check(testbed, notebook, before).await;
    wait_for_swapped(testbed, notebook, |bytes| bytes == 0).await;
    remove(testbed, notebook).await;
}
