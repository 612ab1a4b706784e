use super::*;

const MACHINE: &str = r#"
name: two
description: two GPUs
driver: {version: 580.95.05, cuda: "13.0", nvml: 13.580.95.05}
model:
  name: NVIDIA GB200
  brand: Nvidia
  architecture: Blackwell
  computeCapability: "10.0"
  memoryMib: 189471
  multiprocessors: 152
  pciDeviceId: "0x294110DE"
  addressingMode: ATS
  ecc: true
  powerLimitWatts: 1200
  smClockMhz: 2062
  memoryClockMhz: 3996
gpus:
  - {minor: 0, pci: "0008:01:00.0", pcieRoot: "pci0008:00"}
  - {minor: 1, pci: "0009:01:00.0", pcieRoot: "pci0009:00"}
"#;

#[test]
fn a_node_is_born_ready_and_sized_to_its_machine() {
    let machine = Machine::parse(MACHINE).unwrap();
    let (address, now) = (Ipv4Addr::new(127, 66, 0, 1), Timestamp::UNIX_EPOCH);
    let counts = [("nvidia.com/gpu".to_owned(), Count { capacity: 2, allocatable: 1 })].into();
    let node = node("n", Some(&machine), address, now, &counts);
    let status = node.status.unwrap();
    let capacity = status.capacity.unwrap();
    assert_eq!(capacity["cpu"].0, "32");
    assert_eq!(capacity["memory"].0, "741Gi");
    assert_eq!(capacity["pods"].0, "110");
    assert_eq!(capacity["nvidia.com/gpu"].0, "2");
    let allocatable = status.allocatable.unwrap();
    assert_eq!(
        (allocatable["nvidia.com/gpu"].0.as_str(), allocatable["cpu"].0.as_str()),
        ("1", "32")
    );
    let ready = status.conditions.unwrap().into_iter().find(|c| c.type_ == "Ready").unwrap();
    assert_eq!(ready.status, "True");
    assert_eq!(node.metadata.labels.unwrap()["kubernetes.io/arch"], "arm64");
}

#[test]
fn a_node_without_a_description_has_plain_defaults() {
    let capacity = capacity(None);
    assert_eq!((capacity["cpu"].0.as_str(), capacity["memory"].0.as_str()), ("16", "64Gi"));
    assert_eq!(labels("n", None)["kubernetes.io/hostname"], "n");
}
