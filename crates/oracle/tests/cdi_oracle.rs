//! containerd's own CDI library reads the agent's specs, validates them and finds every device.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use futures::future::BoxFuture;
use octavo_agent::claims::{
    AllocatedClaim, ClaimReader, Claims, DeviceKind, KnownDevice, ReadError, SilentReporter,
    claim_of,
};
use octavo_enforcement::backend::MemoryEnforcement;
use octavo_gpu::mig::{
    MigComputeInstance, MigInstance, MigPlacement, MigProfile, MigShape, MigVariant,
};
use octavo_node::{ClaimRef, NodePaths};
use octavo_oracle::cdi_reader;
use serde_json::json;

const UID: &str = "0d3b9a2e-8a39-4a3c-9d0c-6d1f6b1a2c3d";

/// An API server with one claim.
struct One(serde_json::Value);

impl ClaimReader for One {
    fn read<'a>(
        &'a self,
        _: &'a ClaimRef,
    ) -> BoxFuture<'a, Result<Option<AllocatedClaim>, ReadError>> {
        let object = serde_json::from_value(self.0.clone()).unwrap();
        Box::pin(async move { Ok(Some(claim_of(object))) })
    }
}

#[test]
fn containerd_reads_the_spec_and_finds_every_device() {
    let reader = cdi_reader().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(compare(&reader));
}

async fn compare(cdi_devices: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    for part in ["proc/sys/kernel/random", "driver/usr/lib64"] {
        fs::create_dir_all(at(part)).unwrap();
    }
    fs::write(at("proc/sys/kernel/random/boot_id"), "boot").unwrap();
    let devices = "Character devices:\n195 nvidia\n236 nvidia-caps\n508 nvidia-uvm\n";
    fs::write(at("proc/devices"), devices).unwrap();
    fs::write(at("driver/usr/lib64/libcuda.so.580.95.05"), "").unwrap();
    symlink("libcuda.so.580.95.05", at("driver/usr/lib64/libcuda.so.1")).unwrap();
    let paths = NodePaths {
        driver_root: "/run/nvidia/driver".into(),
        driver_root_seen: at("driver"),
        proc_root: at("proc"),
        sys_root: at("sys"),
        cgroup_root: at("sys/fs/cgroup"),
        kubelet_root: at("kubelet"),
        device_plugin_root: at("kubelet/device-plugins"),
        cdi_root: at("cdi"),
        run_root: at("run"),
        hook_path: "/octavo".into(),
        share_tmpfs: false,
        mounts: Vec::new(),
    };
    let caps = at("proc/driver/nvidia/capabilities/gpu2/mig/gi7/ci0");
    fs::create_dir_all(&caps).unwrap();
    for (folder, minor) in [(caps.parent().unwrap(), 66), (caps.as_path(), 67)] {
        let text = format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
        fs::write(folder.join("access"), text).unwrap();
    }
    // A whole GPU, two shares of another, and an instance of a third.
    let share = ["0b8c1d70-5a5e-4f0c-9a63-1f0c1d2e3f40", "7a6b5c4d-0000-4000-8000-000000000001"];
    let results = [
        ("gpu-0", None),
        ("gpu-1", Some(share[0])),
        ("gpu-1", Some(share[1])),
        ("gpu-2-mig-1g10gb-19-0", None),
    ];
    let results = results.map(|(device, share)| {
        let mut result =
            json!({"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node", "device": device});
        if let Some(share) = share {
            result["shareID"] = share.into();
            result["consumedCapacity"] = json!({"memory": "10Gi", "compute": "12500m"});
        }
        result
    });
    let reader = One(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ns", "uid": UID}, "spec": {},
        "status": {"allocation": {"devices": {"results": results}}},
    }));
    let (claims, _) =
        Claims::open(paths, "node".to_owned(), Arc::new(reader), Arc::new(SilentReporter)).unwrap();
    claims.set_memory_enforcement(MemoryEnforcement::Off);
    let known = (0..3).map(|minor| KnownDevice {
        name: format!("gpu-{minor}"),
        uuid: format!("GPU-{minor}"),
        minor,
        pci: format!("0000:0{minor}:00.0"),
        kind: DeviceKind::Gpu {
            memory_bytes: 80 << 30,
            reserved_bytes: 0,
            shares: octavo_agent::config::GpuShares::Memory,
        },
    });
    let mut known: Vec<_> = known.collect();
    let name = "gpu-2-mig-1g10gb-19-0".to_owned();
    known.push(KnownDevice { name, kind: instance(), ..known[2].clone() });
    claims.set_devices("580.95.05", known).await;
    let claim = ClaimRef { namespace: "ns".to_owned(), name: "c".to_owned(), uid: UID.to_owned() };
    let prepared = claims.prepare(&claim).await.unwrap();
    assert_eq!(prepared.len(), 4);

    let path = at(&format!("cdi/k8s.gpu.nvidia.com-claim_{UID}.yaml"));
    let output = Command::new(cdi_devices).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let offer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(offer["kind"], "k8s.gpu.nvidia.com/claim");
    let offered: BTreeSet<&str> =
        offer["devices"].as_array().unwrap().iter().filter_map(|name| name.as_str()).collect();
    let named: BTreeSet<&str> = prepared
        .iter()
        .flat_map(|device| &device.cdi_ids)
        .map(|id| id.strip_prefix("k8s.gpu.nvidia.com/claim=").expect("the claim's kind"))
        .collect();
    assert_eq!(named.len(), 4);
    assert_eq!(offered, named);
}

fn instance() -> DeviceKind {
    let placement = MigPlacement { start: 0, size: 1 };
    let profile = MigProfile {
        number: 0,
        id: 19,
        name: "1g.10gb".to_owned(),
        shape: MigShape { compute_slices: 1, gpu_slices: 1, variant: MigVariant::Plain },
        memory_mib: 9856,
        instances: 7,
        multiprocessors: 16,
        copy_engines: 1,
        decoders: 1,
        encoders: 0,
        jpeg_engines: 1,
        ofa_engines: 0,
        placements: vec![placement],
    };
    let compute = MigComputeInstance { id: 0, uuid: "MIG-1".to_owned(), index: 0 };
    let instance = MigInstance {
        gpu_instance: 7,
        profile_id: 19,
        placement,
        compute_instances: vec![compute],
    };
    DeviceKind::MigInstance { profile, instance }
}
