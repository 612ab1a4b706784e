//! The tour of the examples, as advertised in the README.

use crate::testbed::Testbed;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tour_holds_and_leaves_nothing() {
    let testbed = Testbed::up("dgx-h100=2,dgx-a100-80=1,gb200-tray=2").await;
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let report = testbed.octavo_ok(&["lab", "tour", "--examples", examples]);
    assert!(report.contains("Nothing is left"), "{report}");
    assert!(
        report.contains("asks for 9 GPUs on one node; the largest node has 8"),
        "the waiting pod is told why: {report}"
    );

    let top: serde_json::Value =
        serde_json::from_str(&testbed.octavo_ok(&["top", "--output", "json"])).unwrap();
    assert_eq!(top["kind"], "Top");
    let nodes = top["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 5, "{top}");
    assert_eq!(top["totals"]["gpus"], 32, "{top}");
    assert_eq!(top["totals"]["free"], 32, "{top}");
    for node in nodes {
        let left = testbed.node_files(node["name"].as_str().unwrap());
        assert!(left.is_empty(), "{left:?}");
    }

    let status = testbed.octavo_ok(&["lab", "status", "--output", "json"]);
    assert!(status.contains("gb200-tray-1"), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_down_no_process_and_no_file_is_left() {
    let testbed = Testbed::up("t4=1").await;
    let pids: Vec<i32> = testbed
        .lab
        .settings()
        .components
        .iter()
        .map(|component| testbed.lab.process(*component).expect("every component runs").pid)
        .collect();
    // As after a crash: one component is already gone without cleanup.
    testbed.lab.kill(octavo_lab::Component::KubeApiserver).await;
    testbed.octavo_ok(&["lab", "down"]);
    for pid in pids {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Children of this process that it has not reaped stay as zombies.
        let (_, state) = stat.rsplit_once(") ").unwrap_or_default();
        assert!(state.is_empty() || state.starts_with('Z'), "{stat}");
    }
    assert!(!testbed.lab.state_dir().exists());
}
