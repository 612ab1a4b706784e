use octavo_dra::{CounterConsumption, Quantity};

use super::*;

fn set(name: &str, amounts: &[(&str, i64)]) -> CounterSet {
    let counters =
        amounts.iter().map(|(name, amount)| ((*name).to_owned(), Quantity::decimal(*amount)));
    CounterSet { name: name.to_owned(), counters: counters.collect() }
}

fn device(
    name: &str,
    attributes: &[(&str, &str)],
    mib: i64,
    consumes: Option<CounterSet>,
) -> Device {
    let text = |value: &str| AttributeValue::String(value.to_owned());
    let memory = Capacity::whole(Quantity::binary(mib << 20));
    let consumes =
        consumes.map(|set| CounterConsumption { counter_set: set.name, counters: set.counters });
    Device {
        name: name.to_owned(),
        attributes: attributes
            .iter()
            .map(|(key, value)| ((*key).to_owned(), text(value)))
            .collect(),
        capacity: [("memory".to_owned(), memory)].into(),
        consumes: consumes.into_iter().collect(),
        allow_multiple: !name.contains("mig"),
        ..Device::default()
    }
}

const SLICES: [(&str, i64); 3] =
    [("multiprocessors", 132), ("memory-slice-0", 1), ("memory-slice-1", 1)];

/// Two GPUs that MIG may partition in two, with the devices for the free placements.
fn published() -> (Vec<Device>, Vec<CounterSet>) {
    let mut devices = Vec::new();
    let mut sets = Vec::new();
    // As text, `gpu-10` would come first.
    for number in [9, 10] {
        let name = format!("gpu-{number}-counter-set");
        let all = set(&name, &SLICES);
        let gpu = [("type", "gpu"), ("productName", "H100"), ("octavo.dev/fabricClique", "c.1")];
        devices.push(device(&format!("gpu-{number}"), &gpu, 80_000, Some(all.clone())));
        for start in [1, 0] {
            let slice = format!("memory-slice-{start}");
            let taken = set(&name, &[("multiprocessors", 16), (&slice, 1)]);
            let place = [("type", "mig"), ("profile", "1g.40gb"), ("parentUUID", "GPU-x")];
            let place_name = format!("gpu-{number}-mig-1g40gb-19-{start}");
            devices.push(device(&place_name, &place, 40_000, Some(taken)));
        }
        sets.push(all);
    }
    devices.reverse();
    (devices, sets)
}

fn read() -> NodeDevices {
    let (devices, sets) = published();
    NodeDevices::read(&devices, &sets, |_| false).unwrap()
}

fn given(device: &str, amounts: &[(&str, Quantity)]) -> AllocationResult {
    let consumed = amounts.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect();
    AllocationResult { device: device.to_owned(), consumed, ..AllocationResult::default() }
}

#[test]
fn gpus_profiles_and_places_are_read() {
    let found = read();
    let names: Vec<_> = found.gpus.iter().map(|gpu| gpu.device.as_str()).collect();
    assert_eq!(names, ["gpu-9", "gpu-10"]);
    assert_eq!((found.model.name.as_str(), found.model.memory_mib), ("H100", 80_000));
    assert_eq!(found.clique.as_deref(), Some("c.1"));
    let [profile] = found.model.mig.as_slice() else { panic!("{:?}", found.model.mig) };
    assert_eq!((profile.milli, profile.size, profile.starts.as_slice()), (121, 1, &[0, 1][..]));
    assert!(found.fixed_instances.is_empty());
}

#[test]
fn what_was_given_becomes_parts_and_parts_become_devices() {
    let found = read();
    let all = Quantity::binary(80_000 << 20);
    let plain = found.part(&given("gpu-10", &[("memory", all), ("compute", Quantity::ZERO)]));
    assert_eq!(plain.map(|part| (part.gpu, part.milli, part.memory_mib)), Some((1, 1000, 80_000)));
    assert_eq!(found.part(&given("gpu-10", &[])), plain);
    let eighth = [("memory", Quantity::binary(10_000 << 20)), ("compute", "12.5".parse().unwrap())];
    let share = found.part(&given("gpu-9", &eighth)).unwrap();
    assert_eq!((share.gpu, share.milli, share.memory_mib), (0, 125, 10_000));
    assert_eq!(found.device(&share, None), Some("gpu-9"));
    let mig = found.part(&given("gpu-10-mig-1g40gb-19-1", &[])).unwrap();
    assert_eq!((mig.gpu, mig.milli, mig.slices), (1, 121, Slices::range(1, 1)));
    assert_eq!(found.device(&mig, Some("1g.40gb")), Some("gpu-10-mig-1g40gb-19-1"));
    assert_eq!(found.device(&mig, Some("7g.80gb")), None);
    let admin = AllocationResult { admin_access: true, ..given("gpu-9", &[]) };
    assert_eq!(found.part(&admin), None);
    assert_eq!(found.part(&given("nic-0", &[])), None);
}

#[test]
fn taints_close_a_gpu_unless_they_are_our_own() {
    let (mut devices, sets) = published();
    let taint =
        |key: &str, effect| DeviceTaint { key: key.to_owned(), value: String::new(), effect };
    devices.iter_mut().find(|device| device.name == "gpu-9").unwrap().taints =
        vec![taint("sick", TaintEffect::NoSchedule), taint("seen", TaintEffect::None)];
    let closed = |key: &str| {
        let found = NodeDevices::read(&devices, &sets, |taint| taint.key == key).unwrap();
        found.gpus.iter().map(|gpu| gpu.is_closed).collect::<Vec<_>>()
    };
    assert_eq!(closed("ours"), [true, false]);
    assert_eq!(closed("sick"), [false, false]);
}

#[test]
fn a_fixed_instance_is_named_and_mixed_models_are_refused() {
    let fixed = [("type", "mig"), ("profile", "1g.40gb"), ("parentUUID", "GPU-y")];
    let fixed = device("gpu-3-mig-1g40gb-19-0", &fixed, 40_000, None);
    let found = NodeDevices::read([&fixed], [], |_| false).unwrap();
    assert_eq!(found.fixed_instances, ["gpu-3-mig-1g40gb-19-0"]);
    assert_eq!(found.part(&given("gpu-3-mig-1g40gb-19-0", &[])), None);
    let gpus = ["A100", "H100"]
        .map(|name| device(name, &[("type", "gpu"), ("productName", name)], 80_000, None));
    let error = NodeDevices::read(&gpus, [], |_| false).unwrap_err();
    assert!(error.to_string().contains("A100, H100"), "{error}");
}

#[test]
fn numa_nodes_make_groups_where_they_part_the_gpus() {
    let of = |numa: &[i64]| {
        let gpus: Vec<_> = (0..)
            .zip(numa)
            .map(|(number, numa)| {
                let mut gpu = device(&format!("gpu-{number}"), &[("type", "gpu")], 1, None);
                let key = "resource.kubernetes.io/numaNode".to_owned();
                gpu.attributes.insert(key, AttributeValue::Int(*numa));
                gpu
            })
            .collect();
        NodeDevices::read(&gpus, [], |_| false).unwrap().links
    };
    assert_eq!(of(&[0, 0, 1, 1]), Links(vec![vec![0, 0, 1, 1]]));
    assert_eq!(of(&[0, 0]), Links::default());
}
