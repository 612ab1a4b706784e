use octavo_gpu::Inventory;

use super::*;
use crate::config::GpuShares;
use crate::config::{DynamicMig, GpuName};
use crate::devices::{MadeInstance, parse_mig_name};
use crate::health::Health;
use crate::testing::{self, mig};

fn known(
    inventory: &Inventory,
    dynamic: &DynamicMig,
    made: &BTreeSet<MadeInstance>,
) -> Vec<KnownDevice> {
    let node = devices::Node {
        inventory,
        health: &Health::new(),
        dynamic,
        made,
        shares: GpuShares::Memory,
        enforces_time: false,
    };
    let known = known_devices(&node);
    // Whatever is published can be given.
    let names: BTreeSet<_> = known.iter().map(|device| device.name.as_str()).collect();
    let pool = pool("node", &node, &Owner::default(), None);
    for device in pool.devices.iter().chain(&pool.plain) {
        assert!(names.contains(device.name.as_str()), "{}", device.name);
    }
    assert_eq!(names.len(), known.len(), "a name is one device");
    known
}

#[test]
fn every_place_of_a_gpu_that_is_cut_can_be_given() {
    let known = known(
        &mig::inventory(2),
        &DynamicMig::Gpus([1].map(GpuName::Minor).into()),
        &BTreeSet::new(),
    );
    assert_eq!(known.len(), 2 + 25);
    let place = known.iter().find(|device| device.name == "gpu-1-mig-3g40gb-9-4").unwrap();
    assert_eq!((place.uuid.as_str(), place.minor), (testing::uuid(1).as_str(), 1));
    let DeviceKind::MigPlacement { profile, placement } = &place.kind else { panic!("{place:?}") };
    assert_eq!((profile.name.as_str(), placement.start, placement.size), ("3g.40gb", 4, 4));
}

#[test]
fn what_a_node_publishes_is_far_from_what_an_object_may_be() {
    let (inventory, health, made) = (mig::inventory(8), Health::new(), BTreeSet::new());
    let size = |dynamic: DynamicMig| {
        let node = devices::Node {
            inventory: &inventory,
            health: &health,
            dynamic: &dynamic,
            made: &made,
            shares: GpuShares::Memory,
            enforces_time: false,
        };
        let pool = pool("node", &node, &Owner::default(), None);
        let slices = pool.counters.chunks(8).map(|sets| (sets.to_vec(), Vec::new()));
        let slices = slices.chain(pool.devices.chunks(64).map(|part| (Vec::new(), part.to_vec())));
        let bytes = |(counters, devices)| {
            let slice = octavo_dra::Slice { counters, devices, ..octavo_dra::Slice::default() };
            serde_json::to_vec(&octavo_kube_io::slices::to_api(&slice)).unwrap().len()
        };
        slices.map(bytes).collect::<Vec<_>>()
    };
    let (whole, cut) = (size(DynamicMig::None), size(DynamicMig::All));
    assert_eq!((whole.len(), cut.len()), (1, 5));
    // etcd takes 1.5 MB, and a cluster has many nodes.
    assert!(whole.iter().sum::<usize>() < 12_000, "{whole:?}");
    assert!(cut.iter().sum::<usize>() < 320_000, "{cut:?}");
    assert!(cut.iter().all(|bytes| *bytes < 120_000), "{cut:?}");
}

#[test]
fn an_instance_that_is_there_is_given_as_it_is() {
    let mut inventory = mig::inventory(1);
    inventory.gpus[0] = mig::gpu(0, true);
    inventory.gpus[0].mig_instances = vec![mig::instance(3, 9, 4)];
    let known = known(&inventory, &DynamicMig::None, &BTreeSet::new());
    let names: Vec<_> = known.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["gpu-0", "gpu-0-mig-3g40gb-9-4"]);
    assert!(matches!(&known[1].kind, DeviceKind::MigInstance { instance, .. }
        if instance.gpu_instance == 3));
}

#[test]
fn what_the_agent_made_stays_its_own_once_the_gpu_is_opted_out() {
    let mut inventory = mig::inventory(1);
    inventory.gpus[0] = mig::gpu(0, true);
    inventory.gpus[0].mig_instances = vec![mig::instance(3, 9, 4), mig::instance(4, 14, 0)];
    let made = BTreeSet::from([(testing::uuid(0), 4, 4)]);
    let known = known(&inventory, &DynamicMig::None, &made);
    let kind = |name: &str| &known.iter().find(|device| device.name == name).unwrap().kind;
    assert!(matches!(kind("gpu-0-mig-3g40gb-9-4"), DeviceKind::MigPlacement { .. }));
    assert!(matches!(kind("gpu-0-mig-2g20gb-14-0"), DeviceKind::MigInstance { .. }));
    assert_eq!(known.len(), 3);
    assert_eq!(parse_mig_name(&known[1].name).unwrap().start, 0);
}

#[test]
fn a_gpu_is_cut_by_its_setting_and_not_for_what_is_still_held() {
    let mut inventory = mig::inventory(3);
    inventory.gpus[0] = mig::gpu(0, true);
    inventory.gpus[0].mig_instances = vec![mig::instance(3, 9, 4)];
    inventory.gpus[2].architecture = "Ampere".to_owned();
    let (health, made) = (Health::new(), BTreeSet::from([(testing::uuid(0), 4, 4)]));
    let node = devices::Node {
        inventory: &inventory,
        health: &health,
        dynamic: &DynamicMig::Gpus([1, 2].map(GpuName::Minor).into()),
        made: &made,
        shares: GpuShares::Memory,
        enforces_time: false,
    };
    // The first GPU is opted out; the last stays whole until it is reset.
    let (gpus, fixed) = (Some([testing::uuid(1)].into()), [testing::uuid(2)].into());
    assert_eq!(mig_management(&node, true), MigManagement { gpus, fixed });
    assert_eq!(mig_management(&node, false).gpus, None);
}
