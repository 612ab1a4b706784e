use octavo_api::plugin_config::SharedResource;

use super::*;
use crate::feature_labels::vgpu::Vgpu;
use crate::testing::{self, mig};

fn machine() -> MachineFacts {
    MachineFacts {
        machine_type: "DGX H100 (rev. B)".to_owned(),
        pci_classes: vec![CLASS_3D, CLASS_3D],
        vgpus: Vec::new(),
        started: 1_764_000_000,
    }
}

fn config(mig_strategy: MigStrategy, shared: &[&str], rename: bool) -> PluginConfig {
    let resources =
        shared.iter().map(|name| SharedResource { name: (*name).to_owned(), replicas: 4 });
    let sharing = (!shared.is_empty()).then(|| SharingConfig {
        strategy: SharingStrategy::TimeSlicing,
        rename_by_default: rename,
        fail_requests_greater_than_one: false,
        resources: resources.collect(),
    });
    PluginConfig { mig_strategy, sharing, ..PluginConfig::default() }
}

/// The values of these keys, which have the prefix `nvidia.com/`; absent ones are `-`.
fn values<'a>(labels: &'a Labels, keys: &[&str]) -> Vec<&'a str> {
    let value = |key: &&str| labels.get(&format!("nvidia.com/{key}")).map_or("-", String::as_str);
    keys.iter().map(value).collect()
}

#[test]
fn whole_gpus_have_all_their_labels() {
    let inventory = testing::inventory(2);
    let labels = labels(&inventory, &config(MigStrategy::None, &[], false), &machine());
    let lines = labels.iter().map(|(key, value)| [key, "=", value, "\n"].concat());
    let text: String = lines.collect();
    let wanted = "\
nvidia.com/cuda.driver-version.full=580.95.05
nvidia.com/cuda.driver-version.major=580
nvidia.com/cuda.driver-version.minor=95
nvidia.com/cuda.driver-version.revision=05
nvidia.com/cuda.driver.major=580
nvidia.com/cuda.driver.minor=95
nvidia.com/cuda.driver.rev=05
nvidia.com/cuda.runtime-version.full=13.0
nvidia.com/cuda.runtime-version.major=13
nvidia.com/cuda.runtime-version.minor=0
nvidia.com/cuda.runtime.major=13
nvidia.com/cuda.runtime.minor=0
nvidia.com/gfd.timestamp=1764000000
nvidia.com/gpu.clique=9c6f1f3e-0000-0000-0000-000000000001.1
nvidia.com/gpu.compute.major=9
nvidia.com/gpu.compute.minor=0
nvidia.com/gpu.count=2
nvidia.com/gpu.family=hopper
nvidia.com/gpu.machine=DGX-H100-rev.-B
nvidia.com/gpu.memory=81559
nvidia.com/gpu.mode=compute
nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3
nvidia.com/gpu.replicas=1
nvidia.com/gpu.sharing-strategy=none
nvidia.com/mig.capable=false
nvidia.com/mps.capable=false
nvidia.com/vgpu.present=false
";
    assert_eq!(text, wanted);
}

#[test]
fn shared_gpus_say_so_unless_the_resource_has_a_name_of_its_own() {
    let inventory = testing::inventory(2);
    let keys = ["gpu.product", "gpu.count", "gpu.replicas", "gpu.sharing-strategy"];
    let shared = config(MigStrategy::None, &["nvidia.com/gpu"], false);
    let found = labels(&inventory, &shared, &machine());
    assert_eq!(values(&found, &keys), ["NVIDIA-H100-80GB-HBM3-SHARED", "2", "4", "time-slicing"]);
    let renamed = config(MigStrategy::None, &["nvidia.com/gpu"], true);
    let found = labels(&inventory, &renamed, &machine());
    assert_eq!(values(&found, &keys), ["NVIDIA-H100-80GB-HBM3", "2", "4", "time-slicing"]);
}

#[test]
fn mig_devices_of_several_kinds_have_labels_of_their_resources() {
    let mut inventory = mig::inventory(2);
    inventory.gpus[1] = mig::gpu(1, true);
    inventory.gpus[1].mig_instances =
        vec![mig::instance(1, 19, 0), mig::instance(2, 20, 1), mig::instance(5, 9, 4)];
    let shared = config(MigStrategy::Mixed, &["nvidia.com/mig-3g.40gb"], false);
    let found = labels(&inventory, &shared, &machine());
    let keys = ["gpu.product", "gpu.count", "gpu.replicas", "mig.strategy", "mig.capable"];
    assert_eq!(values(&found, &keys), ["NVIDIA-H100-80GB-HBM3", "2", "1", "mixed", "true"]);
    let keys = ["product", "count", "replicas", "sharing-strategy", "slices.gi", "slices.ci"];
    let of = |resource: &str| {
        let keys: Vec<String> = keys.iter().map(|key| format!("{resource}.{key}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        values(&found, &keys).join(" ")
    };
    assert_eq!(of("mig-1g.10gb"), "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb 1 1 none 1 1");
    assert_eq!(of("mig-1g.10gb.me"), "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb.me 1 1 none 1 1");
    let large = "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb-SHARED 1 4 time-slicing 3 3";
    assert_eq!(of("mig-3g.40gb"), large);
    // Without a strategy a GPU in MIG mode is a GPU.
    let found = labels(&inventory, &config(MigStrategy::None, &[], false), &machine());
    assert_eq!(
        values(&found, &["mig.strategy", "mig-1g.10gb.count", "gpu.count"]),
        ["-", "-", "2"]
    );
}

#[test]
fn mig_devices_of_one_kind_are_the_node_s_gpus_and_others_are_invalid() {
    let mut inventory = mig::inventory(1);
    inventory.gpus[0] = mig::gpu(0, true);
    inventory.gpus[0].mig_instances = vec![mig::instance(1, 9, 0), mig::instance(2, 9, 4)];
    let single = config(MigStrategy::Single, &[], false);
    let keys = [
        "gpu.product",
        "gpu.count",
        "gpu.replicas",
        "gpu.sharing-strategy",
        "gpu.memory",
        "gpu.slices.gi",
        "gpu.family",
    ];
    let found = labels(&inventory, &single, &machine());
    let memory = inventory.gpus[0].mig_profiles.iter().find(|it| it.id == 9).unwrap().memory_mib;
    let product = "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb";
    assert_eq!(
        values(&found, &keys),
        [product, "2", "1", "none", &memory.to_string(), "3", "hopper"]
    );
    let invalid = ["NVIDIA-H100-80GB-HBM3-MIG-INVALID", "0", "0", "", "0", "-", "hopper"];
    let mut several = inventory.clone();
    several.gpus[0].mig_instances[1] = mig::instance(2, 19, 4);
    let mut empty = inventory.clone();
    empty.gpus[0].mig_instances.clear();
    let mut mixed = inventory;
    mixed.gpus.push(mig::gpu(1, false));
    for inventory in [several, empty, mixed] {
        assert_eq!(values(&labels(&inventory, &single, &machine()), &keys), invalid);
    }
}

#[test]
fn what_is_unknown_or_virtual_or_absent_has_its_own_labels() {
    let mut machine = machine();
    machine.machine_type.clear();
    machine.pci_classes = vec![CLASS_3D, CLASS_DISPLAY];
    machine.vgpus = vec![Vgpu {
        host_driver_version: "570.124".to_owned(),
        host_driver_branch: "r570_00".to_owned(),
    }];
    let mut config = config(MigStrategy::None, &[], false);
    config.labels.no_timestamp = true;
    let mut inventory = testing::inventory(1);
    inventory.versions.driver = "580.95".to_owned();
    inventory.gpus[0].compute_capability = (12, 0);
    let found = labels(&inventory, &config, &machine);
    let keys = [
        "gpu.machine",
        "gpu.mode",
        "vgpu.present",
        "vgpu.host-driver-version",
        "vgpu.host-driver-branch",
        "gfd.timestamp",
        "cuda.driver.rev",
        "gpu.family",
    ];
    let wanted = ["unknown", "unknown", "true", "570.124", "r570_00", "-", "", "blackwell"];
    assert_eq!(values(&found, &keys), wanted);
    machine.vgpus.clear();
    let none = labels(&testing::inventory(0), &config, &machine);
    assert_eq!(
        none.into_iter().collect::<Vec<_>>(),
        [("nvidia.com/vgpu.present".to_owned(), "false".to_owned())]
    );
}
