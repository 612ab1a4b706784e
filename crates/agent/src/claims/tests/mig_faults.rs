//! Faults with MIG instances: no instance is lost, allocated twice or left behind.

use std::fs;

use octavo_api::names::CONDITION_ENFORCED;
use octavo_enforcement::share::{ShareFinding, ShareReports as _, Status};
use octavo_gpu::DriverError;
use octavo_node::ClaimRef;
use serde_json::json;

use super::fixtures::{Node, cut, known_mig, share_id};

use crate::claims::{Claims, Fact, MigManagement};

const SMALL: &str = "gpu-0-mig-1g10gb-19-3";
const OTHER: &str = "gpu-1-mig-1g10gb-19-3";

/// A node whose claim has an instance.
async fn prepared() -> (Node, Claims, ClaimRef) {
    let node = Node::new();
    let claims = node.start_mig().await;
    let claim = node.allocate("a", &[SMALL]);
    claims.prepare(&claim).await.expect("prepares");
    (node, claims, claim)
}

/// Nothing is held and nothing is left, on disk and on the GPUs.
fn assert_nothing(node: &Node, claims: &Claims) {
    assert_eq!((node.files(), claims.holdings()), (vec![], vec![]));
    for gpu in ["GPU-0", "GPU-1"] {
        assert_eq!(node.driver.slices(gpu), [], "{gpu}");
        assert!(!node.driver.is_on(gpu), "{gpu}");
    }
}

fn lost() -> DriverError {
    DriverError::GpuLost { call: "nvmlDeviceCreateGpuInstanceWithPlacement" }
}

#[tokio::test]
async fn a_busy_instance_stays_with_its_claim_until_it_is_free() {
    let (node, claims, claim) = prepared().await;
    node.driver.with("GPU-0", |card| card.busy.insert(3));
    for _ in 0..2 {
        let refusal = claims.unprepare(&claim).await.expect_err("is in use");
        assert_eq!(refusal.reason(), "MigNotDestroyed");
    }
    assert_eq!(node.files(), [Node::checkpoint(&claim)], "no container can be made from it");
    claims.set_devices("580.95.05", known_mig()).await;
    assert_eq!(claims.sweep().await.repaired, [], "what is being taken back is not repaired");
    assert_eq!(node.files(), [Node::checkpoint(&claim)]);
    let other = node.allocate("b", &[SMALL]);
    assert_eq!(claims.prepare(&other).await.expect_err("is held").reason(), "DeviceInUse");
    node.driver.with("GPU-0", |card| card.busy.clear());
    claims.unprepare(&claim).await.expect("unprepares");
    assert_nothing(&node, &claims);
    claims.prepare(&other).await.expect("prepares");
}

#[tokio::test]
async fn a_claim_that_could_not_be_taken_back_can_be_prepared_again() {
    let (node, claims, claim) = prepared().await;
    node.driver.with("GPU-0", |card| card.busy.insert(3));
    claims.unprepare(&claim).await.expect_err("is in use");
    claims.prepare(&claim).await.expect("its instance is there");
    assert_eq!(node.files(), [Node::checkpoint(&claim), Node::cdi(&claim)]);
    assert_eq!(node.driver.slices("GPU-0"), [(3, 1)]);
}

#[tokio::test]
async fn missing_instance_is_recreated_in_its_placement() {
    let (node, claims, claim) = prepared().await;
    let spec = || fs::read_to_string(node.path(&Node::cdi(&claim))).expect("reads");
    let before = spec();
    node.driver.destroy_by_hand("GPU-0", 3);
    let neighbour = node.allocate("b", &["gpu-0-mig-1g10gb-19-0"]);
    claims.prepare(&neighbour).await.expect("prepares");
    claims.prepare(&claim).await.expect("prepares");
    assert_eq!(node.driver.slices("GPU-0"), [(0, 1), (3, 1)]);
    assert_ne!(spec(), before, "another id has other nodes");
    let facts = node.facts(&claim);
    assert!(
        matches!(facts.as_slice(), [Fact::Mig { instance, .. }] if instance.uuid == "MIG-3"),
        "{facts:?}"
    );
    claims.unprepare(&claim).await.expect("unprepares");
    claims.unprepare(&neighbour).await.expect("unprepares");
    assert_nothing(&node, &claims);
}

#[tokio::test]
async fn an_instance_with_the_id_of_one_that_is_gone_is_not_destroyed_for_it() {
    let (node, claims, claim) = prepared().await;
    node.driver.destroy_by_hand("GPU-0", 3);
    // It gets the id of the one that is gone.
    let other = node.allocate("b", &["gpu-0-mig-1g10gb-19-5"]);
    claims.prepare(&other).await.expect("prepares");
    claims.unprepare(&claim).await.expect("has nothing to destroy");
    assert_eq!(node.driver.slices("GPU-0"), [(5, 1)]);
    // The same place, and another's instance.
    let third = node.allocate("c", &[SMALL]);
    claims.prepare(&third).await.expect("prepares");
    node.driver.destroy_by_hand("GPU-0", 3);
    node.driver.make_by_hand("GPU-0", 19, 3, 1);
    claims.unprepare(&third).await.expect("has nothing to destroy");
    assert_eq!(node.driver.slices("GPU-0").len(), 2);
}

#[tokio::test]
async fn failed_recreation_leaves_the_claim_unchanged() {
    let (node, claims, claim) = prepared().await;
    node.driver.destroy_by_hand("GPU-0", 3);
    node.driver.make_by_hand("GPU-0", 9, 0, 4);
    let refusal = claims.prepare(&claim).await.expect_err("the place is taken");
    assert_eq!(refusal.reason(), "MigPlacementTaken");
    let text = refusal.to_string();
    assert!(text.contains("profile id 9, memory slices 0 to 3"), "{text}");
    assert_eq!(claims.holdings().len(), 1);
    let checkpoint = fs::read_to_string(node.path(&Node::checkpoint(&claim))).expect("reads");
    assert!(checkpoint.contains("\"Prepared\""), "{checkpoint}");
    node.driver.destroy_by_hand("GPU-0", 0);
    claims.prepare(&claim).await.expect("prepares");
    claims.unprepare(&claim).await.expect("unprepares");
    assert_nothing(&node, &claims);
}

#[tokio::test]
async fn missing_instances_are_reported_together_with_share_findings() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let claim = node.allocate_with("a", &[SMALL, "gpu-2"], |claim| {
        let share = &mut claim["status"]["allocation"]["devices"]["results"][1];
        share["shareID"] = share_id("a", 1).into();
        share["consumedCapacity"] = json!({"memory": "20Gi", "gpu.nvidia.com/compute": "0"});
    });
    claims.prepare(&claim).await.expect("prepares");
    drop(claims);
    node.driver.destroy_by_hand("GPU-0", 3);
    let (claims, _) = node.open();
    let fenced = ShareFinding {
        reason: "StateTampered",
        message: "is fenced".to_owned(),
        condition: Some((CONDITION_ENFORCED, Status::False)),
    };
    claims.report_share(&claim.uid, &share_id("a", 1), fenced.clone(), true);
    node.give_driver(&claims).await;
    claims.set_mig_management(cut(&["GPU-0", "GPU-1"]));
    claims.set_devices("580.95.05", known_mig()).await;
    let facts = node.facts(&claim);
    let [Fact::MigGone { .. }, Fact::Share { findings, .. }] = facts.as_slice() else {
        panic!("{facts:?}")
    };
    assert_eq!(findings.iter().map(|(found, _)| found).collect::<Vec<_>>(), [&fenced]);
}

#[tokio::test]
async fn a_restart_tells_of_instances_that_are_gone() {
    let (node, claims, claim) = prepared().await;
    drop(claims);
    node.driver.destroy_by_hand("GPU-0", 3);
    let claims = node.start_mig().await;
    assert!(matches!(node.facts(&claim).as_slice(), [Fact::MigGone { .. }]));
    assert_eq!(
        node.files(),
        [Node::checkpoint(&claim)],
        "no container comes into what is there now"
    );
    drop(claims);
    let claims = node.start_mig().await;
    assert!(matches!(node.facts(&claim).as_slice(), [Fact::MigGone { .. }]), "it stays told");
    assert_eq!(node.files(), [Node::checkpoint(&claim)]);
    claims.prepare(&claim).await.expect("is made anew");
    assert!(matches!(node.facts(&claim).as_slice(), [Fact::Mig { .. }]));
}

#[tokio::test]
async fn a_reboot_takes_instances_along() {
    let (node, claims, claim) = prepared().await;
    drop(claims);
    node.driver.with("GPU-0", |card| (card.is_on, card.instances) = (false, Vec::new()));
    node.reboot();
    let claims = node.start_mig().await;
    assert_nothing(&node, &claims);
    claims.prepare(&claim).await.expect("prepares");
}

#[tokio::test]
async fn a_taken_place_is_refused_and_what_is_there_stays() {
    let node = Node::new();
    let claims = node.start_mig().await;
    node.driver.make_by_hand("GPU-0", 19, 3, 1);
    let claim = node.allocate("a", &[OTHER, SMALL]);
    let refusal = claims.prepare(&claim).await.expect_err("is taken");
    assert_eq!(refusal.reason(), "MigPlacementTaken");
    assert_eq!((node.files(), claims.holdings()), (vec![], vec![]));
    assert_eq!(node.driver.slices("GPU-0"), [(3, 1)], "it is somebody's");
    assert_eq!(node.driver.slices("GPU-1"), [], "the claim's other one is taken back");
    // The claim's end does not touch it either.
    claims.unprepare(&claim).await.expect("unprepares");
    claims.sweep().await;
    assert_eq!(node.driver.slices("GPU-0"), [(3, 1)]);
}

#[tokio::test]
async fn start_destroys_unused_unclaimed_instances() {
    let (node, claims, claim) = prepared().await;
    drop(claims);
    node.driver.make_by_hand("GPU-0", 19, 0, 1);
    node.driver.make_by_hand("GPU-0", 19, 5, 1);
    node.driver.make_by_hand("GPU-1", 19, 0, 1);
    node.driver.make_by_hand("GPU-2", 19, 0, 1);
    node.driver.with("GPU-0", |card| card.busy.insert(5));
    let claims = node.start_mig().await;
    assert_eq!(node.driver.slices("GPU-0"), [(3, 1), (5, 1)]);
    assert_eq!(node.driver.slices("GPU-1"), []);
    assert!(!node.driver.is_on("GPU-1"));
    assert_eq!(node.driver.slices("GPU-2"), [(0, 1)], "Octavo does not cut it");
    node.driver.make_by_hand("GPU-1", 19, 0, 1);
    claims.set_devices("580.95.05", known_mig()).await;
    node.give_driver(&claims).await;
    assert_eq!(node.driver.slices("GPU-1"), [(0, 1)], "while it runs it destroys none");
    claims.unprepare(&claim).await.expect("unprepares");
    assert!(node.driver.is_on("GPU-0"), "somebody's instance is there");
}

#[tokio::test]
async fn start_destroys_no_foreign_instance_before_mig_management_is_known() {
    let (node, claims, claim) = prepared().await;
    drop(claims);
    node.driver.make_by_hand("GPU-0", 19, 0, 1);
    node.driver.make_by_hand("GPU-1", 19, 0, 1);
    let (claims, _) = node.open();
    node.give_driver(&claims).await;
    claims.set_devices("580.95.05", known_mig()).await;
    claims.sweep().await;
    assert_eq!(node.driver.slices("GPU-0").len(), 2);
    assert_eq!(node.driver.slices("GPU-1"), [(0, 1)]);
    // The first is opted out by now, though a claim has an instance there.
    claims.set_mig_management(cut(&["GPU-1"]));
    claims.set_devices("580.95.05", known_mig()).await;
    assert_eq!(node.driver.slices("GPU-0").len(), 2);
    assert_eq!(node.driver.slices("GPU-1"), []);
    claims.unprepare(&claim).await.expect("unprepares");
    assert_eq!(node.driver.slices("GPU-0"), [(0, 1)]);
}

#[tokio::test]
async fn a_mode_that_takes_a_reset_stays_on_after_the_last_instance() {
    let (node, claims, claim) = prepared().await;
    let fixed = MigManagement { fixed: ["GPU-0".to_owned()].into(), ..cut(&["GPU-0", "GPU-1"]) };
    claims.set_mig_management(fixed.clone());
    claims.unprepare(&claim).await.expect("unprepares");
    assert_eq!(node.driver.slices("GPU-0"), []);
    assert!(node.driver.is_on("GPU-0"));
    drop(claims);
    // Neither does a start turn it off.
    node.driver.make_by_hand("GPU-0", 19, 0, 1);
    let (claims, _) = node.open();
    node.give_driver(&claims).await;
    claims.set_mig_management(fixed);
    claims.set_devices("580.95.05", known_mig()).await;
    assert_eq!(node.driver.slices("GPU-0"), []);
    assert!(node.driver.is_on("GPU-0"));
}

#[tokio::test]
async fn a_gpu_that_is_lost_while_it_is_cut_is_refused_and_nothing_is_left() {
    for call in ["instances", "mode", "create"] {
        let node = Node::new();
        let claims = node.start_mig().await;
        let claim = node.allocate("a", &[OTHER, SMALL]);
        node.driver.fail(call, "GPU-0", lost());
        let refusal = claims.prepare(&claim).await.expect_err(call);
        assert!(refusal.to_string().contains("the GPU is lost"), "{refusal}");
        assert_nothing(&node, &claims);
        claims.prepare(&claim).await.expect("it is back");
    }
}

#[tokio::test]
async fn the_claims_of_a_lost_gpu_can_be_taken_back() {
    let (node, claims, claim) = prepared().await;
    node.driver.with("GPU-0", |card| card.is_lost = true);
    claims.unprepare(&claim).await.expect("comes back by a reset alone");
    assert_eq!((node.files(), claims.holdings()), (vec![], vec![]));
}

#[tokio::test]
async fn a_closed_driver_makes_claims_wait() {
    let (node, claims, claim) = prepared().await;
    let new = node.allocate("b", &[OTHER]);
    claims.set_driver(None).await;
    for claim in [&claim, &new] {
        let refusal = claims.prepare(claim).await.expect_err("is closed");
        assert_eq!(refusal.reason(), "DriverClosed", "{claim}");
    }
    assert_eq!(claims.unprepare(&claim).await.expect_err("is closed").reason(), "DriverClosed");
    assert_eq!(claims.holdings().len(), 1, "the new one has nothing");
    node.give_driver(&claims).await;
    claims.prepare(&new).await.expect("prepares");
    for claim in [&claim, &new] {
        claims.unprepare(claim).await.expect("unprepares");
    }
    assert_nothing(&node, &claims);
}

#[tokio::test]
async fn a_profile_that_the_gpu_lacks_is_refused_by_name() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let claim = node.allocate("a", &[SMALL]);
    let call = "nvmlDeviceCreateGpuInstanceWithPlacement";
    node.driver.fail("create", "GPU-0", DriverError::NotSupported { call });
    let refusal = claims.prepare(&claim).await.expect_err("is lacking");
    assert_eq!(refusal.reason(), "MigProfileMissing");
    assert!(refusal.to_string().contains("no profile 1g.10gb at memory slice 3"), "{refusal}");
    assert_nothing(&node, &claims);
}

#[tokio::test]
async fn a_mode_that_needs_a_reset_is_refused_and_is_not_left_to_come() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let (mig, whole) = (node.allocate("a", &[SMALL]), node.allocate("b", &["gpu-0"]));
    node.driver.with("GPU-0", |card| card.needs_reset = true);
    let refusal = claims.prepare(&mig).await.expect_err("needs a reset");
    assert_eq!(refusal.reason(), "MigModeNeedsReset");
    assert!(refusal.to_string().contains("-mig 1"), "{refusal}");
    assert!(!node.driver.with("GPU-0", |card| card.pending));
    claims.prepare(&whole).await.expect("it is whole");
    claims.unprepare(&whole).await.expect("unprepares");
    node.driver.with("GPU-0", |card| (card.is_on, card.pending) = (true, true));
    let refusal = claims.prepare(&whole).await.expect_err("needs a reset");
    assert_eq!(refusal.reason(), "MigModeNeedsReset");
    assert!(refusal.to_string().contains("-mig 0"), "{refusal}");
    assert!(node.driver.with("GPU-0", |card| card.pending));
    claims.prepare(&mig).await.expect("it is cut");
    claims.unprepare(&mig).await.expect("the mode stays on");
    assert_eq!((node.files(), claims.holdings()), (vec![], vec![]));
}

#[tokio::test]
async fn a_gpu_in_use_keeps_its_mode() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let claim = node.allocate("a", &[SMALL]);
    node.driver.with("GPU-0", |card| card.is_in_use = true);
    let refusal = claims.prepare(&claim).await.expect_err("is in use");
    assert_eq!(refusal.reason(), "MigModeNotChanged");
    assert_nothing(&node, &claims);
    node.driver.with("GPU-0", |card| card.is_in_use = false);
    claims.prepare(&claim).await.expect("prepares");
    node.driver.with("GPU-0", |card| card.is_in_use = true);
    claims.unprepare(&claim).await.expect("the mode is no reason to hold a pod");
    assert!(node.driver.is_on("GPU-0"));
}

#[tokio::test]
async fn a_container_gets_the_device_node_that_its_gpu_has_after_the_change_of_mode() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let numbers = |claim: &ClaimRef| {
        let spec = fs::read_to_string(node.path(&Node::cdi(claim))).expect("reads");
        (0..9).filter(|n| spec.contains(&format!("\"/dev/nvidia{n}\""))).collect::<Vec<u32>>()
    };
    // The first claim turns the mode on; its end turns it off.
    let cut = node.allocate("a", &[SMALL]);
    node.driver.with("GPU-0", |card| card.next_minor = Some(6));
    claims.prepare(&cut).await.expect("prepares");
    assert_eq!(numbers(&cut), [6]);
    // The monitor reads it again: the device's name stays, its node is another.
    let mut devices = known_mig();
    let of_gpu = devices.iter_mut().filter(|device| device.uuid == "GPU-0");
    of_gpu.for_each(|device| device.minor = 6);
    claims.set_devices("580.95.05", devices).await;
    claims.sweep().await;
    assert_eq!(numbers(&cut), [6]);
    claims.unprepare(&cut).await.expect("unprepares");

    let whole = node.allocate("b", &["gpu-0"]);
    node.driver.with("GPU-0", |card| {
        (card.is_on, card.pending, card.next_minor) = (true, true, Some(7));
    });
    claims.prepare(&whole).await.expect("prepares");
    assert_eq!(numbers(&whole), [7]);
    claims.unprepare(&whole).await.expect("unprepares");
    assert_nothing(&node, &claims);
}

#[tokio::test]
async fn an_instance_without_capability_files_is_refused_and_kept_for_its_claim() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let claim = node.allocate("a", &[SMALL]);
    node.driver.with("GPU-0", |card| card.lacks_capabilities = true);
    for _ in 0..2 {
        let refusal = claims.prepare(&claim).await.expect_err("lacks a file");
        assert_eq!(refusal.reason(), "MigNotUsable");
        let text = refusal.to_string();
        assert!(text.contains("capability files cannot be read"), "{text}");
        assert!(text.contains("gpu0/mig/gi1"), "{text}");
        assert!(!node.path(&Node::cdi(&claim)).exists(), "a container would start without nodes");
        let instances = node.driver.with("GPU-0", |card| card.instances.clone());
        let [instance] = &instances[..] else { panic!("{instances:?}") };
        let uuid = &instance.compute_instances[0].uuid;
        assert_eq!((instance.gpu_instance, uuid.as_str()), (1, "MIG-1"), "the first one stays");
    }
    node.driver.with("GPU-0", |card| {
        card.lacks_capabilities = false;
        card.write_capabilities(&node.path("proc"), "GPU-0", 1);
    });
    claims.prepare(&claim).await.expect("the kubelet retries");
    assert_eq!(node.driver.slices("GPU-0"), [(3, 1)]);
    claims.unprepare(&claim).await.expect("unprepares");
    assert_nothing(&node, &claims);
}

#[tokio::test]
async fn what_could_not_be_taken_back_is_taken_back_later() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let claim = node.allocate("a", &[OTHER, SMALL]);
    node.driver.fail("create", "GPU-0", lost());
    let busy = DriverError::InUse { call: "nvmlGpuInstanceDestroy" };
    node.driver.fail("destroy", "GPU-1", busy);
    claims.prepare(&claim).await.expect_err("fails");
    assert_eq!(node.driver.slices("GPU-1"), [(3, 1)]);
    assert_eq!(node.files(), [Node::checkpoint(&claim)]);
    let other = node.allocate("b", &[OTHER]);
    assert_eq!(claims.prepare(&other).await.expect_err("is held").reason(), "DeviceInUse");
    claims.sweep().await;
    assert_nothing(&node, &claims);
}

#[tokio::test]
async fn a_half_made_claim_takes_what_it_made_when_it_is_prepared_again() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let claim = node.allocate("a", &[OTHER, SMALL]);
    node.driver.fail("create", "GPU-0", lost());
    let busy = DriverError::InUse { call: "nvmlGpuInstanceDestroy" };
    node.driver.fail("destroy", "GPU-1", busy);
    claims.prepare(&claim).await.expect_err("fails");
    claims.prepare(&claim).await.expect("prepares");
    assert_eq!(node.driver.slices("GPU-1"), [(3, 1)]);
    assert_eq!(node.driver.slices("GPU-0"), [(3, 1)]);
    claims.unprepare(&claim).await.expect("unprepares");
    assert_nothing(&node, &claims);
}

#[tokio::test]
async fn a_damaged_record_protects_its_instance() {
    let (node, claims, claim) = prepared().await;
    drop(claims);
    fs::write(node.path(&Node::checkpoint(&claim)), "x").expect("writes");
    let spec = fs::read_to_string(node.path(&Node::cdi(&claim))).expect("reads");
    let (_, body) = spec.split_once('\n').expect("has lines");
    fs::write(node.path(&Node::cdi(&claim)), body).expect("writes");
    let claims = node.start_mig().await;
    assert_eq!(node.driver.slices("GPU-0"), [(3, 1)]);
    let overlapping = node.allocate("b", &["gpu-0-mig-3g40gb-9-0"]);
    assert!(claims.prepare(&overlapping).await.is_err());
    let beside = node.allocate("c", &["gpu-0-mig-3g40gb-9-4"]);
    claims.prepare(&beside).await.expect("the name tells the place");
    // Its containers may run, so the existing instance is adopted.
    node.driver.with("GPU-0", |card| card.busy.insert(3));
    claims.prepare(&claim).await.expect("heals");
    node.driver.with("GPU-0", |card| card.busy.clear());
    for claim in [&claim, &beside] {
        claims.unprepare(claim).await.expect("unprepares");
    }
    assert_nothing(&node, &claims);
}

#[tokio::test]
async fn an_unresolved_claim_s_instance_goes_with_it() {
    let (node, claims, claim) = prepared().await;
    drop(claims);
    let path = node.path(&Node::checkpoint(&claim));
    let text = fs::read_to_string(&path).expect("reads");
    fs::write(&path, text.replace("\"start\":3", "\"start\":4")).expect("writes");
    fs::remove_file(node.path(&Node::cdi(&claim))).expect("removes");
    let claims = node.start_mig().await;
    assert_eq!(node.driver.slices("GPU-0"), [(3, 1)], "nobody knows whose it is");
    // The API server reports the devices of the claim; another claim triggers the read.
    let other = node.allocate("b", &[SMALL]);
    assert!(claims.prepare(&other).await.is_err());
    let beside = node.allocate("c", &["gpu-0-mig-1g10gb-19-0"]);
    claims.prepare(&beside).await.expect("is another place");
    claims.unprepare(&beside).await.expect("unprepares");
    claims.unprepare(&claim).await.expect("unprepares");
    assert_nothing(&node, &claims);
    claims.prepare(&other).await.expect("prepares");
}
