//! Octavo's scheduler under failures and invalid input: pods are bound or have a reason to wait,
//! and no device is allocated twice.
//!
//! There are two labs: one with failing programs, and one with invalid objects.

mod input;
mod outages;
mod processes;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use octavo_lab::{Component, Owner, Owners, UpOptions};
use serde_json::Value;

use crate::scheduler::allocated_devices;
use crate::testbed::{OCTAVO, Testbed, eventually};

/// A lab of Octavo's nodes with additional API server arguments and a scheduler config.
async fn start_testbed(nodes: &str, apiserver: &[&str], config: Value) -> Testbed {
    let arguments = apiserver.iter().map(|argument| (*argument).to_owned()).collect();
    Testbed::up_with(|state| UpOptions {
        nodes: Some(nodes.parse().unwrap()),
        owners: Some(Owners::All(Owner::Octavo)),
        scheduler: Some(true),
        scheduler_config: Some(config),
        more_args: [(Component::KubeApiserver, arguments)].into(),
        ..UpOptions::new(state, OCTAVO)
    })
    .await
}

/// Waits until all of these pods are bound, then checks the cluster's invariants.
async fn wait_until_all_bound(testbed: &Testbed, names: &[String]) {
    eventually(&format!("{} pods are bound, {} first", names.len(), names[0]), || async {
        let nodes = nodes_of_pods(testbed).await?;
        names.iter().all(|name| matches!(nodes.get(name), Some(Some(_)))).then_some(())
    })
    .await;
    check_invariants(testbed).await;
}

/// The node of each pod, if it is bound.
async fn nodes_of_pods(testbed: &Testbed) -> Option<BTreeMap<String, Option<String>>> {
    let pods = testbed.pods().list(&ListParams::default()).await.ok()?;
    let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    Some(pods.iter().map(|pod| (pod.name_any(), node(pod))).collect())
}

/// Invariants: no device is allocated twice, and bound pods are where their devices are.
async fn check_invariants(testbed: &Testbed) {
    allocated_devices(testbed).await;
    let pods = testbed.pods().list(&ListParams::default()).await.unwrap();
    // Pods are compared by UID, because names are reused.
    let node = |pod: Pod| Some((pod.metadata.uid?, pod.spec?.node_name?));
    let nodes: BTreeMap<String, String> = pods.into_iter().filter_map(node).collect();
    for claim in testbed.claims().list(&ListParams::default()).await.unwrap() {
        let name = claim.name_any();
        let claim = serde_json::to_value(claim).unwrap();
        let results = claim["status"]["allocation"]["devices"]["results"].as_array().cloned();
        let pools: BTreeSet<String> = results
            .into_iter()
            .flatten()
            .map(|result| result["pool"].as_str().unwrap().to_owned())
            .collect();
        for user in claim["status"]["reservedFor"].as_array().into_iter().flatten() {
            if let Some(node) = nodes.get(user["uid"].as_str().unwrap()) {
                assert_eq!(pools, [node.clone()].into(), "{user} has claim {name}");
            }
        }
    }
}

/// Waits until a pod's condition has this reason, with all these words in its message.
async fn wait_for_reason(testbed: &Testbed, name: &str, reason: &str, words: &[&str]) {
    let mut last = String::new();
    let seen = std::sync::Mutex::new(&mut last);
    eventually(&format!("pod {name} is told {reason}: {words:?}"), || async {
        let conditions = testbed.pods().get(name).await.ok()?.status?.conditions?;
        let found = conditions.into_iter().find(|found| found.type_ == "PodScheduled")?;
        let (why, message) = (found.reason?, found.message.unwrap_or_default());
        let is_it = why == reason && words.iter().all(|words| message.contains(words));
        let now = format!("{why}: {message}");
        let mut last = seen.lock().unwrap();
        if **last != now {
            println!("pod {name}: {now}");
            **last = now;
        }
        is_it.then_some(())
    })
    .await;
}

fn nodes(testbed: &Testbed) -> Api<Node> {
    Api::all(testbed.client.clone())
}

/// Names with numeric suffixes.
fn numbered(stem: &str, count: u32) -> Vec<String> {
    (0..count).map(|number| format!("{stem}-{number}")).collect()
}
