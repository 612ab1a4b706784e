use std::path::{Path, PathBuf};

use super::{Machine, derive_uuid};

fn shipped() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()))
        .collect();
    files.sort();
    files
}

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines").join(name);
    std::fs::read_to_string(path.with_extension("yaml")).unwrap()
}

/// The error for a shipped description with `old` replaced by `new`.
fn refused(machine: &str, old: &str, new: &str) -> String {
    let text = text(machine);
    let changed = text.replacen(old, new, 1);
    assert_ne!(changed, text, "{old} is not in {machine}");
    Machine::parse(&changed).unwrap_err().to_string()
}

#[test]
fn every_machine_that_ships_is_well_formed_and_says_what_it_is() {
    let files = shipped();
    assert_eq!(files.len(), 8);
    for (path, text) in files {
        let machine = Machine::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(Some(machine.name.as_str()), path.file_stem().and_then(|stem| stem.to_str()));
        assert!(text.starts_with("# "), "{} does not begin with what it is", path.display());
        assert!(text.contains("ssumed: "), "{} does not say what is assumed", path.display());
        assert!(machine.gpus.iter().all(|gpu| gpu.uuid.is_none()), "{}", path.display());
    }
}

#[test]
fn every_machine_that_ships_survives_being_written_and_read() {
    for (path, text) in shipped() {
        let machine = Machine::parse(&text).unwrap();
        let written = machine.to_yaml().unwrap();
        assert_eq!(Machine::parse(&written).unwrap(), machine, "{}", path.display());
    }
}

#[test]
fn an_instantiated_machine_survives_being_written_and_read() {
    let mut machine = Machine::parse(&text("gb200-tray")).unwrap();
    machine.instantiate("node-1");
    machine.check().unwrap();
    assert_eq!(Machine::parse(&machine.to_yaml().unwrap()).unwrap(), machine);
}

#[test]
fn the_same_node_always_has_the_same_gpus_and_no_two_nodes_share_one() {
    assert_eq!(derive_uuid("node-1", 3), derive_uuid("node-1", 3));
    let mut uuids: Vec<String> =
        (0..500).flat_map(|n| (0..8).map(move |m| derive_uuid(&format!("n-{n}"), m))).collect();
    uuids.sort();
    uuids.dedup();
    assert_eq!(uuids.len(), 4000);
}

#[test]
fn a_uuid_that_is_given_is_kept() {
    let mut machine = Machine::parse(&text("l4")).unwrap();
    machine.gpus[1].uuid = Some("GPU-00000000-1111-2222-3333-444444444444".to_owned());
    machine.instantiate("node");
    assert_eq!(machine.gpus[1].uuid.as_deref(), Some("GPU-00000000-1111-2222-3333-444444444444"));
    assert_eq!(machine.gpus[2].uuid, Some(derive_uuid("node", 2)));
}

#[test]
fn an_unknown_field_is_refused_with_its_name_and_line() {
    let message = refused("l4", "  ecc: true", "  ecc: true\n  wings: 2");
    assert!(message.starts_with("not a machine description: "), "{message}");
    assert!(message.contains("wings") && message.contains("line"), "{message}");
}

#[test]
fn a_missing_field_is_refused_with_its_name() {
    let message = refused("l4", "  brand: Nvidia\n", "");
    assert!(message.contains("brand"), "{message}");
}

#[test]
fn what_two_gpus_cannot_share_is_refused_with_its_place() {
    for (old, new, words) in [
        ("minor: 1", "minor: 0", "gpus[1].minor: is another GPU's minor, too"),
        (
            "pci: \"0000:31:00.0\"",
            "pci: \"0000:17:00.0\"",
            "gpus[1].pci: is another GPU's address, too",
        ),
    ] {
        assert_eq!(refused("l4", old, new), format!("impossible machine: {words}"));
    }
}

#[test]
fn malformed_values_are_refused_with_what_they_must_look_like() {
    for (machine, old, new, words) in [
        ("l4", "0000:31:00.0", "31:00.0", "gpus[1].pci: must look like 0000:1b:00.0"),
        ("l4", "0000:ca:00.0", "0000:CA:00.0", "gpus[3].pci: must look like 0000:1b:00.0"),
        ("l4", "pci0000:30", "0000:30", "gpus[1].pcieRoot: must look like pci0000:15"),
        ("l4", "0x27B810DE", "27B8", "model.pciDeviceId: must be 0x and eight hex digits"),
        ("l4", "0x16CA10DE", "0x16CA", "model.pciSubsystemId: must be 0x and eight hex digits"),
        ("l4", "\"8.9\"", "\"89\"", "model.computeCapability: must be two numbers joined by a dot"),
        ("l4", "\"13.0\"", "\"13\"", "driver.cuda: must be two numbers joined by a dot"),
        (
            "l4",
            "reservedMib: 479",
            "reservedMib: 23034",
            "model.memoryMib: must be more than what is reserved",
        ),
        (
            "gb200-tray",
            "6f1c2a7e-94d3",
            "6f1c2a7e94d3",
            "fabric.clusterUuid: must be a UUID of 8-4-4-4-12 hex digits",
        ),
        (
            "dgx-h100",
            "table: h100-80",
            "table: h100",
            "model.mig.table: must be one of a100-40, a100-80, h100-80, h100-nvl-94, h200-141, \
             gh200-144, b200-180, gb200-186, a30-24",
        ),
        ("l4", "minor: 0", "uuid: GPU-1\n    minor: 0", "gpus[0].uuid: must be GPU- and a UUID"),
        ("dgx-h100", "mlx5_0", "mlx5/0", "nics[0].name: must look like mlx5_0"),
        ("dgx-h100", "mlx5_3", "mlx5_0", "nics[1].name: is another card's name, too"),
        ("dgx-h100", "0000:18:00.0", "18:00.0", "nics[0].pci: must look like 0000:1b:00.0"),
        (
            "dgx-h100",
            "0000:18:00.0",
            "0000:1b:00.0",
            "nics[0].pci: is another device's address, too",
        ),
    ] {
        assert_eq!(refused(machine, old, new), format!("impossible machine: {words}"));
    }
}

#[test]
fn a_gpu_of_a_dgx_h100_has_a_network_card_of_its_own() {
    let machine = Machine::parse(&text("dgx-h100")).unwrap();
    let names: Vec<&str> =
        (0..9).flat_map(|gpu| machine.nics_of(gpu)).map(|nic| nic.name.as_str()).collect();
    let expected =
        ["0", "3", "4", "5", "6", "9", "10", "11"].map(|number| format!("mlx5_{number}"));
    assert_eq!(names, expected);
}

#[test]
fn a_machine_without_gpus_is_refused() {
    let text = text("l4");
    let start = text.find("gpus:").unwrap();
    let message = Machine::parse(&format!("{}gpus: []\n", &text[..start])).unwrap_err();
    assert_eq!(
        message.to_string(),
        "impossible machine: gpus: a GPU machine needs at least one GPU"
    );
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let message = Machine::read(Path::new("/no/such/machine.yaml")).unwrap_err().to_string();
    assert_eq!(message, "read /no/such/machine.yaml");
}
