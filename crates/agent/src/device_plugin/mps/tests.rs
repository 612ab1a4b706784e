use octavo_api::plugin_config::{MigStrategy, PluginConfig, SharedResource, SharingConfig};

use super::*;
use crate::device_plugin::resources::resources;
use crate::health::Health;
use crate::testing::{self, mig};

fn config(shared: &[(&str, u32)], rename_by_default: bool) -> PluginConfig {
    let resource = |(name, replicas): &(&str, u32)| SharedResource {
        name: (*name).to_owned(),
        replicas: *replicas,
    };
    PluginConfig {
        mig_strategy: MigStrategy::Mixed,
        sharing: Some(SharingConfig {
            strategy: SharingStrategy::Mps,
            rename_by_default,
            fail_requests_greater_than_one: true,
            resources: shared.iter().map(resource).collect(),
        }),
        ..PluginConfig::default()
    }
}

fn found(
    inventory: &Inventory,
    config: &PluginConfig,
) -> Result<BTreeMap<String, MpsSettings>, String> {
    daemons(&resources(inventory, &Health::new(), config).unwrap(), inventory)
}

#[test]
fn whole_gpus_have_one_daemon_with_an_equal_part_for_each_replica() {
    let inventory = testing::inventory(2);
    let daemons = found(&inventory, &config(&[("nvidia.com/gpu", 10)], true)).unwrap();
    let limit = 81_559 / 10;
    let spec = MpsSettings {
        devices: vec![testing::uuid(0), testing::uuid(1)],
        active_thread_percentage: Some(10),
        memory_limits_mib: [(testing::uuid(0), limit), (testing::uuid(1), limit)].into(),
        ..MpsSettings::default()
    };
    assert_eq!(daemons, BTreeMap::from([("r-nvidia.com-gpu.shared".to_owned(), spec)]));
    assert_eq!(found(&inventory, &config(&[], false)), Ok(BTreeMap::new()));
}

#[test]
fn each_mig_device_has_a_daemon_and_its_memory_is_divided() {
    let mut inventory = mig::inventory(2);
    inventory.gpus[1] = mig::gpu(1, true);
    inventory.gpus[1].mig_instances = vec![mig::instance(1, 19, 0), mig::instance(5, 9, 4)];
    let shared = config(&[("nvidia.com/mig-3g.40gb", 4)], false);
    let daemons = found(&inventory, &shared).unwrap();
    let [(name, spec)] = &daemons.into_iter().collect::<Vec<_>>()[..] else { panic!("one daemon") };
    assert_eq!((name.as_str(), spec.devices.as_slice()), ("r-MIG-5", &["MIG-5".to_owned()][..]));
    let profile = inventory.gpus[1].mig_profiles.iter().find(|profile| profile.id == 9).unwrap();
    assert_eq!(spec.memory_limits_mib, [("MIG-5".to_owned(), profile.memory_mib / 4)].into());
    assert_eq!(spec.active_thread_percentage, Some(25));
}

#[test]
fn more_replicas_than_clients_of_a_daemon_are_refused() {
    let mut inventory = testing::inventory(1);
    let replicas = |count| config(&[("nvidia.com/gpu", count)], false);
    assert!(found(&inventory, &replicas(48)).is_ok());
    let refused = found(&inventory, &replicas(49)).unwrap_err();
    assert!(refused.contains("nvidia.com/gpu has 49 replicas"), "{refused}");
    // Volta's daemons have as many clients as those of later GPUs.
    inventory.gpus[0].compute_capability = (7, 0);
    assert!(found(&inventory, &replicas(48)).is_ok());
    inventory.gpus[0].compute_capability = (6, 1);
    assert!(found(&inventory, &replicas(17)).unwrap_err().contains("serves 16 programs"));
    assert!(found(&inventory, &replicas(16)).is_ok());
}
