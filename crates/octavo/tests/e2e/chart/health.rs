//! What the chart lets an agent write of the health of nodes.

use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use octavo_api::NodeHealth;
use octavo_lab::Component;
use serde_json::{Value, json};

use super::agent;
use super::compute_domains::{in_force, parsed, refused};
use crate::testbed::Testbed;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_reports_the_health_of_its_own_node_and_gives_no_orders() {
    let testbed = Testbed::up("gh200=2").await;
    // Running agents would write the same objects.
    testbed.lab.stop(Component::Agents).await;
    let all: Api<NodeHealth> = Api::all(testbed.client.clone());
    for node in ["gh200-0", "gh200-1"] {
        let _ = all.delete(node, &kube::api::DeleteParams::default()).await;
    }
    let own: Api<NodeHealth> = Api::all(agent(&testbed.node("gh200-0")).await);
    let other: Api<NodeHealth> = Api::all(agent(&testbed.node("gh200-1")).await);
    let health = |node: &str, devices: &Value| -> NodeHealth {
        parsed(&json!({
            "apiVersion": "octavo.dev/v1alpha1", "kind": "NodeHealth",
            "metadata": {"name": node}, "spec": {"devices": devices},
        }))
    };
    let (none, order) =
        (json!([]), json!([{"uuid": "GPU-1", "order": {"word": "Release", "number": 1}}]));
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    in_force(async || {
        let made = other.create(&dry_run, &health("gh200-0", &none)).await;
        made.map(drop).map_err(|error| error.to_string())
    })
    .await;
    let post = PostParams::default();
    let error = refused(other.create(&post, &health("gh200-0", &none)).await);
    assert!(error.contains("the agent of node 'gh200-1' may write the NodeHealth"), "{error}");
    let error = refused(own.create(&post, &health("gh200-0", &order)).await);
    assert!(error.contains("an agent may not change the spec of its NodeHealth"), "{error}");
    own.create(&post, &health("gh200-0", &none)).await.unwrap();
    let status = json!({"status": {"inService": 0, "total": 0}});
    let patch = Patch::Merge(&status);
    own.patch_status("gh200-0", &PatchParams::default(), &patch).await.unwrap();
    let error = refused(other.patch_status("gh200-0", &PatchParams::default(), &patch).await);
    assert!(error.contains("the agent of node 'gh200-1' may write the NodeHealth"), "{error}");
    let spec = json!({"spec": {"devices": order}});
    let patch = Patch::Merge(&spec);
    let error = refused(own.patch("gh200-0", &PatchParams::default(), &patch).await);
    assert!(error.contains("forbidden"), "{error}");
}
