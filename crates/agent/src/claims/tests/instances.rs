//! Reused instance ids: the name of a destroyed instance must not lead to another one.

use std::fs;

use octavo_gpu::DriverError;
use octavo_gpu::mig::MigInstance;
use octavo_node::ClaimRef;
use serde_json::json;

use super::driver::profile;
use super::fixtures::{Node, known};
use crate::claims::{Claims, DeviceKind, KnownDevice};

const SMALL: &str = "gpu-0-mig-1g10gb-19-3";
const BESIDE: &str = "gpu-0-mig-1g10gb-19-5";
const OTHER: &str = "gpu-1-mig-1g10gb-19-3";

/// The files of a claim that has its devices.
fn whole(claim: &ClaimRef) -> [String; 2] {
    [Node::checkpoint(claim), Node::cdi(claim)]
}

#[tokio::test]
async fn reused_instance_id_leads_no_container_into_another_claim() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let (first, second) = (node.allocate("a", &[SMALL]), node.allocate("b", &[BESIDE]));
    claims.prepare(&first).await.expect("prepares");
    node.driver.destroy_by_hand("GPU-0", 3);
    claims.prepare(&second).await.expect("prepares");
    let id = |start| {
        node.driver.with("GPU-0", |card| {
            let mut found = card.instances.iter().filter(|found| found.placement.start == start);
            found.next().map(|found| found.gpu_instance)
        })
    };
    assert_eq!(id(5), Some(1), "the id came back");
    let files = [Node::checkpoint(&first), Node::checkpoint(&second), Node::cdi(&second)];
    assert_eq!(node.files(), files);
    assert_eq!(claims.sweep().await.repaired, []);
    drop(claims);
    let claims = node.start_mig().await;
    assert_eq!(node.files(), files, "a start does not write it again");
    claims.prepare(&first).await.expect("is made anew");
    assert_eq!((id(3), id(5)), (Some(2), Some(1)));
    let spec = fs::read_to_string(node.path(&Node::cdi(&first))).expect("reads");
    assert!(spec.contains("nvidia-cap20\"") && !spec.contains("nvidia-cap10\""), "{spec}");
    for claim in [&first, &second] {
        claims.unprepare(claim).await.expect("unprepares");
    }
    assert_eq!((node.files(), node.driver.slices("GPU-0")), (vec![], vec![]));
}

#[tokio::test]
async fn an_instance_is_not_given_while_a_spec_still_leads_into_it() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let (first, second) = (node.allocate("a", &[SMALL]), node.allocate("b", &[BESIDE]));
    claims.prepare(&first).await.expect("prepares");
    node.driver.destroy_by_hand("GPU-0", 3);
    // A folder stands where the spec was: it cannot be removed as a file.
    let spec = node.path(&Node::cdi(&first));
    fs::remove_file(&spec).expect("removes");
    fs::create_dir(&spec).expect("makes");
    for _ in 0..2 {
        let refusal = claims.prepare(&second).await.expect_err("stays in the way");
        assert_eq!(refusal.reason(), "Storage");
        assert_eq!(node.driver.slices("GPU-0"), [], "it is taken back");
    }
    fs::remove_dir(&spec).expect("removes");
    claims.prepare(&second).await.expect("prepares");
}

/// Existing instances of `gpu-2`, as devices, after its GPU.
fn known_static(node: &Node) -> Vec<KnownDevice> {
    let device = |instance: &MigInstance| KnownDevice {
        name: format!("gpu-2-mig-1g10gb-19-{}", instance.placement.start),
        kind: DeviceKind::MigInstance {
            profile: profile(19, "1g.10gb", 1, &[instance.placement.start]),
            instance: instance.clone(),
        },
        ..known()[2].clone()
    };
    let made: Vec<_> =
        node.driver.with("GPU-2", |card| card.instances.iter().map(device).collect());
    [known(), made].concat()
}

/// A node whose claim has an existing instance.
async fn prepared_static() -> (Node, Claims, ClaimRef) {
    let node = Node::new();
    let (claims, _) = node.open();
    node.driver.make_by_hand("GPU-2", 19, 5, 1);
    claims.set_devices("580.95.05", known_static(&node)).await;
    let claim = node.allocate("a", &["gpu-2-mig-1g10gb-19-5"]);
    claims.prepare(&claim).await.expect("prepares");
    (node, claims, claim)
}

#[tokio::test]
async fn repartitioned_gpu_gives_no_instance_twice() {
    let (node, claims, first) = prepared_static().await;
    node.driver.destroy_by_hand("GPU-2", 5);
    node.driver.make_by_hand("GPU-2", 19, 0, 1);
    claims.set_devices("580.95.05", known_static(&node)).await;
    let second = node.allocate("b", &["gpu-2-mig-1g10gb-19-0"]);
    claims.prepare(&second).await.expect("prepares");
    let files = [Node::checkpoint(&first), Node::checkpoint(&second), Node::cdi(&second)];
    assert_eq!(node.files(), files, "both have the same id");
    let refusal = claims.prepare(&first).await.expect_err("has none any more");
    assert_eq!(refusal.reason(), "MigNotUsable");
    claims.sweep().await;
    assert_eq!(node.files(), files);
    claims.unprepare(&first).await.expect("unprepares");
    assert_eq!(node.driver.slices("GPU-2"), [(0, 1)]);
}

#[tokio::test]
async fn another_instance_of_the_same_name_is_not_the_claims() {
    let (node, claims, claim) = prepared_static().await;
    let spec = fs::read_to_string(node.path(&Node::cdi(&claim))).expect("reads");
    node.driver.destroy_by_hand("GPU-2", 5);
    node.driver.make_by_hand("GPU-2", 19, 6, 1);
    node.driver.make_by_hand("GPU-2", 19, 5, 1);
    claims.set_devices("580.95.05", known_static(&node)).await;
    let refusal = claims.prepare(&claim).await.expect_err("is another's");
    assert_eq!(refusal.reason(), "MigNotUsable");
    assert!(refusal.to_string().contains("another is in its place"), "{refusal}");
    let now = fs::read_to_string(node.path(&Node::cdi(&claim))).expect("reads");
    assert_eq!(now, spec, "it is not written anew for the other one");
}

#[tokio::test]
async fn an_instance_that_the_driver_does_not_have_is_not_given() {
    let (node, claims, claim) = prepared_static().await;
    claims.unprepare(&claim).await.expect("unprepares");
    node.give_driver(&claims).await;
    claims.prepare(&claim).await.expect("it is there");
    claims.unprepare(&claim).await.expect("unprepares");
    node.driver.destroy_by_hand("GPU-2", 5);
    node.driver.make_by_hand("GPU-2", 19, 0, 1);
    let refusal = claims.prepare(&claim).await.expect_err("is gone, though nobody has told yet");
    assert_eq!(refusal.reason(), "MigNotUsable");
    let call = "nvmlDeviceGetGpuInstances";
    node.driver.fail("instances", "GPU-2", DriverError::GpuLost { call });
    let refusal = claims.prepare(&claim).await.expect_err("does not answer");
    assert_eq!(refusal.reason(), "MigNotUsable");
    assert_eq!((node.files(), claims.holdings()), (vec![], vec![]));
}

#[tokio::test]
async fn half_made_claim_with_a_new_allocation_leaves_no_leftovers() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let claim = node.allocate("a", &[OTHER, SMALL]);
    let lost = DriverError::GpuLost { call: "nvmlDeviceCreateGpuInstanceWithPlacement" };
    node.driver.fail("create", "GPU-0", lost);
    let busy = DriverError::InUse { call: "nvmlGpuInstanceDestroy" };
    node.driver.fail("destroy", "GPU-1", busy);
    claims.prepare(&claim).await.expect_err("fails");
    assert_eq!(node.driver.slices("GPU-1"), [(3, 1)]);
    // The scheduler takes its allocation back and gives it another.
    let mut object = node.delete(&claim);
    object["status"]["allocation"]["devices"]["results"] = json!([{
        "request": "request-0", "driver": "gpu.nvidia.com", "pool": "node-a", "device": SMALL,
    }]);
    node.restore(&claim, object);
    node.driver.with("GPU-1", |card| card.busy.insert(3));
    let refusal = claims.prepare(&claim).await.expect_err("the first is in use");
    assert_eq!(refusal.reason(), "MigNotDestroyed");
    let devices = &claims.holdings()[0].devices;
    assert!(devices.contains(&OTHER.to_owned()), "it is not forgotten: {devices:?}");
    node.driver.with("GPU-1", |card| card.busy.clear());
    claims.prepare(&claim).await.expect("prepares");
    assert_eq!(node.driver.slices("GPU-0"), [(3, 1)]);
    assert_eq!(node.driver.slices("GPU-1"), []);
    assert_eq!(node.files(), whole(&claim));
}

#[tokio::test]
async fn a_claim_of_which_nothing_is_known_takes_its_instance_along() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let claim = node.allocate("a", &[SMALL]);
    claims.prepare(&claim).await.expect("prepares");
    drop(claims);
    fs::write(node.path(&Node::checkpoint(&claim)), "x").expect("writes");
    fs::remove_file(node.path(&Node::cdi(&claim))).expect("removes");
    let claims = node.start_mig().await;
    assert_eq!(node.driver.slices("GPU-0"), [(3, 1)], "nobody knows whose it is");
    claims.unprepare(&claim).await.expect("its object tells what it has");
    assert_eq!((node.files(), node.driver.slices("GPU-0")), (vec![], vec![]));
    assert!(!node.driver.is_on("GPU-0"));
}
