//! Killed programs and damaged files: nothing is lost, duplicated or left behind.

use std::time::Duration;

use kube::ResourceExt;
use kube::api::DeleteParams;
use octavo_lab::Component;
use serde_json::json;

use crate::testbed::{Testbed, eventually, files};

/// Duration of the API server's outage: longer than every timeout and back-off of the agent.
const OUTAGE_DURATION: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_agent_comes_back_without_writing_a_slice() {
    let testbed = Testbed::up("dgx-h100=1").await;
    testbed.pod_with_claim("steady", &json!([])).await;
    testbed.wait_until_running("steady").await;
    let before = testbed.slices_of("dgx-h100-0").await;
    let files_before = testbed.node_files("dgx-h100-0");

    testbed.lab.kill(Component::Agents).await;
    testbed.lab.start(Component::Agents).await.unwrap();
    testbed.pod_with_claim("next", &json!([])).await;
    testbed.wait_until_running("next").await;

    let after = testbed.slices_of("dgx-h100-0").await;
    assert_eq!(
        before.iter().map(ResourceExt::resource_version).collect::<Vec<_>>(),
        after.iter().map(ResourceExt::resource_version).collect::<Vec<_>>(),
    );
    assert_eq!(testbed.node_files("dgx-h100-0").len(), files_before.len() + 2);
    testbed.delete_pod("steady").await;
    testbed.delete_pod("next").await;
    eventually("no file is left", || async {
        testbed.node_files("dgx-h100-0").is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_kubelet_finds_its_pods_and_serves_new_ones() {
    let testbed = Testbed::up("l4=1").await;
    testbed.pod_with_claim("old", &json!([])).await;
    testbed.wait_until_running("old").await;
    testbed.lab.kill(Component::Kubelets).await;
    testbed.lab.start(Component::Kubelets).await.unwrap();
    testbed.pod_with_claim("new", &json!([])).await;
    testbed.wait_until_running("new").await;
    testbed.delete_pod("old").await;
    testbed.delete_pod("new").await;
    eventually("no file is left", || async { testbed.node_files("l4-0").is_empty().then_some(()) })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_was_away_is_found_again() {
    let testbed = Testbed::up("l4=1").await;
    testbed.pod_with_claim("held", &json!([])).await;
    testbed.wait_until_running("held").await;
    let versions = async || -> Vec<Option<String>> {
        testbed.slices_of("l4-0").await.iter().map(ResourceExt::resource_version).collect()
    };
    let (before, held) = (versions().await, testbed.node_files("l4-0"));

    testbed.lab.kill(Component::KubeApiserver).await;
    tokio::time::sleep(OUTAGE_DURATION).await;
    let agents = testbed.lab.process(Component::Agents).expect("the agents outlive the API server");
    assert_eq!(testbed.node_files("l4-0"), held, "what was prepared stays so");
    testbed.lab.start(Component::KubeApiserver).await.unwrap();
    testbed.pod_with_claim("late", &json!([])).await;
    testbed.wait_until_running("late").await;
    assert_eq!(testbed.lab.process(Component::Agents).map(|p| p.pid), Some(agents.pid));
    assert_eq!(versions().await, before, "nothing had changed, so nothing is written");
    testbed.delete_pod("held").await;
    testbed.delete_pod("late").await;
    eventually("no file is left", || async { testbed.node_files("l4-0").is_empty().then_some(()) })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_or_changed_slices_are_restored() {
    let testbed = Testbed::up("gh200=1").await;
    let slice = testbed.slices_of("gh200-0").await.remove(0);
    testbed.slices().delete(&slice.name_any(), &DeleteParams::default()).await.unwrap();
    let restored = eventually("the slice is back", || async {
        testbed.slices_of("gh200-0").await.into_iter().find(|found| found.uid() != slice.uid())
    })
    .await;
    assert_eq!(restored.spec.devices, slice.spec.devices);

    let mut changed = restored.clone();
    changed.spec.devices = None;
    let params = kube::api::PostParams::default();
    testbed.slices().replace(&changed.name_any(), &params, &changed).await.unwrap();
    eventually("the devices are back", || async {
        let slices = testbed.slices_of("gh200-0").await;
        slices.iter().any(|found| found.spec.devices == slice.spec.devices).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_checkpoint_is_kept_aside_and_its_gpu_not_given_twice() {
    let testbed = Testbed::up("gh200=1").await;
    testbed.pod_with_claim("holder", &json!([])).await;
    testbed.wait_until_running("holder").await;
    testbed.lab.stop(Component::Kubelets).await;
    testbed.lab.stop(Component::Agents).await;
    let folder = testbed.node("gh200-0").join("kubelet/plugins/gpu.nvidia.com/checkpoint");
    let claims = || {
        let is_claim = |path: &std::path::PathBuf| path.extension() == Some("json".as_ref());
        files(&folder).into_iter().filter(is_claim).collect::<Vec<_>>()
    };
    let checkpoint = claims().remove(0);
    let text = std::fs::read(&checkpoint).unwrap();
    std::fs::write(&checkpoint, &text[..text.len() / 2]).unwrap();

    testbed.lab.start(Component::Agents).await.unwrap();
    eventually("the damaged file is kept aside", || async {
        (!files(&folder.join("kept")).is_empty()).then_some(())
    })
    .await;
    testbed.lab.start(Component::Kubelets).await.unwrap();
    // The kubelet prepares its living pod again, which restores the checkpoint.
    testbed.wait_until_running("holder").await;
    eventually("one whole checkpoint", || async { (claims().len() == 1).then_some(()) }).await;
    testbed.delete_pod("holder").await;
    eventually("no file is left", || async {
        testbed.node_files("gh200-0").is_empty().then_some(())
    })
    .await;
    testbed.claims().delete("holder", &DeleteParams::default()).await.unwrap();
    testbed.pod_with_claim("next", &json!([])).await;
    testbed.wait_until_running("next").await;
}
