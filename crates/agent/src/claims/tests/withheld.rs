//! Parts of GPUs that claims cannot have, because they get another MIG layout.

use std::collections::BTreeSet;

use octavo_gpu::mig::{MigInstance, MigPlacement};
use octavo_gpu::{DriverError, Gpu};

use super::driver::profile;
use super::fixtures::Node;
use crate::gpu_mode::ChangeError;
use crate::mig_layout::{Change, ClosedParts};
use crate::testing;

const SMALL: &str = "gpu-0-mig-1g10gb-19-3";
const LARGE: &str = "gpu-0-mig-3g40gb-9-0";

/// The GPU as the driver has it now.
fn gpu(node: &Node) -> Gpu {
    let mig_instances: Vec<MigInstance> = node.driver.with("GPU-0", |card| card.instances.clone());
    Gpu { uuid: "GPU-0".to_owned(), mig_instances, ..testing::gpu(0) }
}

fn halves() -> Change {
    let half = profile(9, "3g.40gb", 4, &[0, 4]);
    let created = half.placements.iter().map(|place| (half.clone(), *place)).collect();
    Change { destroyed: Vec::new(), created, mode: Some(true) }
}

#[tokio::test]
async fn closed_parts_are_refused_and_their_holders_known() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let (large, small) = (node.allocate("large", &[LARGE]), node.allocate("small", &[SMALL]));
    claims.prepare(&large).await.expect("prepares");
    let mut parts = ClosedParts::default();
    parts.add_place("GPU-0", MigPlacement { start: 3, size: 2 });
    assert_eq!(claims.holders(&parts), BTreeSet::from([large.to_string()]));
    claims.close_parts(parts);
    let refusal = claims.prepare(&small).await.expect_err("is closed").to_string();
    assert!(refusal.contains("the MIG layout of the GPU of device"), "{refusal}");
    // What it has stays its own, and other GPUs are open.
    claims.prepare(&large).await.expect("prepares again");
    let other = node.allocate("other", &["gpu-1"]);
    claims.prepare(&other).await.expect("is on another GPU");
    let mut parts = ClosedParts::default();
    parts.add_gpu("GPU-1");
    assert_eq!(claims.holders(&parts), BTreeSet::from([other.to_string()]));
    claims.unprepare(&large).await.expect("unprepares");
    claims.close_parts(ClosedParts::default());
    claims.prepare(&small).await.expect("is open again");
}

#[tokio::test]
async fn a_gpu_gets_a_layout_and_another_one() {
    let node = Node::new();
    let claims = node.start_mig().await;
    claims.change_gpu(gpu(&node), halves()).await.expect("changes");
    assert_eq!(node.driver.slices("GPU-0"), [(0, 4), (4, 4)]);
    let now = gpu(&node);
    let small = profile(19, "1g.10gb", 1, &[4]);
    let change = Change {
        destroyed: now.mig_instances[1..].to_vec(),
        created: vec![(small.clone(), small.placements[0])],
        mode: None,
    };
    claims.change_gpu(now, change).await.expect("changes");
    assert_eq!(node.driver.slices("GPU-0"), [(0, 4), (4, 1)]);
    let now = gpu(&node);
    let destroyed = now.mig_instances.clone();
    let off = Change { destroyed, created: Vec::new(), mode: Some(false) };
    claims.change_gpu(now, off).await.expect("changes");
    assert_eq!((node.driver.slices("GPU-0"), node.driver.is_on("GPU-0")), (vec![], false));
}

#[tokio::test]
async fn a_gpu_that_is_no_longer_as_it_was_or_refuses_keeps_what_it_has() {
    let node = Node::new();
    let claims = node.start_mig().await;
    let before = gpu(&node);
    node.driver.make_by_hand("GPU-0", 9, 0, 4);
    let stale = claims.change_gpu(before, halves()).await;
    assert!(matches!(stale, Err(ChangeError::Stale)), "{stale:?}");
    assert_eq!(node.driver.slices("GPU-0"), [(0, 4)]);
    node.driver.fail("destroy", "GPU-0", DriverError::InUse { call: "nvmlGpuInstanceDestroy" });
    let now = gpu(&node);
    let off =
        Change { destroyed: now.mig_instances.clone(), created: Vec::new(), mode: Some(false) };
    let busy = claims.change_gpu(now, off).await;
    assert!(matches!(busy, Err(ChangeError::Driver(DriverError::InUse { .. }))), "{busy:?}");
    assert_eq!(node.driver.slices("GPU-0"), [(0, 4)]);
    claims.close().await;
    let closed = claims.change_gpu(gpu(&node), halves()).await;
    assert!(matches!(closed, Err(ChangeError::Closed)), "{closed:?}");
}
