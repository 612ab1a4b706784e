//! Many pods that fit nowhere, against a fake API server. `state::tests::faults_backlog` has more of
//! them without one.

use std::collections::BTreeMap;

use serde_json::json;

use super::whole::{Whole, pod};
use super::*;

/// As many as the fake server takes in a few seconds of a debug build.
const WAITING: usize = 3000;

#[tokio::test(start_paused = true)]
async fn thousands_of_impossible_pods_get_one_condition_each_and_others_are_bound_meanwhile() {
    let mut whole = Whole::new(&["a"]).await;
    for number in 0..WAITING {
        let mut pod = pod(&format!("waits-{number}"), "1", 0);
        pod["spec"]["nodeSelector"] = json!({"disk": "none"});
        whole.create(pod).await;
    }
    let fits = ["fits".to_owned()];
    whole.create(pod("fits", "1", 0)).await;
    let begin = Instant::now();
    whole.until("a pod that fits is bound", &fits, |whole| whole.node_of("fits").is_some()).await;
    assert!(begin.elapsed() < Duration::from_secs(5), "the conditions are written meanwhile");
    whole
        .until("each has its condition", &[], |whole| {
            let count =
                whole.api.writes().iter().filter(|write| write.ends_with("/status")).count();
            count >= WAITING
        })
        .await;
    // A pod that ends changes no reason.
    whole.api.edit(&super::whole::path("fits"), |pod| pod["status"]["phase"] = "Succeeded".into());
    whole.create(pod("next", "4", 0)).await;
    let next = ["fits", "next"].map(str::to_owned);
    whole.until("the next is bound", &next, |whole| whole.node_of("next").is_some()).await;
    let mut patches: BTreeMap<String, usize> = BTreeMap::new();
    let is_condition = |write: &String| write.contains("/waits-") && write.ends_with("/status");
    for write in whole.api.writes().into_iter().filter(is_condition) {
        *patches.entry(write).or_default() += 1;
    }
    assert_eq!(patches.len(), WAITING);
    assert!(patches.values().all(|count| *count == 1), "each is written once");
    let (reason, message) = whole.condition("waits-0").expect("a condition");
    assert_eq!(reason, "Unschedulable");
    assert_eq!(message, "no node is feasible: node(s) didn't match Pod's node affinity/selector");
    whole.end().await;
}
