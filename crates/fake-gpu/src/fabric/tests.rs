use std::time::SystemTime;

use octavo_machine::Fabric;

use super::*;
use crate::{Clock, FakeGpu, FileIdentity, ProcessHandle};

const MIB: u64 = 1 << 20;

const PLACE: FabricPlace = FabricPlace { cluster: 7, clique: 1, node: NodeId(9) };

fn identity(file: &File) -> FileIdentity {
    let about = file.metadata().unwrap();
    FileIdentity { device: about.dev(), inode: about.ino() }
}

fn process(machine: &Path) -> ProcessHandle {
    FakeGpu::open(machine, 0, 64 * MIB, Clock::Virtual).unwrap().attach().unwrap()
}

#[test]
fn a_handle_opens_the_bytes_that_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let (handle, file) = create(folder.path(), PLACE, 3, 2 * MIB).unwrap();
    file.write_all_at(b"shared", MIB).unwrap();
    let sent = FabricHandle::from_bytes(&handle.to_bytes());
    assert_eq!(sent, handle);
    let opened = open(folder.path(), &sent).unwrap();
    let mut bytes = [0; 6];
    opened.read_exact_at(&mut bytes, MIB).unwrap();
    assert_eq!(&bytes, b"shared");
}

#[test]
fn a_handle_with_any_other_byte_opens_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (handle, _file) = create(folder.path(), PLACE, 3, 2 * MIB).unwrap();
    for index in 0..HANDLE_BYTES {
        let mut forged = handle.to_bytes();
        forged[index] ^= 1;
        assert!(open(folder.path(), &FabricHandle::from_bytes(&forged)).is_err(), "byte {index}");
    }
    remove(folder.path(), &handle);
    assert!(open(folder.path(), &handle).is_err(), "it is gone");
}

#[test]
fn an_exported_block_is_counted_once_and_lives_until_its_importers_are_gone() {
    let machine = tempfile::tempdir().unwrap();
    let folder = folder(machine.path());
    let exporter = process(machine.path());
    assert!(exporter.charge(2 * MIB));
    let (handle, file) = create(&folder, PLACE, 0, 2 * MIB).unwrap();
    let block = exporter.share_in_fabric(2 * MIB, identity(&file), handle.allocation).unwrap();
    let imported = open(&folder, &handle).unwrap();
    assert_eq!(exporter.free(), 62 * MIB);
    exporter.drop_shared(block);
    drop(file);
    let gpu = FakeGpu::existing(machine.path(), 0, Clock::Virtual).unwrap();
    assert_eq!((exporter.free(), gpu.used()), (62 * MIB, 2 * MIB), "the importer has it still");
    drop(imported);
    assert_eq!((gpu.used(), exporter.free()), (0, 64 * MIB));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn memory_of_a_dead_exporter_lives_until_its_importers_are_gone() {
    let machine = tempfile::tempdir().unwrap();
    let folder = folder(machine.path());
    let exporter = process(machine.path());
    assert!(exporter.charge(2 * MIB));
    let (handle, file) = create(&folder, PLACE, 0, 2 * MIB).unwrap();
    exporter.share_in_fabric(2 * MIB, identity(&file), handle.allocation).unwrap();
    let imported = open(&folder, &handle).unwrap();
    // Closing the files is what the kernel does when a process is killed.
    drop((exporter, file));
    let other = process(machine.path());
    assert_eq!(other.free(), 62 * MIB);
    drop(imported);
    assert_eq!(other.free(), 64 * MIB);
}

#[test]
fn files_that_dead_processes_left_are_removed_later() {
    let folder = tempfile::tempdir().unwrap();
    let hour = SystemTime::now() - Duration::from_hours(1);
    let (left, file) = create(folder.path(), PLACE, 0, MIB).unwrap();
    file.set_modified(hour).unwrap();
    drop(file);
    let (_, kept) = create(folder.path(), PLACE, 0, MIB).unwrap();
    kept.set_modified(hour).unwrap();
    let (_, _last) = create(folder.path(), PLACE, 0, MIB).unwrap();
    assert!(open(folder.path(), &left).is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn only_members_of_a_fabric_of_several_nodes_have_a_place() {
    let text = include_str!("../../../../machines/gb200-tray.yaml");
    let mut machine = Machine::parse(text).unwrap();
    assert_eq!(FabricPlace::of(&machine), None, "its GPUs have no UUIDs");
    machine.instantiate("node");
    let place = FabricPlace::of(&machine).unwrap();
    assert_eq!((place.clique, place.cluster >> 96), (1, 0x6f1c_2a7e));
    let fabric = machine.fabric.clone().unwrap();
    machine.fabric = Some(Fabric { state: FabricState::InProgress, ..fabric.clone() });
    assert_eq!(FabricPlace::of(&machine), None);
    let cluster_uuid = "00000000-0000-0000-0000-000000000000".to_owned();
    machine.fabric = Some(Fabric { cluster_uuid, ..fabric });
    assert_eq!(FabricPlace::of(&machine), None, "a fabric within a chassis");
    machine.fabric = None;
    assert_eq!(FabricPlace::of(&machine), None);
}
