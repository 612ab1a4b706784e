//! Spare nodes of a policy: pods that are lent them yield to a gang that lacks a member, also after a scheduler that was killed.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use octavo_api::PlacementPolicy;
use octavo_api::names::CONDITION_ACCEPTED;
use octavo_lab::Component;
use serde_json::{Value, json};

use crate::scheduler::{create_group, with_gpus};
use crate::scheduler_repair::lab;
use crate::testbed::{Testbed, eventually};

/// The gang's object, and the Job that makes its pods: two, each with all GPUs of a node.
const GANG: &str = "train";
const MEMBERS: usize = 2;
/// Nodes of the block that the policy keeps free: all others.
const SPARES: usize = 2;
/// The priority of pods that may use them meanwhile.
const LOW: &str = "low";

/// A member of the gang.
struct Member {
    uid: String,
    /// Once it is bound.
    node: Option<String>,
}

/// The present member of an index.
async fn member(testbed: &Testbed, index: usize) -> Option<Member> {
    let labels =
        format!("octavo.dev/pod-group={GANG},batch.kubernetes.io/job-completion-index={index}");
    let pods = testbed.pods().list(&ListParams::default().labels(&labels)).await.ok()?.items;
    let is_leaving = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
    let pod = pods.into_iter().find(|pod| !is_leaving(pod))?;
    Some(Member { uid: pod.uid()?, node: pod.spec?.node_name })
}

/// Waits until a member is bound whose pod is not this one. Returns it with its node.
async fn bound_member(testbed: &Testbed, index: usize, not: &str) -> (Member, String) {
    eventually(&format!("member {index} is bound"), || async {
        let member = member(testbed, index).await.filter(|member| member.uid != not)?;
        let node = member.node.clone()?;
        Some((member, node))
    })
    .await
}

/// A policy for all pods that keeps nodes of each block free, and lends them below priority 0.
async fn create_policy(testbed: &Testbed) {
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    let labels = Patch::Merge(json!({"metadata": {"labels": {"topology.octavo.dev/block": "b"}}}));
    for node in nodes.list(&ListParams::default()).await.unwrap() {
        nodes.patch(&node.name_any(), &PatchParams::default(), &labels).await.unwrap();
    }
    let policy = serde_json::from_value(json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "PlacementPolicy", "metadata": {"name": "spares"},
        "spec": {
            "isDefault": true, "order": [{"unit": "podsDisturbed"}, {"unit": "hops"}],
            "constraints": {"spares": [{
                "level": "block", "nodes": SPARES, "lendBelowPriority": 0,
            }]},
        },
    }));
    let policies: Api<PlacementPolicy> = Api::all(testbed.client.clone());
    policies.create(&PostParams::default(), &policy.unwrap()).await.unwrap();
    eventually("the scheduler uses the policy", || async {
        let conditions = policies.get("spares").await.ok()?.status?.conditions;
        let is_used = conditions
            .iter()
            .any(|condition| condition.type_ == CONDITION_ACCEPTED && condition.status == "True");
        is_used.then_some(())
    })
    .await;
}

async fn start_gang(testbed: &Testbed) {
    create_group(testbed, GANG, &json!({"minMember": MEMBERS})).await;
    let mut template = with_gpus("unused", 8);
    template["metadata"] = json!({"labels": {"octavo.dev/pod-group": GANG}});
    template["spec"]["restartPolicy"] = "Never".into();
    testbed
        .create::<Job>(json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": GANG},
            "spec": {
                "completionMode": "Indexed", "completions": MEMBERS, "parallelism": MEMBERS,
                "backoffLimit": 100, "template": {"metadata": template["metadata"], "spec": template["spec"]},
            },
        }))
        .await;
}

/// Fills the spare nodes with pods that may be lent them. Returns their names by node.
async fn lend(testbed: &Testbed) -> BTreeMap<String, String> {
    let class = json!({"metadata": {"name": LOW}, "value": -10});
    let classes: Api<PriorityClass> = Api::all(testbed.client.clone());
    let class = serde_json::from_value(class).unwrap();
    classes.create(&PostParams::default(), &class).await.unwrap();
    let mut lent = BTreeMap::new();
    for number in 0..SPARES {
        let name = format!("lent-{number}");
        let mut pod: Value = with_gpus(&name, 8);
        pod["spec"]["priorityClassName"] = LOW.into();
        testbed.create::<Pod>(pod).await;
        testbed.wait_until_bound(&name).await;
        let node = testbed.pods().get(&name).await.unwrap().spec.unwrap().node_name.unwrap();
        lent.insert(node, name);
    }
    assert_eq!(lent.len(), SPARES, "each has a node: {lent:?}");
    lent
}

/// A GPU of a node is fenced. Its reset is in vain, so that it stays so.
fn fence_gpu(testbed: &Testbed, node: &str) {
    testbed.octavo_ok(&["lab", "gpu", node, "0", "set", "--reset-in-vain", "true"]);
    testbed.octavo_ok(&["lab", "gpu", node, "0", "fail", "--xid", "95"]);
}

/// A member comes to a spare node, and the pod there has yielded to it.
async fn takes_spare_node(
    testbed: &Testbed,
    index: usize,
    not: &str,
    lent: &mut BTreeMap<String, String>,
) {
    let (_, node) = bound_member(testbed, index, not).await;
    let yielded = lent.remove(&node).unwrap_or_else(|| panic!("{node} was not spare: {lent:?}"));
    eventually(&format!("{yielded} has left {node}"), || async {
        testbed.pods().get_opt(&yielded).await.ok()?.is_none().then_some(())
    })
    .await;
    for name in lent.values() {
        let pod = testbed.pods().get(name).await.unwrap();
        assert_eq!(pod.metadata.deletion_timestamp, None, "{name} stays");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_come_back_take_spare_nodes_also_after_a_killed_scheduler() {
    let testbed = lab().await;
    create_policy(&testbed).await;
    start_gang(&testbed).await;
    let (first, first_node) = bound_member(&testbed, 0, "").await;
    let (second, second_node) = bound_member(&testbed, 1, "").await;
    testbed.create::<Pod>(with_gpus("other", 1)).await;
    testbed.wait_until_unschedulable("other").await;
    let mut lent = lend(&testbed).await;
    let other = testbed.pods().get("other").await.unwrap();
    assert_eq!(other.spec.unwrap().node_name, None, "spare nodes are not for it");

    fence_gpu(&testbed, &first_node);
    takes_spare_node(&testbed, 0, &first.uid, &mut lent).await;
    let stays = member(&testbed, 1).await.unwrap();
    assert_eq!(stays.uid, second.uid, "the other member stays");

    // The member leaves, and its successor comes, while no scheduler runs.
    testbed.lab.kill(Component::OctavoScheduler).await;
    fence_gpu(&testbed, &second_node);
    eventually("another pod stands in for the second member", || async {
        member(&testbed, 1).await.filter(|member| member.uid != second.uid)
    })
    .await;
    testbed.lab.start(Component::OctavoScheduler).await.unwrap();
    takes_spare_node(&testbed, 1, &second.uid, &mut lent).await;
    crate::scheduler::allocated_devices(&testbed).await;
}
