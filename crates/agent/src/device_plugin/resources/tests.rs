use octavo_api::plugin_config::{SharedResource, SharingConfig, SharingStrategy};

use octavo_health::reason::Reason;

use super::*;
use crate::testing::{self, mig};

fn offered(inventory: &Inventory, config: &PluginConfig) -> Vec<(String, Vec<String>)> {
    let resources = resources(inventory, &Health::new(), config).unwrap();
    let ids = |resource: &Resource| resource.devices.iter().map(|it| it.id.clone()).collect();
    resources.iter().map(|resource| (resource.name.clone(), ids(resource))).collect()
}

fn strategy(mig_strategy: MigStrategy) -> PluginConfig {
    PluginConfig { mig_strategy, ..PluginConfig::default() }
}

/// GPU 0 is whole; GPU 1 has two small MIG devices and a larger one.
fn mixed() -> Inventory {
    let mut inventory = mig::inventory(2);
    inventory.gpus[1] = mig::gpu(1, true);
    inventory.gpus[1].mig_instances =
        vec![mig::instance(1, 19, 0), mig::instance(2, 20, 1), mig::instance(5, 9, 4)];
    inventory
}

fn names(list: &[(String, Vec<String>)]) -> Vec<(&str, usize)> {
    list.iter().map(|(name, ids)| (name.as_str(), ids.len())).collect()
}

#[test]
fn gpus_are_one_resource_in_order_of_index_with_uuid_and_numa_node() {
    let inventory = testing::inventory(2);
    let mut health = Health::new();
    health.insert(testing::uuid(1), testing::fenced(Reason::Lost, 0));
    let found = resources(&inventory, &health, &PluginConfig::default()).unwrap();
    let [resource] = &found[..] else { panic!("{found:?}") };
    assert_eq!((resource.name.as_str(), resource.sharing), ("nvidia.com/gpu", None));
    let device = &resource.devices[0];
    assert_eq!((device.id.clone(), device.numa_node), (testing::uuid(0), Some(0)));
    assert_eq!((device.part.index.as_str(), device.is_healthy), ("0", true));
    assert!(!resource.devices[1].is_healthy);
    assert_eq!(resources(&testing::inventory(0), &health, &PluginConfig::default()), Ok(vec![]));
}

#[test]
fn each_strategy_offers_mig_devices_as_nvidia_s_plugin() {
    let inventory = mixed();
    let none = offered(&inventory, &strategy(MigStrategy::None));
    assert_eq!(names(&none), [("nvidia.com/gpu", 2)]);
    let found = offered(&inventory, &strategy(MigStrategy::Mixed));
    let wanted = [
        ("nvidia.com/gpu", 1),
        ("nvidia.com/mig-1g.10gb", 1),
        ("nvidia.com/mig-1g.10gb.me", 1),
        ("nvidia.com/mig-3g.40gb", 1),
    ];
    assert_eq!(names(&found), wanted);
    assert_eq!(found[1].1, ["MIG-1"]);
    let found = resources(&inventory, &Health::new(), &strategy(MigStrategy::Mixed)).unwrap();
    let part = &found[3].devices[0].part;
    assert_eq!((part.instance, part.gpu.clone()), (Some((5, 0)), testing::uuid(1)));
}

#[test]
fn under_single_all_devices_are_equal_or_there_is_a_reason() {
    let single = strategy(MigStrategy::Single);
    let error = |inventory: &Inventory| resources(inventory, &Health::new(), &single).unwrap_err();
    assert_eq!(error(&mixed()), MismatchedLayout::MixedModes);
    let mut inventory = mixed();
    inventory.gpus.remove(0);
    let several = error(&inventory);
    assert!(matches!(&several, MismatchedLayout::SeveralProfiles(found) if found.len() == 3));
    assert!(several.to_string().contains("1g.10gb, 1g.10gb+me, 3g.40gb"), "{several}");
    inventory.gpus[0].mig_instances = vec![mig::instance(1, 19, 0), mig::instance(2, 19, 1)];
    assert_eq!(names(&offered(&inventory, &single)), [("nvidia.com/gpu", 2)]);
    inventory.gpus[0].mig_instances.clear();
    assert_eq!(error(&inventory), MismatchedLayout::NoDevices { gpu: 1 });
    // Without MIG it is as none.
    assert_eq!(names(&offered(&testing::inventory(3), &single)), [("nvidia.com/gpu", 3)]);
}

#[test]
fn replicas_have_numbered_ids_and_the_name_that_is_asked_for() {
    let mut config = PluginConfig {
        sharing: Some(SharingConfig {
            strategy: SharingStrategy::TimeSlicing,
            rename_by_default: false,
            fail_requests_greater_than_one: false,
            resources: vec![SharedResource { name: "nvidia.com/gpu".to_owned(), replicas: 3 }],
        }),
        ..strategy(MigStrategy::Mixed)
    };
    let found = offered(&mixed(), &config);
    assert_eq!(names(&found)[..2], [("nvidia.com/gpu", 3), ("nvidia.com/mig-1g.10gb", 1)]);
    assert_eq!(found[0].1[2], format!("{}::2", testing::uuid(0)));
    config.sharing.as_mut().unwrap().rename_by_default = true;
    assert_eq!(names(&offered(&mixed(), &config))[0], ("nvidia.com/gpu.shared", 3));
}

#[test]
fn instances_that_people_divided_further_are_no_devices() {
    let mut inventory = mixed();
    let inner = MigComputeInstance { id: 1, uuid: "MIG-x".to_owned(), index: 7 };
    inventory.gpus[1].mig_instances[2].compute_instances.push(inner);
    let found = offered(&inventory, &strategy(MigStrategy::Mixed));
    assert!(!names(&found).iter().any(|(name, _)| name.contains("3g")), "{found:?}");
}

#[test]
fn only_resources_of_gpus_are_ours() {
    for name in [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-1g.5gb",
        "nvidia.com/mig-1g.5gb.shared",
    ] {
        assert!(is_gpu_resource(name), "{name}");
    }
    for name in ["nvidia.com/hostdev", "nvidia.com/gpus", "amd.com/gpu", "nvidia.com/pgpu"] {
        assert!(!is_gpu_resource(name), "{name}");
    }
}
