use octavo_api::plugin_config::{PluginConfig, SharedResource, SharingConfig, SharingStrategy};
use octavo_gpu::NvLink;
use proptest::prelude::*;

use super::*;
use crate::device_plugin::resources::resources;
use crate::health::Health;
use crate::testing;

/// GPUs with these numbers of links between them.
fn linked_gpus(count: u32, links: &[(u32, u32, u32)]) -> Inventory {
    let mut inventory = testing::inventory(count);
    for gpu in &mut inventory.gpus {
        let peers: Vec<(u32, u32)> = links
            .iter()
            .filter_map(|(a, b, links)| match gpu.index {
                index if index == *a => Some((*b, *links)),
                index if index == *b => Some((*a, *links)),
                _ => None,
            })
            .collect();
        let all = peers.iter().map(|(_, links)| links).sum();
        gpu.nvlink = Some(NvLink { version: 4, links: all, switched: false, peers });
    }
    inventory
}

fn whole(inventory: &Inventory) -> Resource {
    resources(inventory, &Health::new(), &PluginConfig::default()).unwrap().remove(0)
}

fn shared(inventory: &Inventory, replicas: u32) -> Resource {
    let config = PluginConfig {
        sharing: Some(SharingConfig {
            strategy: SharingStrategy::TimeSlicing,
            rename_by_default: false,
            fail_requests_greater_than_one: false,
            resources: vec![SharedResource { name: "nvidia.com/gpu".to_owned(), replicas }],
        }),
        ..PluginConfig::default()
    };
    resources(inventory, &Health::new(), &config).unwrap().remove(0)
}

fn ids(indices: &[u32]) -> Vec<String> {
    indices.iter().map(|index| testing::uuid(*index)).collect()
}

fn chosen(inventory: &Inventory, available: &[u32], required: &[u32], size: usize) -> Vec<String> {
    let (available, required) = (ids(available), ids(required));
    let sets = (available.as_slice(), required.as_slice());
    let policy = AllocationPolicy::Distributed;
    preferred(inventory, &whole(inventory), policy, sets, size)
}

#[test]
fn gpus_with_the_most_links_between_them_come_first() {
    let inventory =
        linked_gpus(4, &[(0, 1, 1), (0, 2, 1), (1, 2, 1), (1, 3, 2), (2, 3, 2), (0, 3, 1)]);
    assert_eq!(chosen(&inventory, &[0, 1, 2, 3], &[], 2), ids(&[1, 3]));
    assert_eq!(chosen(&inventory, &[0, 1, 2], &[], 2), ids(&[0, 1]));
    assert_eq!(chosen(&inventory, &[0, 1, 2, 3], &[2], 2), ids(&[2, 3]));
    assert_eq!(chosen(&inventory, &[0, 1, 2, 3], &[], 3), ids(&[1, 2, 3]));
}

#[test]
fn without_links_gpus_of_one_root_complex_come_first() {
    let mut inventory = testing::inventory(4);
    inventory.gpus[0].pcie_root = Some("pci0000:00".to_owned());
    inventory.gpus[2].pcie_root = Some("pci0000:00".to_owned());
    assert_eq!(chosen(&inventory, &[0, 1, 2], &[], 2), ids(&[0, 2]));
    inventory.gpus.iter_mut().for_each(|gpu| gpu.pcie_root = None);
    inventory.gpus[0].numa_node = Some(1);
    assert_eq!(chosen(&inventory, &[0, 1, 2, 3], &[], 2), ids(&[1, 2]));
}

#[test]
fn replicas_are_spread_over_gpus_or_packed_on_few() {
    let inventory = testing::inventory(2);
    let resource = shared(&inventory, 3);
    let all: Vec<String> = resource.devices.iter().map(|device| device.id.clone()).collect();
    let take = |policy, available: &[String], size| {
        preferred(&inventory, &resource, policy, (available, &[]), size)
    };
    let gpu = |id: &String| id.split("::").next().unwrap().to_owned();
    let spread: Vec<String> =
        take(AllocationPolicy::Distributed, &all, 2).iter().map(gpu).collect();
    assert_eq!(spread, ids(&[0, 1]));
    let packed: Vec<String> = take(AllocationPolicy::Packed, &all, 2).iter().map(gpu).collect();
    assert_eq!(packed, ids(&[0, 0]));
    // A replica of GPU 0 is in use.
    let rest = &all[1..];
    assert_eq!(gpu(&take(AllocationPolicy::Distributed, rest, 1)[0]), testing::uuid(1));
    assert_eq!(gpu(&take(AllocationPolicy::Packed, rest, 1)[0]), testing::uuid(0));
}

#[test]
fn too_few_are_all_that_there_are_and_unknown_ids_are_no_devices() {
    let inventory = testing::inventory(2);
    let resource = whole(&inventory);
    let available = vec![testing::uuid(0), "GPU-other".to_owned()];
    let policy = AllocationPolicy::Distributed;
    let chosen = preferred(&inventory, &resource, policy, (&available, &[]), 2);
    assert_eq!(chosen, [testing::uuid(0)]);
}

#[test]
fn a_large_node_is_decided_without_trying_all_sets() {
    assert_eq!(sets(16, 8), 12_870);
    assert!(sets(32, 16) > MAX_SETS && sets(64, 60) > MAX_SETS);
    assert_eq!((sets(8, 8), sets(8, 0)), (1, 1));
    let inventory = linked_gpus(9, &[(7, 8, 3)]);
    assert_eq!(one_by_one(3, 2, &|set, next| u64::from(set.contains(&2) && next == 1)), [0, 1]);
    assert_eq!(chosen(&inventory, &(0..9).collect::<Vec<_>>(), &[], 2), ids(&[7, 8]));
}

proptest! {
    #[test]
    fn a_choice_has_the_required_and_only_free_devices(
        available in proptest::collection::btree_set(0_u32..8, 0..8),
        required in proptest::collection::btree_set(0_u32..8, 0..4),
        size in 0_usize..8,
    ) {
        let inventory = linked_gpus(8, &[(0, 1, 2), (1, 2, 1), (4, 5, 4), (6, 7, 1)]);
        let list = |set: &std::collections::BTreeSet<u32>| ids(&set.iter().copied().collect::<Vec<_>>());
        let (available, required) = (list(&available), list(&required));
        let sets = (available.as_slice(), required.as_slice());
        let resource = whole(&inventory);
        let chosen = preferred(&inventory, &resource, AllocationPolicy::Packed, sets, size);
        let all: std::collections::BTreeSet<&String> = available.iter().chain(&required).collect();
        prop_assert_eq!(chosen.len(), size.min(all.len()).max(required.len()));
        prop_assert!(required.iter().all(|id| chosen.contains(id)));
        prop_assert!(chosen.iter().all(|id| all.contains(id)));
        let distinct: std::collections::BTreeSet<&String> = chosen.iter().collect();
        prop_assert_eq!(distinct.len(), chosen.len());
    }
}
