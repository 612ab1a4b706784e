use std::fs;

use octavo_testkit::{ScriptedApi, failure};

use super::*;

/// A sys file system with a GPU on its bus.
fn sys_with_gpu() -> tempfile::TempDir {
    let sys = tempfile::tempdir().unwrap();
    let device = sys.path().join("bus/pci/devices/0000:17:00.0");
    fs::create_dir_all(&device).unwrap();
    fs::write(device.join("vendor"), "0x10de\n").unwrap();
    fs::write(device.join("class"), "0x030200\n").unwrap();
    sys
}

fn args(sys: &Path) -> DiscoverArgs {
    DiscoverArgs {
        node_name: "a".to_owned(),
        kubeconfig: None,
        sys_root: sys.to_owned(),
        interval: Duration::from_millis(7),
    }
}

/// The labels that were sent, in order.
fn sent(api: &ScriptedApi) -> Vec<Value> {
    let requests = api.requests();
    let patches = requests.iter().filter(|request| request.method() == "PATCH");
    let bodies = patches.map(|request| serde_json::from_slice::<Value>(request.body()).unwrap());
    bodies.map(|body| body["metadata"]["labels"].clone()).collect()
}

#[tokio::test]
async fn the_label_is_set_once_and_given_up_when_the_gpu_is_gone() {
    let api = ScriptedApi::new(|_| (200, json!({"metadata": {"name": "a"}})));
    let sys = sys_with_gpu();
    let (args, mut seen) = (args(sys.path()), Seen::default());
    for _ in 0..3 {
        assert_eq!(look(&args, &api.client(), &mut seen).await, Duration::from_millis(7));
    }
    assert_eq!(sent(&api), [json!({"nvidia.com/gpu.present": "true"})]);
    let uri = api.uris().remove(1);
    assert!(
        uri.starts_with("/api/v1/nodes/a?") && uri.contains("fieldManager=octavo.dev"),
        "{uri}"
    );
    assert!(!uri.contains("force"), "a value of others stays: {uri}");
    fs::remove_dir_all(sys.path().join("bus")).unwrap();
    for _ in 1..ABSENT_LOOKS {
        look(&args, &api.client(), &mut seen).await;
    }
    assert_eq!(sent(&api).len(), 1, "it may come back in a moment");
    look(&args, &api.client(), &mut seen).await;
    assert_eq!(sent(&api)[1..], [json!({})]);
}

#[tokio::test]
async fn a_write_that_fails_is_repeated_and_a_value_of_others_is_not() {
    let sys = sys_with_gpu();
    let (args, mut seen) = (args(sys.path()), Seen::default());
    let down = ScriptedApi::new(|_| failure(500, "down"));
    assert_eq!(look(&args, &down.client(), &mut seen).await, RETRY_INTERVAL);
    assert!(seen.written.is_none());
    let other = ScriptedApi::new(|request| match request.method().as_str() {
        "PATCH" => failure(409, "conflict with \"kubectl-label\""),
        _ => (200, json!({"metadata": {"name": "a"}})),
    });
    look(&args, &other.client(), &mut seen).await;
    look(&args, &other.client(), &mut seen).await;
    assert_eq!(sent(&other).len(), 1);
}

#[tokio::test]
async fn a_node_that_is_missing_is_not_made() {
    let sys = sys_with_gpu();
    let api = ScriptedApi::new(|_| failure(404, "nodes \"a\" not found"));
    assert_eq!(look(&args(sys.path()), &api.client(), &mut Seen::default()).await, RETRY_INTERVAL);
    assert_eq!(sent(&api), Vec::<Value>::new());
}

#[test]
fn no_interval_is_refused() {
    assert_eq!(parse_interval("30s"), Ok(Duration::from_secs(30)));
    assert!(parse_interval("0").unwrap_err().contains("0 is no interval"));
}
