//! An older agent is replaced by this one and comes back, while pods use every kind of device. The older program is given
//! to `make upgrade`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::ResourceExt;
use kube::api::DeleteParams;
use octavo_lab::{Component, DynamicMig};
use serde_json::{Value, json};

use crate::mig::mig_claim;
use crate::rolling::Agent;
use crate::shares::share_claim;
use crate::testbed::{Testbed, claim, eventually, pod};

/// Environment variable with the older program.
const PROGRAM: &str = "OCTAVO_TEST_OLD_PROGRAM";

const NODE: &str = "dgx-h100-0";

/// The older agent's config file. An agent that does not know device nodes by number gets some to look at.
fn old_config(testbed: &Testbed, program: &Path) -> PathBuf {
    let node = testbed.node(NODE);
    let config = node.join("agent.yaml");
    let help = Command::new(program).args(["agent", "--help"]).output().unwrap();
    assert!(help.status.success(), "{help:?}");
    if !String::from_utf8_lossy(&help.stdout).contains("--dev-root ") {
        return config;
    }
    let devices = node.join("dev");
    fs::create_dir_all(devices.join("nvidia-caps")).unwrap();
    let gpus = (0..8).map(|minor| format!("nvidia{minor}"));
    let capabilities = (0..1024).map(|minor| format!("nvidia-caps/nvidia-cap{minor}"));
    let common = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"].map(str::to_owned);
    for name in gpus.chain(capabilities).chain(common) {
        fs::write(devices.join(name), "").unwrap();
    }
    let text = fs::read_to_string(config).unwrap();
    let path = node.join("old.yaml");
    fs::write(&path, format!("{text}\ndevRoot: {}\n", node.display())).unwrap();
    path
}

/// Creates a pod for a whole GPU, a share and a MIG device, and waits until they run. Returns their names.
async fn pods_of_every_kind(testbed: &Testbed, time: &str) -> Vec<String> {
    let of = |kind: &str| format!("{kind}-{time}");
    let amounts = json!({"memory": "10Gi", "compute": "10"});
    let claims: [Value; 3] = [
        claim(&of("whole"), &json!([])),
        share_claim(&of("share"), &amounts),
        mig_claim(&of("mig"), &["1g.10gb"]),
    ];
    let mut names = Vec::new();
    for claim in claims {
        let name = claim["metadata"]["name"].as_str().unwrap().to_owned();
        testbed.create::<ResourceClaim>(claim).await;
        testbed.create::<Pod>(pod(&name, &name)).await;
        testbed.wait_until_running(&name).await;
        names.push(name);
    }
    names
}

/// The devices that claims have.
async fn allocations(testbed: &Testbed, claims: &[String]) -> Vec<Value> {
    let mut found = Vec::new();
    for name in claims {
        let claim = serde_json::to_value(testbed.claims().get(name).await.unwrap()).unwrap();
        found.push(claim["status"]["allocation"]["devices"]["results"].clone());
    }
    found
}

/// Another pod that uses a claim: the kubelet asks the agent for it again.
async fn second_pods_run(testbed: &Testbed, claims: &[String], time: &str) {
    for claim in claims {
        let name = format!("{claim}-{time}");
        testbed.create::<Pod>(pod(&name, claim)).await;
        let second = testbed.wait_until_running(&name).await;
        let first = testbed.pods().get(claim).await.unwrap();
        let [first, second] = [&first, &second].map(|pod| testbed.container(NODE, pod, "main"));
        assert_eq!(first.gpus(), second.gpus(), "{claim}");
        assert_eq!(first.shares(), second.shares(), "{claim}");
        testbed.delete_pod(&name).await;
    }
}

/// Deletes pods with their claims.
async fn remove(testbed: &Testbed, names: &[String]) {
    for name in names {
        testbed.delete_pod(name).await;
        testbed.claims().delete(name, &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_outlive_an_upgrade_and_a_downgrade() {
    let Some(old) = std::env::var_os(PROGRAM).map(PathBuf::from) else {
        let _ = writeln!(std::io::stderr(), "skipped without an older program: run `make upgrade`");
        return;
    };
    let gpus = format!("{NODE}:6,{NODE}:7").parse::<DynamicMig>().unwrap();
    let testbed = Testbed::up_with_mig("dgx-h100=1", gpus).await;
    testbed.lab.stop(Component::Agents).await;
    let (old_config, new_config) =
        (old_config(&testbed, &old), testbed.node(NODE).join("agent.yaml"));

    let before = Agent::start_program(&testbed, &old, &old_config, "old");
    before.wait_until_ready("ready: kubelet").await;
    let first = pods_of_every_kind(&testbed, "first").await;
    let devices = allocations(&testbed, &first).await;
    let share = testbed.pods().get("share-first").await.unwrap();
    let limits = testbed.container(NODE, &share, "main").shares()[0].limits();
    let slices = testbed.slices_of(NODE).await;

    // As in a rolling update: the new agent is ready before the old one ends.
    let now = Agent::start_program(&testbed, &Agent::program(), &new_config, "new");
    now.wait_until_ready("ready: kubelet").await;
    before.kill();
    assert_eq!(testbed.node_files(NODE).len(), 6, "a record and a spec for each claim");
    let names = |slices: &[k8s_openapi::api::resource::v1::ResourceSlice]| -> Vec<String> {
        slices.iter().map(ResourceExt::name_any).collect()
    };
    assert_eq!(names(&testbed.slices_of(NODE).await), names(&slices));
    second_pods_run(&testbed, &first, "again").await;
    assert_eq!(allocations(&testbed, &first).await, devices);
    assert_eq!(testbed.container(NODE, &share, "main").shares()[0].limits(), limits);
    remove(&testbed, &first).await;
    eventually("claims of the old agent are given back", async || {
        let is_empty =
            testbed.node_files(NODE).is_empty() && testbed.share_folders(NODE).is_empty();
        (is_empty && testbed.mig_instances(NODE) == 0).then_some(())
    })
    .await;

    let second = pods_of_every_kind(&testbed, "second").await;
    let devices = allocations(&testbed, &second).await;
    let after = Agent::start_program(&testbed, &old, &old_config, "older");
    after.wait_until_ready("ready: kubelet").await;
    now.kill();
    second_pods_run(&testbed, &second, "again").await;
    assert_eq!(allocations(&testbed, &second).await, devices);
    remove(&testbed, &second).await;
    eventually("the old agent gives claims of the new one back", async || {
        let is_empty =
            testbed.node_files(NODE).is_empty() && testbed.share_folders(NODE).is_empty();
        (is_empty && testbed.mig_instances(NODE) == 0).then_some(())
    })
    .await;
}
