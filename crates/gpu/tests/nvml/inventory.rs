//! The inventory of a whole machine.

use std::fs;
use std::path::Path;

use octavo_gpu::nvml::Nvml;
use octavo_gpu::{AddressingMode, Driver as _, DriverError, Inventory, Mig, describe};
use octavo_machine::Machine;

use crate::node::{Node, meshed, switched};

fn read(node: &Node) -> Inventory {
    Inventory::read(&node.open()).unwrap()
}

/// A description with the facts that only an author knows, copied from `author`.
fn in_words_of(mut machine: Machine, author: &Machine) -> Machine {
    machine.description.clone_from(&author.description);
    machine.nics.clone_from(&author.nics);
    machine
}

#[test]
fn every_machine_that_ships_is_read_as_it_is_described() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let mut seen = 0;
    for file in fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let node = Node::of(Machine::read(&path).unwrap());
        let read = describe(&read(&node), &node.machine.name).unwrap();
        assert_eq!(in_words_of(read, &node.machine), node.machine, "{}", path.display());
        seen += 1;
    }
    assert!(seen >= 8, "{seen} machines in {}", folder.display());
}

#[test]
fn a_description_that_was_read_makes_a_machine_that_reads_the_same() {
    let first = read(&Node::of(switched()));
    let written = describe(&first, "switched").unwrap().to_yaml().unwrap();
    let second = read(&Node::of(Machine::parse(&written).unwrap()));
    assert_eq!(first, second);
}

#[test]
fn a_gpu_behind_switches_is_read_with_all_its_facts() {
    let node = Node::of(switched());
    let inventory = read(&node);
    assert_eq!(inventory.unreadable, []);
    assert_eq!(inventory.versions.driver, "580.95.05");
    assert_eq!(inventory.versions.cuda, (13, 0));
    assert_eq!(inventory.versions.nvml, "13.580.95.05");
    assert_eq!(inventory.gpus.len(), 4);

    let gpu = &inventory.gpus[2];
    assert_eq!((gpu.index, gpu.minor, gpu.module), (2, 0, Some(3)));
    assert_eq!(gpu.uuid, node.uuid(2));
    assert_eq!((gpu.name.as_str(), gpu.brand.as_str()), ("NVIDIA H100 80GB HBM3", "Nvidia"));
    assert_eq!((gpu.architecture.as_str(), gpu.compute_capability), ("Hopper", (9, 0)));
    assert_eq!(gpu.memory_bytes, 81559 << 20);
    assert_eq!(gpu.reserved_bytes, Some(551 << 20));
    assert_eq!(gpu.multiprocessors, Some(132));
    assert_eq!(gpu.pci.to_string(), "0000:9d:00.0");
    assert_eq!((gpu.pci_device_id, gpu.pci_subsystem_id), (0x2330_10de, 0x16c1_10de));
    assert_eq!(gpu.pcie_root.as_deref(), Some("pci0000:97"));
    assert_eq!(gpu.numa_node, Some(1));
    assert_eq!(gpu.serial.as_deref(), Some("1650000003"));
    assert_eq!(gpu.addressing_mode, Some(AddressingMode::Hmm));
    assert_eq!(gpu.ecc, Some(true));
    assert_eq!(gpu.power_limit_milliwatts, Some(700_000));
    assert_eq!((gpu.sm_clock_mhz, gpu.memory_clock_mhz), (Some(1980), Some(2619)));

    let nvlink = gpu.nvlink.as_ref().unwrap();
    assert_eq!((nvlink.version, nvlink.links, nvlink.switched), (4, 18, true));
    assert_eq!(nvlink.peers, [], "links into switches have no peers");

    assert_eq!(gpu.mig, Some(Mig { enabled: false, pending: false }));

    let clique = gpu.fabric.as_ref().unwrap().clique.as_ref().unwrap();
    assert_eq!(clique.to_string(), "3b1c4e2a-9011-4d6f-8a00-010203040506.7");
}

#[test]
fn gpus_that_are_linked_with_one_another_know_their_peers() {
    let inventory = read(&Node::of(meshed()));
    for gpu in &inventory.gpus {
        let nvlink = gpu.nvlink.as_ref().unwrap();
        assert_eq!((nvlink.version, nvlink.links, nvlink.switched), (3, 12, false));
        let others: Vec<(u32, u32)> =
            (0..4).filter(|&index| index != gpu.index).map(|index| (index, 4)).collect();
        assert_eq!(nvlink.peers, others, "GPU {}", gpu.index);
    }
}

#[test]
fn what_a_machine_lacks_is_absent() {
    let inventory = read(&Node::of(meshed()));
    let gpu = &inventory.gpus[0];
    assert_eq!((gpu.numa_node, gpu.module, gpu.addressing_mode), (None, None, None));
    assert_eq!((gpu.serial.as_ref(), gpu.mig), (None, None));
    assert_eq!(gpu.fabric.as_ref().and_then(|fabric| fabric.clique.clone()), None);
}

#[test]
fn a_fabric_within_one_chassis_makes_no_clique() {
    let mut machine = switched();
    let fabric = machine.fabric.as_mut().unwrap();
    fabric.cluster_uuid = "00000000-0000-0000-0000-000000000000".to_owned();
    let inventory = read(&Node::of(machine));
    let fabric = inventory.gpus[0].fabric.as_ref().unwrap();
    assert_eq!(fabric.clique, None);
    assert_eq!(fabric.clique_id, 7);
}

#[test]
fn without_sysfs_a_gpu_is_read_without_its_place() {
    let node = Node::of(switched());
    fs::remove_dir_all(node.sys_root()).unwrap();
    let inventory = read(&node);
    assert_eq!(inventory.gpus.len(), 4);
    assert_eq!((inventory.gpus[0].pcie_root.as_ref(), inventory.gpus[0].numa_node), (None, None));
}

#[test]
fn nodes_of_one_process_know_nothing_of_each_other() {
    let (one, two) = (Node::of(switched()), Node::of(meshed()));
    let (first, second) = (one.open(), two.open());
    let names = |driver: &Nvml| Inventory::read(driver).unwrap().gpus[0].name.clone();
    assert_eq!(names(&first), "NVIDIA H100 80GB HBM3");
    assert_eq!(names(&second), "NVIDIA A100-SXM4-40GB");
    drop(first);
    assert_eq!(names(&second), "NVIDIA A100-SXM4-40GB");
}

#[test]
fn a_library_is_opened_and_closed_any_number_of_times() {
    let node = Node::of(switched());
    for _ in 0..20 {
        assert_eq!(read(&node).gpus.len(), 4);
    }
}

#[test]
fn a_gpu_that_is_not_there_has_no_mig_profiles() {
    let node = Node::of(switched());
    let profiles = node.open().mig_profiles("GPU-0");
    assert!(matches!(profiles, Err(DriverError::NotFound { .. })), "{profiles:?}");
}
