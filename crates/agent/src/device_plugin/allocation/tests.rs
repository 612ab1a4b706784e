use octavo_api::plugin_config::{SharedResource, SharingConfig, SharingStrategy};

use super::*;
use crate::device_plugin::resources::resources;
use crate::health::Health;
use crate::testing;

fn resource(config: &PluginConfig) -> Resource {
    resources(&testing::inventory(2), &Health::new(), config).unwrap().remove(0)
}

fn answer_for(ids: &[String], config: &PluginConfig) -> ContainerAllocateResponse {
    answered(ids, config).unwrap()
}

fn answered(
    ids: &[String],
    config: &PluginConfig,
) -> Result<ContainerAllocateResponse, AllocationError> {
    let nodes = |part: &GpuPart| vec![format!("/dev/nvidia{}", part.index)];
    let common = ["/dev/nvidiactl", "/dev/nvidia-uvm"].map(str::to_owned);
    let node = NodeFacts {
        common_nodes: &common,
        nodes: &nodes,
        extra_classes: if config.extra_nodes.is_empty() { &[] } else { &["gds"] },
        dev_root: "/run/driver/",
        has_channel: true,
        mps: &MpsFolder::at("/run/octavo/mps".into()),
        answer_id: "1-0".to_owned(),
    };
    answer(&resource(config), ids, config, &node)
}

fn lists(device_lists: &[DeviceList]) -> PluginConfig {
    PluginConfig { device_lists: device_lists.iter().copied().collect(), ..PluginConfig::default() }
}

fn replicas(strategy: SharingStrategy) -> PluginConfig {
    PluginConfig {
        sharing: Some(SharingConfig {
            strategy,
            rename_by_default: false,
            fail_requests_greater_than_one: strategy == SharingStrategy::Mps,
            resources: vec![SharedResource { name: "nvidia.com/gpu".to_owned(), replicas: 2 }],
        }),
        ..PluginConfig::default()
    }
}

#[test]
fn the_default_is_cdi_names_in_the_answer() {
    let found = answer_for(&[testing::uuid(1)], &PluginConfig::default());
    let name = format!("k8s.device-plugin.nvidia.com/gpu={}", testing::uuid(1));
    let wanted = ContainerAllocateResponse {
        cdi_devices: vec![CdiDevice { name }],
        ..ContainerAllocateResponse::default()
    };
    assert_eq!(found, wanted);
}

#[test]
fn annotations_have_all_names_under_a_key_of_this_answer() {
    let mut config = lists(&[DeviceList::CdiAnnotations]);
    config.imex = ImexChannel::IfPresent;
    config.extra_nodes = [ExtraNodes::Gds, ExtraNodes::Mofed].into();
    config.device_ids = DeviceIds::Index;
    let found = answer_for(&[testing::uuid(0), testing::uuid(1)], &config);
    let names = "k8s.device-plugin.nvidia.com/gpu=0,k8s.device-plugin.nvidia.com/gpu=1,\
                 k8s.device-plugin.nvidia.com/imex-channel=0,k8s.device-plugin.nvidia.com/gds=all";
    assert_eq!(found.annotations["cdi.k8s.io/nvidia-device-plugin_1-0"], names);
    assert_eq!(found.envs["NVIDIA_GDS"], "enabled");
    assert!(!names.contains("mofed"), "the node has no such nodes");
    assert!(found.cdi_devices.is_empty());
    config.cdi_annotation_prefix = "other/".to_owned();
    let found = answer_for(&[testing::uuid(0)], &config);
    assert!(found.annotations.contains_key("other/nvidia-device-plugin_1-0"));
}

#[test]
fn nvidia_s_toolkit_gets_a_variable_or_mounts() {
    let mut config = lists(&[DeviceList::Envvar]);
    config.imex = ImexChannel::IfPresent;
    let found = answer_for(&[testing::uuid(1), testing::uuid(0)], &config);
    let both = format!("{},{}", testing::uuid(1), testing::uuid(0));
    assert_eq!(found.envs["NVIDIA_VISIBLE_DEVICES"], both);
    assert_eq!(found.envs["NVIDIA_IMEX_CHANNELS"], "0");
    config.device_lists = [DeviceList::VolumeMounts].into();
    let found = answer_for(&[testing::uuid(0)], &config);
    assert_eq!(found.envs["NVIDIA_VISIBLE_DEVICES"], "/var/run/nvidia-container-devices");
    let paths: Vec<&str> = found.mounts.iter().map(|it| it.container_path.as_str()).collect();
    let own = format!("/var/run/nvidia-container-devices/{}", testing::uuid(0));
    assert_eq!(paths, [own.as_str(), "/var/run/nvidia-container-devices/imex/0"]);
    assert!(found.mounts.iter().all(|mount| mount.host_path == "/dev/null"));
}

#[test]
fn device_nodes_are_listed_if_asked_for_and_cdi_is_not_all() {
    let mut config = lists(&[DeviceList::Envvar, DeviceList::CdiCri]);
    config.pass_device_specs = true;
    let found = answer_for(&[testing::uuid(0), testing::uuid(1)], &config);
    let last = found.devices.last().unwrap();
    assert_eq!(found.devices.len(), 4);
    assert_eq!(last.container_path, "/dev/nvidia1");
    assert_eq!(
        (last.host_path.as_str(), last.permissions.as_str()),
        ("/run/driver/dev/nvidia1", "rw")
    );
    config.device_lists = [DeviceList::CdiCri].into();
    assert!(answer_for(&[testing::uuid(0)], &config).devices.is_empty());
}

#[test]
fn replicas_of_one_gpu_are_one_device() {
    let id = |replica: u32| format!("{}::{replica}", testing::uuid(0));
    let found = answer_for(&[id(0), id(1)], &replicas(SharingStrategy::TimeSlicing));
    assert_eq!(found.cdi_devices.len(), 1);
    let refused = answered(&[id(0), id(1)], &replicas(SharingStrategy::Mps)).unwrap_err();
    assert!(refused.to_string().contains("2 of nvidia.com/gpu are requested"), "{refused}");
    assert!(answered(&[id(1)], &replicas(SharingStrategy::Mps)).is_ok());
}

#[test]
fn a_replica_under_mps_is_a_client_of_the_daemon_of_its_resource() {
    let id = format!("{}::1", testing::uuid(0));
    let found = answer_for(std::slice::from_ref(&id), &replicas(SharingStrategy::Mps));
    let pipe = found.envs.get("CUDA_MPS_PIPE_DIRECTORY").map(String::as_str);
    assert_eq!(pipe, Some("/mps/nvidia.com/gpu/pipe"));
    let mounts: Vec<_> = found
        .mounts
        .iter()
        .map(|it| (it.host_path.as_str(), it.container_path.as_str(), it.read_only))
        .collect();
    let folder = "/run/octavo/mps/r-nvidia.com-gpu";
    let wanted = [
        (format!("{folder}/pipe"), "/mps/nvidia.com/gpu/pipe", true),
        (format!("{folder}/shm"), "/dev/shm", false),
    ];
    let wanted: Vec<_> = wanted.iter().map(|(host, own, ro)| (host.as_str(), *own, *ro)).collect();
    assert_eq!(mounts, wanted);
    let sliced = answer_for(&[id], &replicas(SharingStrategy::TimeSlicing));
    assert!(sliced.mounts.is_empty() && sliced.envs.is_empty());
}

#[test]
fn an_unknown_device_is_refused() {
    let refused = answered(&["GPU-x".to_owned()], &PluginConfig::default()).unwrap_err();
    assert!(refused.to_string().contains("nvidia.com/gpu has no device GPU-x"), "{refused}");
}
