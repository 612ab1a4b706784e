//! Programs that die, and files that are damaged: nothing lost, doubled or left behind.

use std::time::Duration;

use kube::ResourceExt;
use kube::api::DeleteParams;
use octavo_lab::Component;
use serde_json::json;

use crate::bed::{Bed, eventually, files};

/// How long the API server is away: longer than every timeout and back-off of the agent.
const AWAY: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_agent_comes_back_without_writing_a_slice() {
    let bed = Bed::up("dgx-h100=1").await;
    bed.pod_with_claim("steady", &json!([])).await;
    bed.running("steady").await;
    let before = bed.slices_of("dgx-h100-0").await;
    let files_before = bed.node_files("dgx-h100-0");

    bed.lab.kill(Component::Agents).await;
    bed.lab.start(Component::Agents).await.unwrap();
    bed.pod_with_claim("next", &json!([])).await;
    bed.running("next").await;

    let after = bed.slices_of("dgx-h100-0").await;
    assert_eq!(
        before.iter().map(ResourceExt::resource_version).collect::<Vec<_>>(),
        after.iter().map(ResourceExt::resource_version).collect::<Vec<_>>(),
    );
    assert_eq!(bed.node_files("dgx-h100-0").len(), files_before.len() + 2);
    bed.delete_pod("steady").await;
    bed.delete_pod("next").await;
    eventually("no file is left", || async {
        bed.node_files("dgx-h100-0").is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_kubelet_finds_its_pods_and_serves_new_ones() {
    let bed = Bed::up("l4=1").await;
    bed.pod_with_claim("old", &json!([])).await;
    bed.running("old").await;
    bed.lab.kill(Component::Kubelets).await;
    bed.lab.start(Component::Kubelets).await.unwrap();
    bed.pod_with_claim("new", &json!([])).await;
    bed.running("new").await;
    bed.delete_pod("old").await;
    bed.delete_pod("new").await;
    eventually("no file is left", || async { bed.node_files("l4-0").is_empty().then_some(()) })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_was_away_is_found_again() {
    let bed = Bed::up("l4=1").await;
    bed.pod_with_claim("held", &json!([])).await;
    bed.running("held").await;
    let versions = async || -> Vec<Option<String>> {
        bed.slices_of("l4-0").await.iter().map(ResourceExt::resource_version).collect()
    };
    let (before, held) = (versions().await, bed.node_files("l4-0"));

    bed.lab.kill(Component::KubeApiserver).await;
    tokio::time::sleep(AWAY).await;
    let agents = bed.lab.process(Component::Agents).expect("the agents outlive the API server");
    assert_eq!(bed.node_files("l4-0"), held, "what was prepared stays so");
    bed.lab.start(Component::KubeApiserver).await.unwrap();
    bed.pod_with_claim("late", &json!([])).await;
    bed.running("late").await;
    assert_eq!(bed.lab.process(Component::Agents).map(|p| p.pid), Some(agents.pid));
    assert_eq!(versions().await, before, "nothing had changed, so nothing is written");
    bed.delete_pod("held").await;
    bed.delete_pod("late").await;
    eventually("no file is left", || async { bed.node_files("l4-0").is_empty().then_some(()) })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slices_that_somebody_deleted_or_changed_are_restored() {
    let bed = Bed::up("gh200=1").await;
    let slice = bed.slices_of("gh200-0").await.remove(0);
    bed.slices().delete(&slice.name_any(), &DeleteParams::default()).await.unwrap();
    let restored = eventually("the slice is back", || async {
        bed.slices_of("gh200-0").await.into_iter().find(|found| found.uid() != slice.uid())
    })
    .await;
    assert_eq!(restored.spec.devices, slice.spec.devices);

    let mut changed = restored.clone();
    changed.spec.devices = None;
    let params = kube::api::PostParams::default();
    bed.slices().replace(&changed.name_any(), &params, &changed).await.unwrap();
    eventually("the devices are back", || async {
        let slices = bed.slices_of("gh200-0").await;
        slices.iter().any(|found| found.spec.devices == slice.spec.devices).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_checkpoint_is_kept_aside_and_its_gpu_not_given_twice() {
    let bed = Bed::up("gh200=1").await;
    bed.pod_with_claim("holder", &json!([])).await;
    bed.running("holder").await;
    bed.lab.stop(Component::Kubelets).await;
    bed.lab.stop(Component::Agents).await;
    let folder = bed.node("gh200-0").join("kubelet/plugins/gpu.nvidia.com/checkpoint");
    let claims = || {
        let is_claim = |path: &std::path::PathBuf| path.extension() == Some("json".as_ref());
        files(&folder).into_iter().filter(is_claim).collect::<Vec<_>>()
    };
    let checkpoint = claims().remove(0);
    let text = std::fs::read(&checkpoint).unwrap();
    std::fs::write(&checkpoint, &text[..text.len() / 2]).unwrap();

    bed.lab.start(Component::Agents).await.unwrap();
    eventually("the damaged file is kept aside", || async {
        (!files(&folder.join("kept")).is_empty()).then_some(())
    })
    .await;
    bed.lab.start(Component::Kubelets).await.unwrap();
    // The kubelet asks again for its living pod, and the record is whole once more.
    bed.running("holder").await;
    eventually("one whole checkpoint", || async { (claims().len() == 1).then_some(()) }).await;
    bed.delete_pod("holder").await;
    eventually("no file is left", || async { bed.node_files("gh200-0").is_empty().then_some(()) })
        .await;
    bed.claims().delete("holder", &DeleteParams::default()).await.unwrap();
    bed.pod_with_claim("next", &json!([])).await;
    bed.running("next").await;
}
