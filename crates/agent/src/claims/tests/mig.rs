//! MIG instances that come and go with claims.

use std::collections::BTreeSet;
use std::fs;

use octavo_gpu::mig::{MigComputeInstance, MigInstance, MigPlacement};

use super::driver::profile;
use super::fixtures::{Node, known, known_mig};
use crate::claims::{DeviceKind, Fact, HeldCounts, KnownDevice};

const SMALL: &str = "gpu-0-mig-1g10gb-19-3";
const LARGE: &str = "gpu-0-mig-3g40gb-9-0";
const LARGE_2: &str = "gpu-0-mig-3g40gb-9-4";

#[tokio::test]
async fn an_instance_is_made_for_a_claim_and_leaves_nothing() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let claim = node.allocate("a", &[SMALL]);
    let devices = claims.prepare(&claim).await.expect("prepares");
    assert_eq!(devices[0].device, SMALL);
    assert_eq!(node.driver.slices("GPU-0"), [(3, 1)]);
    assert!(node.driver.is_on("GPU-0") && !node.driver.is_on("GPU-1"));
    let spec = fs::read_to_string(node.path(&Node::cdi(&claim))).expect("reads");
    for path in ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap10", "/dev/nvidia-caps/nvidia-cap11"] {
        assert!(spec.contains(&format!("\"path\": \"{path}\"")), "{spec}");
    }
    let facts = node.facts(&claim);
    let [Fact::Mig { prepared_at: Some(_), instance }] = facts.as_slice() else {
        panic!("{facts:?}")
    };
    assert_eq!((instance.uuid.as_str(), instance.profile.as_str()), ("MIG-1", "1g.10gb"));
    assert_eq!((instance.gpu_instance, instance.compute_instance), (1, 0));
    assert_eq!(instance.parent_uuid, "GPU-0");
    assert_eq!(claims.mig_in_use(), BTreeSet::from([("GPU-0".to_owned(), 3, 1)]));
    assert_eq!(claims.counts(), HeldCounts { mig: 1, ..HeldCounts::default() });

    assert_eq!(claims.prepare(&claim).await, Ok(devices), "again");
    assert_eq!(node.reads(), 1);
    claims.unprepare(&claim).await.expect("unprepares");
    claims.unprepare(&claim).await.expect("again");
    assert_eq!(node.driver.slices("GPU-0"), []);
    assert!(!node.driver.is_on("GPU-0"));
    assert_eq!((node.files(), node.facts(&claim)), (vec![], vec![]));
    assert_eq!(claims.mig_in_use(), BTreeSet::new());
}

#[tokio::test]
async fn the_mode_is_on_from_the_first_instance_to_the_last() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let first = node.allocate("a", &[LARGE, "gpu-1-mig-1g10gb-19-0"]);
    let second = node.allocate("b", &[LARGE_2]);
    claims.prepare(&first).await.expect("prepares");
    claims.prepare(&second).await.expect("prepares");
    assert_eq!(node.driver.slices("GPU-0"), [(0, 4), (4, 4)]);
    claims.unprepare(&first).await.expect("unprepares");
    assert!(node.driver.is_on("GPU-0") && !node.driver.is_on("GPU-1"));
    claims.unprepare(&second).await.expect("unprepares");
    assert!(!node.driver.is_on("GPU-0"));
    assert_eq!(node.driver.with("GPU-0", |card| card.switches), 2);
}

#[tokio::test]
async fn instances_shares_and_whole_exclude_one_another_on_one_gpu() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let mig = node.allocate("mig", &[LARGE]);
    let overlapping = node.allocate("overlapping", &[SMALL]);
    let share = node.allocate_shares("share", &[("gpu-0", "1Gi", "0")]);
    let whole = node.allocate("whole", &["gpu-0"]);
    claims.prepare(&mig).await.expect("prepares");
    for other in [&overlapping, &share, &whole] {
        let refusal = claims.prepare(other).await.expect_err("is in the way");
        assert_eq!(refusal.reason(), "DeviceInUse", "{other}");
        assert!(refusal.to_string().contains(&format!("ns/mig (UID {}", mig.uid)), "{refusal}");
    }
    claims.unprepare(&mig).await.expect("unprepares");
    claims.prepare(&share).await.expect("prepares");
    assert_eq!(claims.prepare(&mig).await.expect_err("is shared").reason(), "DeviceInUse");
    claims.unprepare(&share).await.expect("unprepares");
    claims.prepare(&whole).await.expect("prepares");
    assert_eq!(claims.prepare(&mig).await.expect_err("is taken").reason(), "DeviceInUse");
    let elsewhere = node.allocate("elsewhere", &["gpu-1-mig-7g80gb-0-0"]);
    claims.prepare(&elsewhere).await.expect("another GPU is free");
}

#[tokio::test]
async fn two_overlapping_places_in_one_claim_are_refused() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let claim = node.allocate("a", &[LARGE, SMALL]);
    assert_eq!(claims.prepare(&claim).await.expect_err("overlap").reason(), "DeviceInUse");
    assert_eq!((node.driver.slices("GPU-0"), node.files()), (vec![], vec![]));
}

#[tokio::test]
async fn a_claim_without_mig_finds_the_mode_off() {
    let node = Node::new();
    let claims = node.start_mig().await;
    // The mode was left on by hand.
    node.driver.with("GPU-0", |card| card.is_on = true);
    let share = node.allocate_shares("share", &[("gpu-0", "1Gi", "0")]);
    claims.prepare(&share).await.expect("prepares");
    assert!(!node.driver.is_on("GPU-0"));
    // With one share in use the mode is not touched for another.
    node.driver.with("GPU-0", |card| (card.is_on, card.is_in_use) = (true, true));
    let second = node.allocate_shares("second", &[("gpu-0", "1Gi", "0")]);
    claims.prepare(&second).await.expect("prepares");
}

#[tokio::test]
async fn unclaimed_instances_block_a_whole_gpu() {
    let node = Node::new();
    let claims = node.start_mig().await;
    node.driver.make_by_hand("GPU-0", 19, 0, 1);
    let whole = node.allocate("whole", &["gpu-0"]);
    let refusal = claims.prepare(&whole).await.expect_err("is cut");
    assert_eq!(refusal.reason(), "MigInstancesInTheWay");
    assert!(refusal.to_string().contains("1 MIG instances"), "{refusal}");
    assert_eq!((node.files(), claims.holdings()), (vec![], vec![]));
    assert_eq!(node.driver.slices("GPU-0"), [(0, 1)], "it is somebody's");
    node.driver.destroy_by_hand("GPU-0", 0);
    claims.prepare(&whole).await.expect("prepares");
}

#[tokio::test]
async fn gpu_without_mig_management_needs_no_driver() {
    let node = Node::new();
    let claims = node.start_mig().await;
    claims.set_driver(None).await;
    let claim = node.allocate("a", &["gpu-5"]);
    claims.prepare(&claim).await.expect("prepares");
    claims.unprepare(&claim).await.expect("unprepares");
}

#[tokio::test]
async fn an_instance_that_stays_is_given_as_it_is() {
    let node = Node::new();
    let (claims, _) = node.open();
    node.driver.make_by_hand("GPU-2", 19, 5, 1);
    let instance = |computes: u32| MigInstance {
        gpu_instance: 1,
        profile_id: 19,
        placement: MigPlacement { start: 5, size: 1 },
        compute_instances: (0..computes)
            .map(|id| MigComputeInstance { id, uuid: format!("MIG-{}", id + 1), index: id })
            .collect(),
    };
    let name = "gpu-2-mig-1g10gb-19-5";
    let with = |computes| {
        let profile = profile(19, "1g.10gb", 1, &[5]);
        let kind = DeviceKind::MigInstance { profile, instance: instance(computes) };
        let device = KnownDevice { name: name.to_owned(), kind, ..known()[2].clone() };
        [known(), vec![device]].concat()
    };
    claims.set_devices("580.95.05", with(1)).await;
    let claim = node.allocate("a", &[name]);
    claims.prepare(&claim).await.expect("needs no driver");
    let spec = fs::read_to_string(node.path(&Node::cdi(&claim))).expect("reads");
    assert!(spec.contains("/dev/nvidia-caps/nvidia-cap210"), "{spec}");
    assert!(matches!(node.facts(&claim).as_slice(), [Fact::Mig { .. }]));
    assert_eq!(claims.mig_in_use(), BTreeSet::new(), "it is not of our making");
    let other = node.allocate("b", &[name]);
    assert_eq!(claims.prepare(&other).await.expect_err("is held").reason(), "DeviceInUse");
    let whole = node.allocate("whole", &["gpu-2"]);
    assert_eq!(claims.prepare(&whole).await.expect_err("is held").reason(), "DeviceInUse");
    claims.unprepare(&claim).await.expect("unprepares");
    assert_eq!(node.driver.slices("GPU-2"), [(5, 1)], "it stays");
    assert_eq!(node.files(), [""; 0]);

    claims.set_devices("580.95.05", with(2)).await;
    let refusal = claims.prepare(&other).await.expect_err("is cut further");
    assert_eq!(refusal.reason(), "MigNotUsable");
    assert!(refusal.to_string().contains("2 compute instances"), "{refusal}");
}

#[tokio::test]
async fn a_gpu_that_is_no_more_to_be_cut_keeps_its_claims_instances() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let claim = node.allocate("a", &[SMALL]);
    claims.prepare(&claim).await.expect("prepares");
    let without: Vec<_> =
        known_mig().into_iter().filter(|device| !device.name.contains("-mig-")).collect();
    claims.set_devices("580.95.05", without).await;
    fs::remove_file(node.path(&Node::cdi(&claim))).expect("removes");
    claims.prepare(&claim).await.expect("is prepared already");
    claims.unprepare(&claim).await.expect("unprepares");
    assert_eq!((node.driver.slices("GPU-0"), node.files()), (vec![], vec![]));
    assert!(!node.driver.is_on("GPU-0"), "it is whole again");
}

#[tokio::test]
async fn configs_and_shares_of_instances_are_checked() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let with_config = |kind: &str, sharing: serde_json::Value| {
        node.allocate_with("a", &[SMALL], |claim| {
            let parameters = serde_json::json!({
                "apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, "sharing": sharing,
            });
            claim["status"]["allocation"]["devices"]["config"] = serde_json::json!([{
                "source": "FromClaim", "requests": ["request-0"],
                "opaque": {"driver": "gpu.nvidia.com", "parameters": parameters},
            }]);
        })
    };
    let claim = with_config("GpuConfig", serde_json::json!(null));
    assert_eq!(claims.prepare(&claim).await.expect_err("other").reason(), "ConfigMismatch");
    let claim = node.allocate_with("a", &[SMALL], |claim| {
        claim["status"]["allocation"]["devices"]["results"][0]["shareID"] = "s".into();
    });
    assert_eq!(claims.prepare(&claim).await.expect_err("share").reason(), "InvalidShare");
    let claim = node.allocate_with("a", &[SMALL], |claim| {
        claim["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = true.into();
    });
    assert_eq!(claims.prepare(&claim).await.expect_err("admin").reason(), "NotYetSupported");
    assert_eq!((node.driver.slices("GPU-0"), node.files()), (vec![], vec![]));
    let claim = with_config("MigDeviceConfig", serde_json::json!(null));
    claims.prepare(&claim).await.expect("prepares");
}
