//! Existing MIG instances on GPUs without dynamic MIG.

use octavo_api::names::TAINT_WITHDRAWN;

use super::*;
use crate::testing::mig;

fn inventory() -> Inventory {
    let mut gpu = mig::gpu(0, true);
    gpu.mig_instances = vec![mig::instance(3, 9, 0), mig::instance(11, 20, 6)];
    Inventory { gpus: vec![gpu, mig::gpu(1, false)], ..testing::inventory(0) }
}

fn reasons(inventory: &Inventory, made: &BTreeSet<MadeInstance>) -> Vec<&'static str> {
    let node = Node {
        inventory,
        health: &Health::new(),
        dynamic: &DynamicMig::None,
        made,
        shares: GpuShares::Memory,
        enforces_time: false,
    };
    notes(&node).into_iter().map(|note| note.reason).collect()
}

#[test]
fn mig_instance_device_has_uuid_and_memory_slice_capacities() {
    let devices = devices(&inventory(), &Health::new());
    assert_eq!(names(&devices), ["gpu-1", "gpu-0-mig-1g10gb-me-20-6", "gpu-0-mig-3g40gb-9-0"]);
    assert!(devices.iter().all(|device| device.consumes.is_empty()));
    let three = &devices[2];
    assert_eq!(three.attributes["uuid"], AttributeValue::String("MIG-3".to_owned()));
    assert_eq!(three.attributes["parentUUID"], AttributeValue::String(testing::uuid(0)));
    let capacity = three.capacity.iter().map(|(name, capacity)| (name, &capacity.value));
    let capacity = amounts(capacity);
    for slice in 0..4 {
        assert_eq!(capacity[&format!("memorySlice{slice}")], "1");
    }
    assert_eq!((capacity["memory"].as_str(), capacity.len()), ("40192Mi", 11));
    assert!(!three.allow_multiple);
    assert!(reasons(&inventory(), &BTreeSet::new()).is_empty());
}

#[test]
fn what_one_compute_instance_does_not_fill_is_not_offered() {
    let mut inventory = inventory();
    let instances = &mut inventory.gpus[0].mig_instances;
    let second = instances[1].compute_instances[0].clone();
    instances[0].compute_instances.push(second);
    instances[1].compute_instances.clear();
    assert_eq!(names(&devices(&inventory, &Health::new())), ["gpu-1"]);
    let reasons = reasons(&inventory, &BTreeSet::new());
    assert_eq!(reasons, ["GpuInMigMode", "MigInstanceNotOffered"]);
}

#[test]
fn a_gpu_in_mig_mode_without_an_instance_offers_nothing_and_says_so() {
    let mut inventory = inventory();
    inventory.gpus[0].mig_instances.clear();
    assert_eq!(names(&devices(&inventory, &Health::new())), ["gpu-1"]);
    assert_eq!(reasons(&inventory, &BTreeSet::new()), ["GpuInMigMode"]);
}

#[test]
fn what_the_agent_made_goes_with_its_claim_once_its_gpu_is_opted_out() {
    let (mut inventory, dynamic) = (inventory(), DynamicMig::None);
    let made = BTreeSet::from([(testing::uuid(0), 0, 4)]);
    let health = Health::new();
    let offer = |inventory: &Inventory, made| {
        offered(&Node {
            inventory,
            health: &health,
            dynamic: &dynamic,
            made,
            shares: GpuShares::Memory,
            enforces_time: false,
        })
        .devices
    };
    let devices = offer(&inventory, &made);
    assert_eq!(names(&devices), ["gpu-1", "gpu-0-mig-1g10gb-me-20-6", "gpu-0-mig-3g40gb-9-0"]);
    assert!(devices[1].taints.is_empty());
    assert_eq!(devices[2].taints[0].key, TAINT_WITHDRAWN);
    // The inventory may be older than the instance; the GPU is not whole nevertheless.
    inventory.gpus[0].mig = Some(Mig { enabled: false, pending: false });
    inventory.gpus[0].mig_instances.clear();
    assert_eq!(names(&offer(&inventory, &made)), ["gpu-1"]);
    assert_eq!(names(&offer(&inventory, &BTreeSet::new())), ["gpu-0", "gpu-1"]);
}

#[test]
fn a_sick_gpu_s_instances_are_tainted() {
    let state = testing::fenced(Reason::Lost, 0);
    let devices = devices(&inventory(), &[(testing::uuid(0), state)].into());
    let tainted: Vec<_> = devices.iter().map(|device| device.taints.len()).collect();
    assert_eq!(tainted, [0, 1, 1]);
}
