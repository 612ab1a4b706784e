//! Refusals with their reasons and messages.

use octavo_node::ClaimRef;
use serde_json::{Value, json};

use super::fixtures::{Node, known};

/// Prepares a claim with a changed object; returns reason and text of the refusal.
async fn refused(change: impl FnOnce(&mut Value)) -> (&'static str, String) {
    let node = Node::new();
    let claims = node.start().await;
    let claim = node.allocate_with("a", &["gpu-0"], change);
    let refusal = claims.prepare(&claim).await.expect_err("is refused");
    assert_eq!(node.files(), [""; 0], "a refusal leaves nothing");
    assert_eq!(claims.holdings(), []);
    assert_eq!(node.reported(), [("a".to_owned(), refusal.reason())]);
    (refusal.reason(), refusal.to_string())
}

/// A claim with one opaque config.
fn with_config(parameters: Value) -> impl FnOnce(&mut Value) {
    move |claim| {
        claim["status"]["allocation"]["devices"]["config"] = json!([{
            "source": "FromClaim", "requests": ["request-0"],
            "opaque": {"driver": "gpu.nvidia.com", "parameters": parameters},
        }]);
    }
}

fn gpu_config(sharing: &Value) -> Value {
    json!({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": sharing})
}

#[tokio::test]
async fn what_is_not_allocated_here_is_refused() {
    let result = |claim: &mut Value, field: &str, value: Value| {
        claim["status"]["allocation"]["devices"]["results"][0][field] = value;
    };
    let (reason, _) = refused(|claim| claim["status"] = json!({})).await;
    assert_eq!(reason, "NotAllocated");
    let (reason, _) = refused(|claim| result(claim, "driver", json!("net.example.com"))).await;
    assert_eq!(reason, "NothingForDriver");
    let (reason, text) = refused(|claim| result(claim, "pool", json!("node-b"))).await;
    assert_eq!(reason, "OtherNode");
    assert!(text.contains("node-a") && text.contains("node-b"), "{text}");
    let (reason, text) = refused(|claim| result(claim, "device", json!("gpu-9"))).await;
    assert_eq!(reason, "UnknownDevice");
    assert!(text.contains("gpu-9"), "{text}");
    let (reason, _) = refused(|claim| result(claim, "shareID", json!("s"))).await;
    assert_eq!(reason, "InvalidShare");
}

#[tokio::test]
async fn a_config_for_another_type_of_device_is_refused() {
    let mig = json!({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "MigDeviceConfig"});
    let (reason, _) = refused(with_config(mig)).await;
    assert_eq!(reason, "ConfigMismatch");
}

#[tokio::test]
async fn a_wrong_config_is_refused_with_its_field_and_reason() {
    let sharing =
        json!({"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "10GB"}});
    let (reason, text) = refused(with_config(gpu_config(&sharing))).await;
    assert_eq!(reason, "InvalidConfig");
    assert!(text.contains("sharing.mpsConfig.defaultPinnedDeviceMemoryLimit"), "{text}");
    assert!(text.contains("10GB") && text.contains("ResourceClaim"), "{text}");
    let mut config = gpu_config(&json!(null));
    config["sharring"] = json!({});
    let (reason, text) = refused(with_config(config)).await;
    assert_eq!(reason, "InvalidConfig");
    assert!(text.contains("sharring"), "{text}");
}

#[tokio::test]
async fn what_changes_nothing_is_prepared() {
    let node = Node::new();
    let claims = node.start().await;
    let sharing = json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Default"}});
    let claim = node.allocate_with("a", &["gpu-0"], with_config(gpu_config(&sharing)));
    claims.prepare(&claim).await.expect("prepares");
}

#[tokio::test]
async fn a_claim_that_is_not_there_or_has_a_bad_uid_is_refused() {
    let node = Node::new();
    let claims = node.start().await;
    let claim = node.allocate("a", &["gpu-0"]);
    node.delete(&claim);
    assert_eq!(claims.prepare(&claim).await.expect_err("is gone").reason(), "ClaimNotFound");
    for uid in ["", "..", "../../etc/passwd", "a/b", "a\0b", &"a".repeat(129)] {
        let claim = ClaimRef { uid: uid.to_owned(), ..claim.clone() };
        assert_eq!(claims.prepare(&claim).await.expect_err(uid).reason(), "BadClaimUid");
        assert_eq!(claims.unprepare(&claim).await.expect_err(uid).reason(), "BadClaimUid");
    }
}

#[tokio::test]
async fn prepare_needs_known_devices_but_unprepare_does_not() {
    let node = Node::new();
    let claim = node.allocate("a", &["gpu-0"]);
    node.start().await.prepare(&claim).await.expect("prepares");
    let (claims, opened) = node.open();
    assert_eq!(opened.held, 1);
    let new = node.allocate("b", &["gpu-1"]);
    assert_eq!(claims.prepare(&new).await.expect_err("is early").reason(), "NotReady");
    claims.prepare(&claim).await.expect("was prepared before");
    // Its spec is lost and cannot be written yet. CDI names that the runtime cannot resolve are no valid answer.
    std::fs::remove_file(node.path(&Node::cdi(&claim))).expect("removes");
    assert_eq!(claims.prepare(&claim).await.expect_err("has no spec").reason(), "NotReady");
    claims.set_devices("580.95.05", known()[1..].to_vec()).await;
    let refusal = claims.prepare(&claim).await.expect_err("its GPU is not there");
    assert_eq!(refusal.reason(), "UnknownDevice");
    claims.set_devices("580.95.05", known()).await;
    claims.prepare(&claim).await.expect("its GPU came back");
    assert_eq!(node.files(), [Node::checkpoint(&claim), Node::cdi(&claim)]);
    claims.unprepare(&claim).await.expect("unprepares");
    assert_eq!(node.files(), [""; 0]);
}

#[tokio::test]
async fn a_device_twice_in_one_claim_is_refused_unless_for_administration() {
    let node = Node::new();
    let claims = node.start().await;
    let claim = node.allocate("a", &["gpu-0", "gpu-0"]);
    assert_eq!(claims.prepare(&claim).await.expect_err("is double").reason(), "DeviceInUse");
    let claim = node.allocate_with("b", &["gpu-0", "gpu-0"], |claim| {
        claim["status"]["allocation"]["devices"]["results"][1]["adminAccess"] = true.into();
    });
    claims.prepare(&claim).await.expect("prepares");
}

#[tokio::test]
async fn subrequest_is_reported_under_its_parent_request() {
    let node = Node::new();
    let claims = node.start().await;
    let claim = node.allocate_with("a", &["gpu-0"], |claim| {
        claim["status"]["allocation"]["devices"]["results"][0]["request"] = json!("gpu/large");
    });
    let devices = claims.prepare(&claim).await.expect("prepares");
    assert_eq!(devices[0].requests, ["gpu"]);
}

#[tokio::test]
async fn a_report_is_taken_back_when_the_claim_is_prepared_later() {
    let node = Node::new();
    let claims = node.start().await;
    let condition = json!([{"type": "Ready", "status": "False", "reason": "DeviceInUse",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let claim = node.allocate_with("a", &["gpu-0"], |claim| {
        claim["status"]["devices"] = json!([{"driver": "gpu.nvidia.com", "pool": "node-a",
            "device": "gpu-0", "conditions": condition}]);
    });
    claims.prepare(&claim).await.expect("prepares");
    assert_eq!(node.cleared(), ["a"]);
}
