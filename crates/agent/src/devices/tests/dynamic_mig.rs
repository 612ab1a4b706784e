//! GPUs under dynamic MIG.

use crate::config::{GpuName, GpuShares};
use octavo_api::names::TAINT_FOREIGN_MIG;
use octavo_gpu::Gpu;

use super::*;
use crate::testing::mig;

/// A node with all GPUs opted in.
struct Opted {
    inventory: Inventory,
    health: Health,
    dynamic: DynamicMig,
    made: BTreeSet<MadeInstance>,
}

impl Opted {
    fn new(gpus: impl IntoIterator<Item = Gpu>) -> Self {
        let inventory = Inventory { gpus: gpus.into_iter().collect(), ..testing::inventory(0) };
        let (health, made) = (Health::new(), BTreeSet::new());
        Self { inventory, health, dynamic: DynamicMig::All, made }
    }

    fn node(&self) -> Node<'_> {
        Node {
            inventory: &self.inventory,
            health: &self.health,
            dynamic: &self.dynamic,
            made: &self.made,
            shares: GpuShares::Memory,
            enforces_time: false,
        }
    }

    fn offered(&self) -> Offered {
        offered(&self.node())
    }

    fn reasons(&self) -> Vec<&'static str> {
        notes(&self.node()).into_iter().map(|note| note.reason).collect()
    }
}

fn a100(index: u32, is_on: bool) -> Gpu {
    Gpu { architecture: "Ampere".to_owned(), ..mig::gpu(index, is_on) }
}

fn tainted(devices: &[Device], key: &str) -> Vec<String> {
    let has = |device: &&Device| device.taints.iter().any(|taint| taint.key == key);
    devices.iter().filter(has).map(|device| device.name.clone()).collect()
}

#[test]
fn a_gpu_is_one_whole_and_every_place_whatever_its_mode_is_now() {
    let off = Opted::new([mig::gpu(0, false)]).offered();
    // 7 + 7 + 4 + 3 + 2 + 1 + 1 placements and the whole GPU.
    assert_eq!(off.devices.len(), 26);
    assert_eq!(off.counters.len(), 1);
    assert_eq!(off.devices[0].name, "gpu-0");
    let on = Opted::new([mig::gpu(0, true)]).offered();
    assert_eq!(on, off);
    assert_eq!(names(&off.plain), ["gpu-0"]);
    assert!(off.plain[0].consumes.is_empty() && off.plain[0].allow_multiple);
}

#[test]
fn counters_are_profile_maxima_and_the_whole_gpu_takes_all() {
    let offered = Opted::new([mig::gpu(0, false)]).offered();
    let set = &offered.counters[0];
    assert_eq!(set.name, "gpu-0-counter-set");
    let mut expected: BTreeMap<String, String> = [
        ("multiprocessors", "132"),
        ("copy-engines", "8"),
        ("decoders", "7"),
        ("encoders", "0"),
        ("jpeg-engines", "7"),
        ("ofa-engines", "1"),
        ("memory", "80384Mi"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    expected.extend((0..8).map(|slice| (format!("memory-slice-{slice}"), "1".to_owned())));
    assert_eq!(amounts(&set.counters), expected);
    // Zero amounts are omitted.
    expected.remove("encoders");
    let [consumed] = offered.devices[0].consumes.as_slice() else { panic!("one set") };
    assert_eq!(consumed.counter_set, set.name);
    assert_eq!(amounts(&consumed.counters), expected);
}

#[test]
fn a_place_takes_what_its_profile_takes_and_tells_what_it_is() {
    let offered = Opted::new([mig::gpu(3, false)]).offered();
    let place = offered.devices.iter().find(|one| one.name == "gpu-3-mig-3g40gb-9-4").unwrap();
    let [consumed] = place.consumes.as_slice() else { panic!("one set") };
    assert_eq!(consumed.counter_set, "gpu-3-counter-set");
    let expected = [
        ("copy-engines", "3"),
        ("decoders", "3"),
        ("jpeg-engines", "3"),
        ("memory", "40192Mi"),
        ("memory-slice-4", "1"),
        ("memory-slice-5", "1"),
        ("memory-slice-6", "1"),
        ("memory-slice-7", "1"),
        ("multiprocessors", "60"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(amounts(&consumed.counters), expected.into());
    assert!(!place.allow_multiple);
    let capacity = place.capacity.iter().map(|(name, capacity)| (name, &capacity.value));
    let expected = [
        ("copyEngines", "3"),
        ("decoders", "3"),
        ("encoders", "0"),
        ("jpegEngines", "3"),
        ("memory", "40192Mi"),
        ("multiprocessors", "60"),
        ("ofaEngines", "0"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(amounts(capacity), expected.into());
    let text = |value: &str| AttributeValue::String(value.to_owned());
    assert_eq!(place.attributes["type"], text("mig"));
    assert_eq!(place.attributes["profile"], text("3g.40gb"));
    assert_eq!(place.attributes["parentUUID"], text(&testing::uuid(3)));
    assert_eq!(place.attributes["resource.kubernetes.io/pciBusID"], text("0000:1e:00.0"));
    assert_eq!(place.attributes["resource.kubernetes.io/numaNode"], AttributeValue::Int(0));
    assert!(!place.attributes.contains_key("uuid"), "it comes with the instance");
}

#[test]
fn whole_gpu_and_overlapping_placements_exclude_each_other() {
    let offered = Opted::new([mig::gpu(0, false)]).offered();
    let totals = &offered.counters[0].counters;
    let fits = |names: &[&str]| {
        let mut left = totals.clone();
        names.iter().all(|name| {
            let device = offered.devices.iter().find(|device| device.name == *name).unwrap();
            device.consumes[0].counters.iter().all(|(counter, amount)| {
                let rest = left[counter].checked_sub(*amount).unwrap();
                left.insert(counter.clone(), rest);
                rest >= Quantity::ZERO
            })
        })
    };
    let (one, three, four) =
        ("gpu-0-mig-1g10gb-19-6", "gpu-0-mig-3g40gb-9-4", "gpu-0-mig-4g40gb-5-0");
    for device in &offered.devices[1..] {
        assert!(!fits(&["gpu-0", &device.name]), "{}", device.name);
    }
    assert!(fits(&[three, four]));
    assert!(!fits(&[three, one]), "they overlap");
    assert!(fits(&[four, "gpu-0-mig-2g20gb-14-4", one]));
    let sevenfold: Vec<_> = (0..7).map(|at| format!("gpu-0-mig-1g10gb-19-{at}")).collect();
    assert!(fits(&sevenfold.iter().map(String::as_str).collect::<Vec<_>>()));
    // Media engines are there once, however far apart two places are.
    assert!(!fits(&["gpu-0-mig-1g10gb-me-20-0", "gpu-0-mig-1g10gb-me-20-6"]));
}

#[test]
fn only_gpus_that_are_opted_in_and_can_be_cut_are_alternatives() {
    let mut opted = Opted::new([mig::gpu(0, false), mig::gpu(1, false), testing::gpu(2)]);
    opted.dynamic = DynamicMig::Gpus([1, 2, 9].map(GpuName::Minor).into());
    let offered = opted.offered();
    assert_eq!(offered.counters.len(), 1);
    assert_eq!(offered.counters[0].name, "gpu-1-counter-set");
    assert_eq!(names(&offered.devices[..3]), ["gpu-0", "gpu-2", "gpu-1"]);
    assert_eq!(offered.devices.len(), 3 + 25);
    assert_eq!(names(&offered.plain), ["gpu-0", "gpu-1", "gpu-2"]);
    assert_eq!(opted.reasons(), ["DynamicMigUnavailable"; 2]);
}

#[test]
fn a_gpu_whose_mode_needs_a_reset_stays_in_the_mode_that_it_is_in() {
    let off = Opted::new([a100(0, false)]);
    let offered = off.offered();
    assert_eq!(names(&offered.devices), ["gpu-0"]);
    assert!(offered.counters.is_empty() && offered.devices[0].consumes.is_empty());
    assert_eq!(off.reasons(), ["DynamicMigNeedsReset"]);
    let on = Opted::new([a100(0, true)]);
    let offered = on.offered();
    assert_eq!(offered.devices.len(), 25);
    assert!(offered.devices.iter().all(|device| device.name.starts_with("gpu-0-mig-")));
    assert_eq!(offered.counters.len(), 1);
    assert!(offered.plain.is_empty() && on.reasons().is_empty());
}

#[test]
fn the_list_is_by_size_then_by_gpu_from_the_last_then_by_least_harm() {
    let offered = Opted::new((0..2).map(|index| mig::gpu(index, false))).offered();
    let expected_1g = |gpu: u32, profile: &str| {
        (0..7).rev().map(move |at| format!("gpu-{gpu}-mig-{profile}-{at}")).collect::<Vec<_>>()
    };
    let mut expected = vec!["gpu-0".to_owned(), "gpu-1".to_owned()];
    for profile in ["1g10gb-19", "1g10gb-me-20"] {
        expected.extend(expected_1g(1, profile));
        expected.extend(expected_1g(0, profile));
    }
    let rest = [("1g20gb-15", &[6, 4, 2, 0][..]), ("2g20gb-14", &[4, 2, 0]), ("3g40gb-9", &[4, 0])];
    for (profile, starts) in rest.into_iter().chain([("4g40gb-5", &[0][..]), ("7g80gb-0", &[0])]) {
        for gpu in [1, 0] {
            expected.extend(starts.iter().map(|at| format!("gpu-{gpu}-mig-{profile}-{at}")));
        }
    }
    assert_eq!(names(&offered.devices), expected);
}

#[test]
fn a_sick_gpu_s_parts_are_tainted_and_no_other_s() {
    let mut opted = Opted::new((0..2).map(|index| mig::gpu(index, false)));
    let state = testing::fenced(Reason::Xid(79), 0);
    opted.health.insert(testing::uuid(1), state);
    let tainted = tainted(&opted.offered().devices, "gpu.nvidia.com/xid");
    assert_eq!(tainted.len(), 26);
    assert!(tainted.iter().all(|name| name.starts_with("gpu-1")), "{tainted:?}");
}

#[test]
fn only_placements_that_overlap_a_foreign_instance_are_tainted() {
    let mut opted = Opted::new([mig::gpu(0, true)]);
    opted.inventory.gpus[0].mig_instances = vec![mig::instance(7, 14, 4), mig::instance(8, 19, 0)];
    // The instance at slice 0 is Octavo's: its counters are in use, but nothing is foreign.
    opted.made.insert((testing::uuid(0), 0, 1));
    let foreign = tainted(&opted.offered().devices, TAINT_FOREIGN_MIG);
    let mut expected = vec!["gpu-0".to_owned()];
    for place in [
        "1g10gb-19-5",
        "1g10gb-19-4",
        "1g10gb-me-20-5",
        "1g10gb-me-20-4",
        "1g20gb-15-4",
        "2g20gb-14-4",
        "3g40gb-9-4",
        "7g80gb-0-0",
    ] {
        expected.push(format!("gpu-0-mig-{place}"));
    }
    assert_eq!(foreign, expected);
    assert_eq!(opted.reasons(), ["ForeignMigInstance"]);
    let note = notes(&opted.node()).remove(0).text;
    assert!(note.contains("did not make: 7. "), "{note}");
    // Without counters only existing instances can be offered.
    let plain = opted.offered().plain;
    assert_eq!(names(&plain), ["gpu-0-mig-1g10gb-19-0", "gpu-0-mig-2g20gb-14-4"]);
    opted.made.insert((testing::uuid(0), 4, 2));
    assert!(opted.reasons().is_empty());
    assert!(self::tainted(&opted.offered().devices, TAINT_FOREIGN_MIG).is_empty());
}

#[test]
fn every_device_keeps_the_api_s_limits() {
    for device in Opted::new([mig::gpu(0, false)]).offered().devices {
        assert!(device.attributes.len() + device.capacity.len() <= 32, "{}", device.name);
        assert!(device.consumes.iter().all(|consumed| consumed.counters.len() <= 32));
        assert!(device.name.len() <= 63, "{}", device.name);
    }
}
