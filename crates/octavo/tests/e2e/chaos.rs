//! Faults of GPUs and of Octavo's programs at random: nothing is lost.

use octavo_lab::{Owner, Owners, UpOptions};
use serde_json::Value;

use crate::testbed::{OCTAVO, Testbed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_and_killed_programs_break_no_invariant() {
    let testbed = Testbed::up_with(|state| UpOptions {
        nodes: Some("dgx-h100=2".parse().unwrap()),
        owners: Some(Owners::All(Owner::Octavo)),
        scheduler: Some(true),
        controller: Some(true),
        ..UpOptions::new(state, OCTAVO)
    })
    .await;
    let run = ["lab", "chaos", "--seed", "6", "--faults", "40", "--interval", "250"];
    let text = testbed.octavo_ok(&[&run[..], &["--output", "json"]].concat());
    let report: Value = serde_json::from_str(&text).unwrap();
    let faults = report["faults"].as_object().unwrap();
    let count: u64 = faults.values().filter_map(Value::as_u64).sum();
    assert_eq!(count, 40, "{report}");
    assert!(faults.contains_key("agents"), "agents are killed: {report}");
    assert!(report["evictions"].as_u64().unwrap() > 0, "pods leave GPUs that fail: {report}");
    assert_eq!(report["violations"], serde_json::json!([]));
}
