use std::collections::BTreeMap;

use octavo_dra::{AllowedAmounts, AttributeValue, Quantity, TaintEffect};
use octavo_gpu::{FabricState, Mig};

use super::*;
use octavo_health::decide::Fence;
use octavo_health::reason::Reason;
use octavo_health::signal::RecoveryAction;
use octavo_health::state::{Effect, State};

use crate::health::GpuState;
use crate::testing;

mod dynamic_mig;
mod instances;

/// The offer of a node without dynamic MIG.
fn devices(inventory: &Inventory, health: &Health) -> Vec<Device> {
    devices_with(inventory, health, GpuShares::Memory)
}

fn devices_with(inventory: &Inventory, health: &Health, shares: GpuShares) -> Vec<Device> {
    devices_of_node(inventory, health, shares, false)
}

fn devices_of_node(
    inventory: &Inventory,
    health: &Health,
    shares: GpuShares,
    enforces_time: bool,
) -> Vec<Device> {
    let (dynamic, made) = (DynamicMig::None, BTreeSet::new());
    let offered =
        offered(&Node { inventory, health, dynamic: &dynamic, made: &made, shares, enforces_time });
    assert_eq!((offered.counters.len(), offered.plain.len()), (0, 0));
    offered.devices
}

fn one(health: &Health) -> Device {
    devices(&testing::inventory(1), health).remove(0)
}

fn names(devices: &[Device]) -> Vec<&str> {
    devices.iter().map(|device| device.name.as_str()).collect()
}

fn amounts<'a>(
    amounts: impl IntoIterator<Item = (&'a String, &'a Quantity)>,
) -> BTreeMap<String, String> {
    amounts.into_iter().map(|(name, amount)| (name.clone(), amount.to_string())).collect()
}

fn state() -> GpuState {
    GpuState::default()
}

#[test]
fn a_node_may_count_shares_or_have_no_limit() {
    let capacity = |shares| {
        let inventory = testing::inventory(1);
        devices_with(&inventory, &Health::new(), shares).remove(0).capacity
    };
    let counted = capacity(GpuShares::Count(4.try_into().unwrap()));
    let shares = &counted["shares"];
    let policy = shares.policy.as_ref().unwrap();
    assert_eq!((shares.value, policy.default), (Quantity::decimal(4), Some(Quantity::decimal(1))));
    let AllowedAmounts::Range { min, max, step } = &policy.allowed else { panic!("no range") };
    let one = Quantity::decimal(1);
    assert_eq!((*min, *max, *step), (one, Some(Quantity::decimal(4)), Some(one)));
    // A range with a step has room for one.
    let single = &capacity(GpuShares::Count(1.try_into().unwrap()))["shares"];
    let AllowedAmounts::Range { step, .. } = &single.policy.as_ref().unwrap().allowed else {
        panic!("no range")
    };
    assert_eq!(*step, None);
    for capacity in [&counted, &capacity(GpuShares::Unlimited)] {
        let memory = capacity["memory"].policy.as_ref().unwrap();
        assert_eq!(memory.default, Some(Quantity::ZERO));
    }
    assert!(!capacity(GpuShares::Unlimited).contains_key("shares"));
    assert!(!capacity(GpuShares::Memory).contains_key("shares"));
}

#[test]
fn a_gpu_says_whether_shares_are_held_to_their_time() {
    for enforces_time in [false, true] {
        let (inventory, health) = (testing::inventory(1), Health::new());
        let devices = devices_of_node(&inventory, &health, GpuShares::Memory, enforces_time);
        let found = &devices[0].attributes["octavo.dev/timeEnforced"];
        assert_eq!(*found, AttributeValue::Bool(enforces_time));
    }
}

#[test]
fn a_gpu_that_its_fabric_does_not_serve_takes_no_pods() {
    let taint = |state, status, health_mask| {
        let mut inventory = testing::inventory(1);
        let fabric = inventory.gpus[0].fabric.as_mut().expect("has one");
        (fabric.state, fabric.status, fabric.health_mask) = (state, status, health_mask);
        let taints = devices(&inventory, &Health::new()).remove(0).taints;
        taints.into_iter().map(|taint| (taint.key, taint.value)).collect::<Vec<_>>()
    };
    let key = || "octavo.dev/fabric-not-ready".to_owned();
    // Route unhealthy is the third field of two bits.
    let (unhealthy, healthy) = (Some(1 << 4), Some(2 << 4));
    for (state, status, mask, value) in [
        (FabricState::NotStarted, 0, None, "not-started"),
        (FabricState::InProgress, 0, None, "in-progress"),
        (FabricState::Completed, 1, healthy, "failed"),
        (FabricState::Completed, 0, unhealthy, "route-unhealthy"),
    ] {
        assert_eq!(taint(state, status, mask), [(key(), value.to_owned())]);
    }
    for (state, mask) in [
        (FabricState::NotSupported, None),
        (FabricState::Completed, None),
        (FabricState::Completed, healthy),
    ] {
        assert_eq!(taint(state, 0, mask), []);
    }
}

#[test]
fn names_attributes_and_capacity_are_those_of_nvidia_s_driver() {
    let device = one(&BTreeMap::new());
    assert_eq!(device.name, "gpu-0");
    let text = |value: &str| AttributeValue::String(value.to_owned());
    let version = |value: &str| AttributeValue::Version(value.to_owned());
    let expected: BTreeMap<String, AttributeValue> = [
        ("type", text("gpu")),
        ("uuid", text(&testing::uuid(0))),
        ("productName", text("NVIDIA H100 80GB HBM3")),
        ("brand", text("Nvidia")),
        ("architecture", text("Hopper")),
        ("cudaComputeCapability", version("9.0.0")),
        ("driverVersion", version("580.95.5")),
        ("cudaDriverVersion", version("13.0.0")),
        ("addressingMode", text("HMM")),
        ("resource.kubernetes.io/pciBusID", text("0000:1b:00.0")),
        ("resource.kubernetes.io/pcieRoot", text("pci0000:15")),
        ("resource.kubernetes.io/numaNode", AttributeValue::Int(0)),
        ("octavo.dev/fabricClique", text("9c6f1f3e-0000-0000-0000-000000000001.1")),
        ("octavo.dev/module", AttributeValue::Int(1)),
        ("octavo.dev/timeEnforced", AttributeValue::Bool(false)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    assert_eq!(device.attributes, expected);
    assert_eq!(device.capacity["memory"].value.to_string(), "81559Mi");
    assert!(device.taints.is_empty() && device.consumes.is_empty());
}

#[test]
fn a_claim_takes_all_memory_and_no_time_unless_it_says() {
    let device = one(&BTreeMap::new());
    assert!(device.allow_multiple);
    assert_eq!(device.capacity.keys().collect::<Vec<_>>(), ["compute", "memory"]);
    let policy = |name: &str| device.capacity[name].policy.clone().unwrap();
    let text = |amount: Option<Quantity>| amount.map(|amount| amount.to_string());
    let range = |name: &str| match policy(name).allowed {
        AllowedAmounts::Range { min, max, step } => (min.to_string(), text(max), text(step)),
        other => panic!("{other:?}"),
    };
    let all = Some("81559Mi".to_owned());
    assert_eq!(text(policy("memory").default), all);
    assert_eq!(range("memory"), ("1Mi".to_owned(), all, Some("1Mi".to_owned())));
    assert_eq!(device.capacity["compute"].value, Quantity::decimal(100));
    assert_eq!(text(policy("compute").default).as_deref(), Some("0"));
    assert_eq!(range("compute"), ("0".to_owned(), Some("100".to_owned()), None));
}

#[test]
fn a_module_that_is_not_loaded_taints_every_device() {
    let inventory = testing::inventory(2);
    let health = BTreeMap::new();
    let (dynamic, made) = (DynamicMig::None, BTreeSet::new());
    let node = Node {
        inventory: &inventory,
        health: &health,
        dynamic: &dynamic,
        made: &made,
        shares: GpuShares::Memory,
        enforces_time: false,
    };
    let offered = offered(&node).without_module(Some("nvidia-uvm"));
    assert_eq!(offered.devices.len(), 2);
    for device in &offered.devices {
        let [taint] = &device.taints[..] else { panic!("{:?}", device.taints) };
        assert_eq!(taint.key, "octavo.dev/driver-unavailable");
        assert_eq!(taint.value, "missing-nvidia-uvm");
    }
}

#[test]
fn a_gpu_without_memory_of_its_own_is_whole_only() {
    let mut inventory = testing::inventory(1);
    inventory.gpus[0].memory_bytes = 0;
    let device = devices(&inventory, &BTreeMap::new()).remove(0);
    assert!(!device.allow_multiple && device.capacity.is_empty(), "{device:?}");
}

#[test]
fn share_memory_is_rounded_down_to_a_whole_mebibyte() {
    let mut inventory = testing::inventory(1);
    inventory.gpus[0].memory_bytes = (100 << 20) + 4096;
    let memory = devices(&inventory, &BTreeMap::new()).remove(0).capacity["memory"].clone();
    assert_eq!(memory.value, Quantity::binary((100 << 20) + 4096));
    assert_eq!(memory.policy.unwrap().default, Some(Quantity::binary(100 << 20)));
    // Less than a step is not shared.
    inventory.gpus[0].memory_bytes = 4096;
    let memory = devices(&inventory, &BTreeMap::new()).remove(0).capacity["memory"].clone();
    assert_eq!(memory.policy, None);
}

#[test]
fn what_is_not_known_is_absent() {
    let mut inventory = testing::inventory(1);
    let gpu = &mut inventory.gpus[0];
    (gpu.pcie_root, gpu.numa_node, gpu.addressing_mode) = (None, None, None);
    (gpu.fabric, gpu.module) = (None, None);
    let device = devices(&inventory, &BTreeMap::new()).remove(0);
    for name in ["resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode"] {
        assert!(!device.attributes.contains_key(name), "{name}");
    }
    assert_eq!(device.attributes.len(), 10);
}

#[test]
fn a_value_that_the_api_would_refuse_does_not_cost_the_device() {
    let mut inventory = testing::inventory(1);
    inventory.gpus[0].name = "Ü".repeat(40);
    inventory.gpus[0].brand = String::new();
    inventory.versions.driver = "unknown".to_owned();
    let device = devices(&inventory, &BTreeMap::new()).remove(0);
    let AttributeValue::String(name) = &device.attributes["productName"] else {
        panic!("productName is text");
    };
    assert_eq!(name, &"Ü".repeat(32));
    assert!(!device.attributes.contains_key("brand"));
    assert!(!device.attributes.contains_key("driverVersion"));
}

#[test]
fn devices_are_named_and_ordered_by_the_numbers_of_their_gpus() {
    let mut inventory = testing::inventory(3);
    inventory.gpus[0].number = 7;
    let names: Vec<_> =
        devices(&inventory, &BTreeMap::new()).into_iter().map(|device| device.name).collect();
    assert_eq!(names, ["gpu-1", "gpu-2", "gpu-7"]);
}

#[test]
fn only_the_gpu_concerned_is_tainted_and_with_what_is_known() {
    let probation = Fence { state: State::Probation, effect: Effect::None, reason: None };
    let states = [
        (testing::uuid(1), testing::fenced(Reason::Xid(48), 0)),
        (testing::uuid(2), testing::fenced(Reason::Lost, 0)),
        (testing::uuid(3), testing::fenced(Reason::RecoveryAction(RecoveryAction::GpuReset), 0)),
        (testing::uuid(4), GpuState { is_driver_gone: true, ..state() }),
        (testing::uuid(5), GpuState { is_driver_released: true, ..state() }),
        (testing::uuid(6), testing::fenced(Reason::LinkDown, 0)),
        (testing::uuid(7), GpuState { fence: Some(probation), ..state() }),
    ];
    let devices = devices(&testing::inventory(8), &states.into());
    let taints: Vec<Vec<_>> = devices
        .iter()
        .map(|device| device.taints.iter().map(|t| format!("{}={}", t.key, t.value)).collect())
        .collect();
    assert_eq!(taints[0], [""; 0]);
    assert_eq!(taints[1], ["gpu.nvidia.com/xid=48"]);
    assert_eq!(taints[2], ["gpu.nvidia.com/gpu-lost="]);
    assert_eq!(taints[3], ["octavo.dev/recovery-action=gpu-reset"]);
    assert_eq!(taints[4], ["octavo.dev/driver-unavailable="]);
    assert_eq!(taints[5], ["octavo.dev/driver-unavailable=released"]);
    assert_eq!(taints[6], ["octavo.dev/health=NVLinkDown"]);
    assert_eq!(taints[7], ["octavo.dev/health=Probation"]);
    let effects = devices[..7].iter().flat_map(|device| &device.taints);
    assert!(effects.map(|taint| taint.effect).all(|effect| effect == TaintEffect::NoSchedule));
    assert_eq!(devices[7].taints[0].effect, TaintEffect::None);
}

#[test]
fn a_gpu_in_mig_mode_is_not_offered_whole() {
    let mut inventory = testing::inventory(2);
    inventory.gpus[0].mig = Some(Mig { enabled: true, pending: true });
    inventory.gpus[1].mig = Some(Mig { enabled: false, pending: true });
    let devices = devices(&inventory, &BTreeMap::new());
    assert_eq!(devices.iter().map(|device| &device.name).collect::<Vec<_>>(), ["gpu-1"]);
}
