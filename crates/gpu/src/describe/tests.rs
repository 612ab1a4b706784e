use super::{DescribeError, describe, mig_table};
use crate::{
    DriverError, DriverVersions, Fabric, FabricState, Gpu, Inventory, NvLink, PciAddress,
    UnreadableGpu,
};

pub(crate) fn gpu(index: u32) -> Gpu {
    Gpu {
        index,
        minor: index,
        number: index,
        uuid: format!("GPU-00000000-0000-0000-0000-00000000000{index}"),
        name: "NVIDIA L4".to_owned(),
        brand: "Nvidia".to_owned(),
        architecture: "Ada Lovelace".to_owned(),
        compute_capability: (8, 9),
        memory_bytes: 23034 << 20,
        reserved_bytes: Some(439 << 20),
        multiprocessors: Some(58),
        pci: PciAddress {
            domain: 0,
            bus: 0x31 + u8::try_from(index).unwrap(),
            device: 0,
            function: 0,
        },
        pci_device_id: 0x27b8_10de,
        pci_subsystem_id: 0,
        pcie_root: Some("pci0000:30".to_owned()),
        numa_node: Some(0),
        module: None,
        serial: None,
        addressing_mode: None,
        ecc: Some(true),
        power_limit_milliwatts: Some(72_000),
        sm_clock_mhz: Some(2040),
        memory_clock_mhz: Some(6251),
        nvlink: None,
        fabric: None,
        mig: None,
        mig_profiles: Vec::new(),
        mig_instances: Vec::new(),
    }
}

fn inventory(gpus: Vec<Gpu>) -> Inventory {
    let versions = DriverVersions {
        driver: "580.95.05".to_owned(),
        cuda: (13, 0),
        nvml: "13.580.95.05".to_owned(),
    };
    Inventory { versions, gpus, unreadable: Vec::new() }
}

fn error(inventory: &Inventory) -> String {
    describe(inventory, "node").unwrap_err().to_string()
}

#[test]
fn a_description_says_once_what_all_gpus_have_in_common() {
    let machine = describe(&inventory(vec![gpu(0), gpu(1)]), "two-l4").unwrap();
    assert_eq!((machine.name.as_str(), machine.gpus.len()), ("two-l4", 2));
    assert_eq!(machine.model.architecture, "Ada");
    assert_eq!(machine.model.pci_device_id, "0x27B810DE");
    assert_eq!((machine.model.memory_mib, machine.model.reserved_mib), (23034, 439));
    assert_eq!(machine.model.power_limit_watts, 72);
    assert_eq!(machine.driver.cuda, "13.0");
    let text = machine.to_yaml().unwrap();
    assert_eq!(octavo_machine::Machine::parse(&text).unwrap(), machine);
}

#[test]
fn gpus_that_differ_are_refused_with_the_fact_that_differs() {
    let mut other = gpu(1);
    other.name = "NVIDIA T4".to_owned();
    let message = error(&inventory(vec![gpu(0), other]));
    assert!(message.starts_with("GPUs 0 and 1 differ in product name (NVIDIA L4 and NVIDIA T4)"));

    let mut other = gpu(1);
    other.nvlink = Some(NvLink { version: 4, links: 18, switched: true, peers: Vec::new() });
    assert!(error(&inventory(vec![gpu(0), other])).contains("differ in NVLink (none and"));
}

#[test]
fn limits_that_an_administrator_set_are_no_difference() {
    let mut capped = gpu(0);
    capped.power_limit_milliwatts = Some(50_000);
    capped.reserved_bytes = Some(438 << 20);
    let machine = describe(&inventory(vec![capped, gpu(1)]), "two-l4").unwrap();
    assert_eq!((machine.model.power_limit_watts, machine.model.reserved_mib), (72, 439));
}

#[test]
fn a_gpu_that_could_not_be_read_is_not_left_out_silently() {
    let mut inventory = inventory(vec![gpu(0)]);
    let error = DriverError::GpuLost { call: "nvmlDeviceGetUUID" };
    inventory.unreadable.push(UnreadableGpu { index: 1, error });
    assert!(self::error(&inventory).contains("GPU 1 could not be read"));
}

#[test]
fn a_gpu_that_sysfs_does_not_know_is_named_with_its_address() {
    let mut lost = gpu(1);
    lost.pcie_root = None;
    let message = error(&inventory(vec![gpu(0), lost]));
    assert!(message.starts_with("the PCIe root of GPU 1 at 0000:32:00.0 is not known"));
}

#[test]
fn a_node_without_gpus_is_no_machine() {
    assert!(matches!(describe(&inventory(Vec::new()), "none"), Err(DescribeError::Empty)));
}

#[test]
fn a_fabric_that_is_not_supported_is_none() {
    let fabric = |state| Fabric {
        state,
        status: 0,
        clique: None,
        cluster_uuid: "00000000-0000-0000-0000-000000000000".to_owned(),
        clique_id: 0,
        health_mask: None,
    };
    let with = |state| {
        let mut gpu = gpu(0);
        gpu.fabric = Some(fabric(state));
        describe(&inventory(vec![gpu]), "one").unwrap().fabric
    };
    assert_eq!(with(FabricState::NotSupported), None);
    assert_eq!(
        with(FabricState::InProgress).unwrap().state,
        octavo_machine::FabricState::InProgress
    );
}

#[test]
fn mig_tables_are_known_by_product_and_memory() {
    for (name, memory, table) in [
        ("NVIDIA A100-SXM4-40GB", 40960, Some("a100-40")),
        ("NVIDIA A100-SXM4-80GB", 81920, Some("a100-80")),
        ("NVIDIA A100 80GB PCIe", 81920, Some("a100-80")),
        ("NVIDIA A800-SXM4-80GB", 81920, Some("a100-80")),
        ("NVIDIA H100 80GB HBM3", 81559, Some("h100-80")),
        ("NVIDIA H100 PCIe", 81559, Some("h100-80")),
        ("NVIDIA H100 NVL", 95830, Some("h100-nvl-94")),
        ("NVIDIA H200", 143_771, Some("h200-141")),
        ("NVIDIA GH200 144G HBM3e", 146_831, Some("gh200-144")),
        ("NVIDIA GH200 480GB", 97871, None),
        ("NVIDIA B200", 183_359, Some("b200-180")),
        ("NVIDIA GB200", 189_471, Some("gb200-186")),
        ("NVIDIA A30", 24576, Some("a30-24")),
        ("NVIDIA L4", 23034, None),
        ("Tesla T4", 15360, None),
    ] {
        assert_eq!(mig_table(name, memory), table, "{name}");
    }
}
