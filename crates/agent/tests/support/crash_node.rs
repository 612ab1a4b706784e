//! A simulated node whose agent is killed: the test runs itself again as a child on the same node, which dies at a named point.

#![allow(dead_code, reason = "no test program uses all of it")]

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use futures::future::BoxFuture;
use octavo_agent::claims::{
    AllocatedClaim, ClaimReader, Claims, DeviceKind, KnownDevice, MigManagement, ReadError,
    claim_of,
};
use octavo_enforcement::backend::MemoryEnforcement;
use octavo_gpu::nvml::{LIBRARY_NAME, Nvml};
use octavo_gpu::{ComputeMode, Driver, Gpu, Inventory};
use octavo_machine::{Machine, State};
use octavo_node::ClaimRef;
use serde_json::{Value, json};

use crate::opened::{self, opened};

/// Instances that the claims of a test have.
pub(crate) const LARGE: &str = "gpu-0-mig-3g40gb-9-4";
const SMALL: &str = "gpu-0-mig-1g10gb-19-0";

/// Requests of the claims of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Share,
    Mig,
    /// Two instances of one GPU.
    Pair,
    /// A whole GPU with a time slice.
    TimeSlice,
    /// A whole GPU with an MPS daemon.
    Mps,
}

/// Claims as files, one a name, for parent and child alike.
pub(crate) struct Folder(PathBuf);

impl ClaimReader for Folder {
    fn read<'a>(
        &'a self,
        claim: &'a ClaimRef,
    ) -> BoxFuture<'a, Result<Option<AllocatedClaim>, ReadError>> {
        Box::pin(async move {
            let Ok(text) = fs::read(self.0.join(&claim.name)) else { return Ok(None) };
            let object = serde_json::from_slice(&text).map_err(|e| ReadError(e.to_string()))?;
            Ok(Some(claim_of(object)))
        })
    }
}

/// A simulated node's folder.
pub(crate) struct Node(pub(crate) PathBuf);

/// The node's agent, with the driver that it must keep open.
pub(crate) struct Agent {
    pub(crate) claims: Claims,
    pub(crate) driver: Arc<dyn Driver>,
}

impl Node {
    pub(crate) fn new(folder: &Path) -> Self {
        for part in ["driver/usr/lib64", "proc/sys/kernel/random", "claims", "sys", "dev"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        fs::create_dir_all(folder.join("proc/driver/nvidia/capabilities/mig")).unwrap();
        fs::write(folder.join("proc/sys/kernel/random/boot_id"), "boot-1").unwrap();
        fs::write(folder.join("proc/devices"), opened::PROC_DEVICES).unwrap();
        let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
        let mut machine = Machine::read(&machines.join("dgx-h100.yaml")).unwrap();
        machine.gpus.truncate(1);
        machine.instantiate("node");
        let driver = folder.join("driver/usr/lib64");
        fs::write(driver.join("machine.yaml"), machine.to_yaml().unwrap()).unwrap();
        fs::copy(octavo_testkit::simulated_nvml(), driver.join(LIBRARY_NAME)).unwrap();
        let smi = octavo_testkit::simulated_program("nvidia-smi");
        fs::create_dir_all(folder.join("driver/usr/bin")).unwrap();
        fs::copy(smi, folder.join("driver/usr/bin/nvidia-smi")).unwrap();
        Self(folder.to_owned())
    }

    pub(crate) async fn start(&self) -> Agent {
        let at = |path: &str| self.0.join(path);
        let library = at("driver/usr/lib64").join(LIBRARY_NAME);
        let driver: Arc<dyn Driver> = Arc::new(Nvml::open(&library, &at("sys")).unwrap());
        let claims = opened(&self.0, || Folder(at("claims"))).await;
        claims.set_memory_enforcement(MemoryEnforcement::Off);
        claims.set_driver(Some(&driver)).await;
        let gpus = Inventory::read(&*driver).unwrap().gpus;
        let known = gpus.iter().flat_map(known).collect();
        let cut = gpus.into_iter().map(|gpu| gpu.uuid).collect();
        claims.set_mig_management(MigManagement { gpus: Some(cut), ..MigManagement::default() });
        claims.set_devices("580.95.05", known).await;
        Agent { claims, driver }
    }

    pub(crate) fn allocate(&self, name: &str, kind: Kind) -> ClaimRef {
        let mut results = match kind {
            Kind::Share => vec![json!({
                "device": "gpu-0", "shareID": format!("share-of-{name}"),
                "consumedCapacity": {"memory": "50Gi", "compute": "25"},
            })],
            Kind::Mig => vec![json!({"device": LARGE})],
            Kind::Pair => vec![json!({"device": SMALL}), json!({"device": LARGE})],
            Kind::TimeSlice | Kind::Mps => vec![json!({"device": "gpu-0"})],
        };
        for result in &mut results {
            for (field, value) in
                [("request", "gpu"), ("driver", "gpu.nvidia.com"), ("pool", "node")]
            {
                result[field] = Value::from(value);
            }
        }
        let sharing = match kind {
            Kind::TimeSlice => {
                json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}})
            }
            Kind::Mps => json!({"strategy": "MPS", "mpsConfig": {}}),
            Kind::Share | Kind::Mig | Kind::Pair => Value::Null,
        };
        let parameters = json!({
            "apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": sharing,
        });
        let config = if sharing.is_null() {
            json!([])
        } else {
            json!([{
                "source": "FromClaim", "requests": [],
                "opaque": {"driver": "gpu.nvidia.com", "parameters": parameters},
            }])
        };
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-of-{name}")},
            "spec": {},
            "status": {"allocation": {"devices": {"results": results, "config": config}}},
        });
        fs::write(self.0.join("claims").join(name), object.to_string()).unwrap();
        claim(name)
    }

    pub(crate) fn delete(&self, claim: &ClaimRef) {
        fs::remove_file(self.0.join("claims").join(&claim.name)).unwrap();
    }

    /// Everything that claims left, half-written files included.
    pub(crate) fn files(&self) -> Vec<String> {
        let folders = ["kubelet/plugins/gpu.nvidia.com/checkpoint", "cdi", "run/octavo/shares"];
        let entries = folders.iter().filter_map(|folder| fs::read_dir(self.0.join(folder)).ok());
        let mut names: Vec<_> = entries
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !matches!(name.as_str(), "lock" | "boot" | "kept"))
            .collect();
        names.sort();
        names
    }

    /// Runs an action in a child of this test that dies at a point.
    pub(crate) fn kill_at(&self, test: &str, action: &str, point: &str) {
        let status = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env("OCTAVO_CRASH_AT", point)
            .env("OCTAVO_TEST_ACTION", action)
            .env("OCTAVO_TEST_NODE", &self.0)
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&status.stdout).into_owned();
        assert_eq!(status.status.signal(), Some(9), "{point} was not reached: {output}");
    }
}

impl Agent {
    pub(crate) fn uuid(&self) -> String {
        Inventory::read(&*self.driver).unwrap().gpus[0].uuid.clone()
    }

    /// First memory slices of the GPU's instances.
    pub(crate) fn slices(&self) -> Vec<u32> {
        let instances = self.driver.mig_instances(&self.uuid()).unwrap();
        instances.iter().map(|instance| instance.placement.start).collect()
    }

    /// Compute mode and time slice of the GPU.
    pub(crate) fn sharing(&self, node: &Node) -> (ComputeMode, u32) {
        let state = State::read(&node.0.join("driver/usr/lib64/state.json")).unwrap();
        let slice = state.gpus.get(&0).map_or(0, |gpu| gpu.time_slice);
        (self.driver.compute_mode(&self.uuid()).unwrap(), slice)
    }

    pub(crate) fn is_on(&self) -> bool {
        let inventory = Inventory::read(&*self.driver).unwrap();
        inventory.gpus[0].mig.is_some_and(|mig| mig.enabled)
    }
}

pub(crate) fn claim(name: &str) -> ClaimRef {
    let owned = str::to_owned;
    ClaimRef { namespace: owned("ns"), name: owned(name), uid: format!("uid-of-{name}") }
}

/// Allocations of a GPU.
pub(crate) fn known(gpu: &Gpu) -> Vec<KnownDevice> {
    let shares = octavo_agent::config::GpuShares::Memory;
    let whole = KnownDevice {
        name: format!("gpu-{}", gpu.minor),
        uuid: gpu.uuid.clone(),
        minor: gpu.minor,
        pci: gpu.pci.to_string(),
        kind: DeviceKind::Gpu { memory_bytes: gpu.memory_bytes, reserved_bytes: 0, shares },
    };
    let places = gpu.mig_profiles.iter().flat_map(|profile| {
        profile.placements.iter().map(|placement| KnownDevice {
            name: format!(
                "gpu-{}-mig-{}-{}-{}",
                gpu.minor,
                profile.name.replace('.', "").replace('+', "-"),
                profile.id,
                placement.start
            ),
            kind: DeviceKind::MigPlacement { profile: profile.clone(), placement: *placement },
            ..whole.clone()
        })
    });
    [vec![whole.clone()], places.collect()].concat()
}

/// Does a child's work where this process is one.
pub(crate) async fn is_child() -> bool {
    let Some(folder) = std::env::var_os("OCTAVO_TEST_NODE") else { return false };
    let agent = Node(folder.into()).start().await;
    match std::env::var("OCTAVO_TEST_ACTION").as_deref() {
        Ok("prepare") => drop(agent.claims.prepare(&claim("a")).await.unwrap()),
        Ok("unprepare") => agent.claims.unprepare(&claim("a")).await.unwrap(),
        _ => {}
    }
    true
}
