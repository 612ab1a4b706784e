use octavo_api::config::{ConfigSource, GpuConfig, MigDeviceConfig};
use octavo_node::ClaimRef;

use super::*;
use crate::checkpoint::{HeldMig, HeldShare, MadeMig, RecordState};

const GIB: i128 = 1 << 30;

fn mps(percentage: Option<u8>) -> MpsConfig {
    MpsConfig { default_active_thread_percentage: percentage, ..MpsConfig::default() }
}

fn config(requests: &[&str], config: OpaqueConfig) -> DecodedConfig {
    DecodedConfig {
        source: ConfigSource::Claim,
        requests: requests.iter().map(|&request| request.to_owned()).collect(),
        config,
    }
}

fn gpu(requests: &[&str], sharing: Sharing) -> DecodedConfig {
    config(requests, OpaqueConfig::Gpu(GpuConfig { sharing: Some(sharing) }))
}

fn result(request: &str) -> AllocatedDevice {
    AllocatedDevice {
        request: request.to_owned(),
        driver: "gpu.nvidia.com".to_owned(),
        pool: "node-a".to_owned(),
        device: format!("gpu-of-{request}"),
        share_id: None,
        consumed: BTreeMap::new(),
        admin_access: false,
    }
}

fn mig(uuid: &str) -> HeldKind {
    let made = MadeMig { gpu_instance: 1, compute_instance: 0, uuid: uuid.to_owned() };
    HeldKind::Mig(HeldMig {
        profile: "1g.10gb".to_owned(),
        profile_id: 19,
        start: 0,
        size: 1,
        is_dynamic: false,
        made: Some(made),
    })
}

/// The sharing of whole GPUs for these requests, and of MIG devices for those that begin with `m`.
fn decided(requests: &[&str], configs: &[DecodedConfig]) -> Result<Vec<HeldDevice>, Refusal> {
    let results: Vec<_> = requests.iter().map(|request| result(request)).collect();
    let held = requests.iter().map(|request| HeldDevice {
        uuid: format!("GPU-{request}"),
        kind: if request.starts_with('m') {
            mig(&format!("MIG-{request}"))
        } else {
            HeldKind::Whole
        },
        ..HeldDevice::default()
    });
    let uid = "00000000-0000-4000-8000-000000000001".to_owned();
    let mut record = Record {
        claim: ClaimRef { namespace: "ns".to_owned(), name: "a".to_owned(), uid },
        boot_id: "boot".to_owned(),
        state: RecordState::Prepared,
        prepared_at: None,
        devices: held.collect(),
    };
    decide(&mut record, configs, results.iter())?;
    Ok(record.devices)
}

/// The daemon of each device.
fn daemons(devices: &[HeldDevice]) -> Vec<Option<&HeldMps>> {
    devices
        .iter()
        .map(|held| match &held.sharing {
            Some(HeldSharing::Mps(mps)) => Some(mps),
            _ => None,
        })
        .collect()
}

#[test]
fn a_time_slice_has_the_number_of_nvidia_smi_and_the_default_has_none() {
    let slices = [
        (TimeSlice::Default, None),
        (TimeSlice::Short, Some(HeldSharing::TimeSlice(1))),
        (TimeSlice::Medium, Some(HeldSharing::TimeSlice(2))),
        (TimeSlice::Long, Some(HeldSharing::TimeSlice(3))),
    ];
    for (slice, sharing) in slices {
        let configs = [gpu(&["a"], Sharing::TimeSlicing(slice))];
        let devices = decided(&["a", "b"], &configs).unwrap();
        assert_eq!([&devices[0].sharing, &devices[1].sharing], [&sharing, &None], "{slice:?}");
    }
}

#[test]
fn devices_with_equal_limits_have_one_daemon_and_mig_devices_one_each() {
    let mig_config = MigDeviceConfig { sharing: Some(Sharing::Mps(mps(Some(50)))) };
    let configs = [
        gpu(&["a", "b"], Sharing::Mps(mps(Some(50)))),
        gpu(&["c"], Sharing::Mps(mps(Some(20)))),
        gpu(&["d"], Sharing::Mps(MpsConfig { multi_user: true, ..mps(Some(50)) })),
        config(&["m1", "m2"], OpaqueConfig::MigDevice(mig_config)),
    ];
    let devices = decided(&["a", "b", "c", "d", "m1", "m2", "e"], &configs).unwrap();
    let names: Vec<_> =
        daemons(&devices).into_iter().map(|it| it.map(|mps| mps.daemon.as_str())).collect();
    assert_eq!(names[0], names[1]);
    let distinct: std::collections::BTreeSet<_> = names.iter().flatten().collect();
    assert_eq!(distinct.len(), 5, "{names:?}");
    let prefix = "c-00000000-0000-4000-";
    assert!(distinct.iter().all(|name| name.starts_with(prefix)), "{names:?}");
    assert_eq!(names[6], None);
}

#[test]
fn a_memory_limit_is_the_devices_own_or_the_default() {
    let config = MpsConfig {
        default_pinned_device_memory_limit: Some(10 * GIB),
        default_per_device_pinned_memory_limit: [
            ("GPU-c".to_owned(), 5 * GIB),
            ("0".to_owned(), 3 * GIB),
        ]
        .into(),
        ..mps(None)
    };
    let configs = [gpu(&[], Sharing::Mps(config))];
    let devices = decided(&["a", "b", "c"], &configs).unwrap();
    let memory: Vec<_> =
        daemons(&devices).into_iter().map(|it| it.unwrap().memory_limit_mib).collect();
    assert_eq!(memory, [Some(3 << 10), Some(10 << 10), Some(5 << 10)]);
}

#[test]
fn a_limit_for_a_device_that_the_claim_has_not_is_refused() {
    for key in ["2", "GPU-z"] {
        let limits = [(key.to_owned(), GIB)].into();
        let config = MpsConfig { default_per_device_pinned_memory_limit: limits, ..mps(None) };
        let configs = [gpu(&[], Sharing::Mps(config))];
        let refusal = decided(&["a", "b"], &configs).unwrap_err();
        assert_eq!(refusal.reason(), "InvalidConfig");
        assert!(refusal.to_string().contains(key), "{refusal}");
    }
}

#[test]
fn a_claim_that_does_not_have_the_gpu_alone_cannot_change_it() {
    let admin = AllocatedDevice { admin_access: true, ..result("a") };
    let part = AllocatedDevice { share_id: Some("s".to_owned()), ..result("a") };
    let share = HeldKind::Share(HeldShare { memory_bytes: 1 << 30, compute_milli_percent: 0 });
    for sharing in [Sharing::TimeSlicing(TimeSlice::Long), Sharing::Mps(mps(None))] {
        let configs = [gpu(&["a"], sharing)];
        let refusal = check(&configs, &admin, &HeldKind::Whole).unwrap_err();
        assert_eq!(refusal.reason(), "NotYetSupported");
        let unlimited = HeldKind::Share(HeldShare { memory_bytes: 0, compute_milli_percent: 0 });
        let refusal = check(&configs, &part, &unlimited).unwrap_err();
        assert!(refusal.to_string().contains("a share of a GPU"), "{refusal}");
        // A share of all of it is the claim's alone.
        check(&configs, &part, &HeldKind::Whole).unwrap();
        check(&configs, &result("a"), &HeldKind::Whole).unwrap();
    }
    // With a guard, a time slice is the share's quantum.
    check(&[gpu(&["a"], Sharing::Mps(mps(None)))], &part, &share).unwrap_err();
    for (slice, quantum) in [
        (TimeSlice::Default, None),
        (TimeSlice::Short, Some(5)),
        (TimeSlice::Medium, Some(20)),
        (TimeSlice::Long, Some(100)),
    ] {
        let configs = [gpu(&["a"], Sharing::TimeSlicing(slice))];
        check(&configs, &part, &share).unwrap();
        assert_eq!(quantum_ms(&configs, "a").unwrap(), quantum);
        assert_eq!(quantum_ms(&configs, "b").unwrap(), None);
    }
    let configs = [gpu(&["a"], Sharing::TimeSlicing(TimeSlice::Default))];
    check(&configs, &admin, &HeldKind::Whole).unwrap();
}
