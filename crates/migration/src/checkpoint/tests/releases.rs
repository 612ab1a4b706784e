use octavo_api::config::{MpsConfig, TimeSlice};

use super::{
    CLAIM_A, CLAIM_B, CLAIM_C, CLAIM_D, V0_4, V0_4_EMPTY, V0_5, V25_3, V25_8, V25_12, read,
};
use crate::checkpoint::{
    AllocatedDevice, AppliedSharing, CheckpointVersion, ClaimState, DeviceKind, MigDevice,
    MigPlacement, PreparedClaim, PreparedDevice, RequestedSharing,
};

const GPU_0: &str = "GPU-6a1f0c52-0d4b-4f6e-8a8b-2c1d3e4f5a60";
const GPU_1: &str = "GPU-6a1f0c52-0d4b-4f6e-8a8b-2c1d3e4f5a61";
const MIG: &str = "MIG-9d0a2c14-7b5e-5f0c-9f3a-6f2b1c0d4e7a";
const VFIO: &str = "c1f4d4f0-5a3b-5c1d-8e2f-0a1b2c3d4e5f";

fn only(claim: &PreparedClaim) -> &PreparedDevice {
    let devices: Vec<_> = claim.devices().collect();
    assert_eq!(devices.len(), 1, "{claim:?}");
    devices[0]
}

fn sharing(claim: &PreparedClaim) -> &AppliedSharing {
    &claim.groups[0].sharing
}

fn limits() -> MpsConfig {
    MpsConfig {
        default_active_thread_percentage: Some(50),
        default_pinned_device_memory_limit: Some(10 << 30),
        default_per_device_pinned_memory_limit: [("0".to_owned(), 4 << 30)].into(),
        multi_user: false,
    }
}

#[test]
fn release_25_3_has_v1_alone() {
    let found = read(V25_3);
    assert_eq!((found.version, found.boot_id.as_deref()), (CheckpointVersion::V1, None));
    assert_eq!(found.is_of_other_boot("b"), None);
    let claim = &found.claims[CLAIM_A];
    assert_eq!((claim.state, &claim.name), (ClaimState::PrepareCompleted, &None));
    let device = only(claim);
    assert_eq!(device.kind, DeviceKind::Gpu { uuid: GPU_0.to_owned() });
    assert_eq!((device.name.as_str(), device.pool.as_str()), ("gpu-0", "gpu-7"));
    assert_eq!(device.requests, ["gpu"]);
    assert_eq!(device.cdi_device_ids[0], "k8s.gpu.nvidia.com/device=gpu-0");
    // The claim's config comes before that of its class.
    let sharing = sharing(claim);
    assert_eq!(sharing.requested, RequestedSharing::Mps(limits()));
    assert_eq!(sharing.mps_daemon, Some(format!("{CLAIM_A}-4c1f2")));
    assert_eq!(sharing.is_time_slice_applied, None);
    let DeviceKind::Mig(mig) = &only(&found.claims[CLAIM_B]).kind else { panic!("no MIG device") };
    assert_eq!((mig.uuid.as_str(), &mig.parent_uuid, mig.gpu_instance), (MIG, &None, None));
    let placement =
        MigPlacement { parent_minor: 1, profile: None, profile_id: 9, start: 4, size: Some(4) };
    assert_eq!(mig.placement, Some(placement));
}

#[test]
fn release_25_8_also_has_claims_that_had_only_begun() {
    let found = read(V25_8);
    assert_eq!((found.version, found.claims.len()), (CheckpointVersion::V2, 2));
    let claim = &found.claims[CLAIM_A];
    let names: Vec<&str> = claim.devices().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["gpu-0", "gpu-1"]);
    assert_eq!(sharing(claim).requested, RequestedSharing::TimeSlicing(TimeSlice::Long));
    assert_eq!(sharing(claim).mps_daemon, None);
    let begun = &found.claims[CLAIM_B];
    assert_eq!((begun.state, begun.groups.len()), (ClaimState::PrepareStarted, 0));
    let allocated = AllocatedDevice {
        request: "mig".to_owned(),
        pool: "gpu-7".to_owned(),
        device: "gpu-1-mig-9-4-4".to_owned(),
        is_admin: false,
        share_id: None,
    };
    assert_eq!(begun.allocated, [allocated]);
}

#[test]
fn release_25_12_names_claims_and_created_devices() {
    let found = read(V25_12);
    let claim = &found.claims[CLAIM_A];
    assert_eq!(claim.name.as_deref(), Some("train-gpu-x7k2p"));
    assert_eq!(claim.namespace.as_deref(), Some("team-a"));
    let mig = MigDevice {
        uuid: MIG.to_owned(),
        parent_uuid: Some(GPU_1.to_owned()),
        parent_pci_bus_id: None,
        gpu_instance: Some(2),
        compute_instance: Some(0),
        placement: Some(MigPlacement {
            parent_minor: 1,
            profile: Some("3g.40gb".to_owned()),
            profile_id: 9,
            start: 4,
            size: None,
        }),
    };
    assert_eq!(only(claim).kind, DeviceKind::Mig(mig));
    assert_eq!(sharing(claim).requested, RequestedSharing::Default);
    let vfio = DeviceKind::Vfio { uuid: VFIO.to_owned(), pci_bus_id: None };
    assert_eq!(only(&found.claims[CLAIM_B]).kind, vfio);
}

#[test]
fn release_0_4_records_the_boot_and_time_slices() {
    let found = read(V0_4);
    let boot = "5f0a2c11-6d8e-4c7b-9a31-0e2d4f6b8c10";
    assert_eq!(found.boot_id.as_deref(), Some(boot));
    assert_eq!(found.is_of_other_boot(boot), Some(false));
    assert_eq!(found.is_of_other_boot("another"), Some(true));
    let sliced = sharing(&found.claims[CLAIM_A]);
    assert_eq!(sliced.requested, RequestedSharing::TimeSlicing(TimeSlice::Long));
    assert_eq!(sliced.is_time_slice_applied, Some(true));
    // The driver compares whole names: the config for `gpus` did not serve `gpus/any`.
    let claim = &found.claims[CLAIM_B];
    assert_eq!(only(claim).requests, ["gpus/any"]);
    assert_eq!(sharing(claim).requested, RequestedSharing::Default);
    assert_eq!(sharing(claim).mps_daemon, Some(format!("{CLAIM_B}-9e107")));
    assert_eq!(found.claims[CLAIM_C].state, ClaimState::PrepareStarted);
    let empty = read(V0_4_EMPTY);
    assert_eq!((empty.claims.len(), empty.boot_id.as_deref()), (0, Some(boot)));
}

#[test]
fn release_0_5_has_shares_and_addresses() {
    let found = read(V0_5);
    let [gpu, mig] = &found.claims[CLAIM_A].groups[..] else { panic!("not two groups") };
    assert_eq!(gpu.sharing.requested, RequestedSharing::TimeSlicing(TimeSlice::Long));
    // The class's config is for whole GPUs, and is skipped for a MIG device.
    assert_eq!(mig.sharing.requested, RequestedSharing::Default);
    let DeviceKind::Mig(device) = &mig.devices[0].kind else { panic!("no MIG device") };
    assert_eq!(device.parent_pci_bus_id.as_deref(), Some("0000:9a:00.0"));
    assert_eq!((device.gpu_instance, device.compute_instance), (Some(13), Some(0)));
    let vfio = &only(&found.claims[CLAIM_C]).kind;
    let address = Some("0000:9d:00.0".to_owned());
    assert_eq!(*vfio, DeviceKind::Vfio { uuid: VFIO.to_owned(), pci_bus_id: address });
    let share = &found.claims[CLAIM_D];
    let id = only(share).share_id.as_deref();
    assert_eq!(id, Some("8d2a8d6e-2f58-4f3d-8d4c-0f9a5b6c7d8e"));
    assert_eq!(sharing(share).is_mps_applied, Some(true));
}
