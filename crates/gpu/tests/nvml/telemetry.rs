//! What a GPU measures and counts.

use octavo_gpu::{Driver as _, DriverError, GpuTelemetry, NvLinkTelemetry, PcieLink, Slowdown};
use octavo_machine::{ClocksEventReason, GpuState};

use crate::node::Node;

/// GPU 1 of a node that ships, in a state.
fn telemetry(node: &Node, set: impl FnOnce(&mut GpuState)) -> Result<GpuTelemetry, DriverError> {
    node.edit(|state| set(state.gpus.entry(1).or_default()));
    node.open().telemetry(&node.uuid(1))
}

#[test]
fn a_healthy_gpu_has_all_links_and_no_errors() {
    let node = Node::shipped("dgx-h100");
    let pcie = PcieLink { generation: 5, max_generation: 5, width: 16, max_width: 16 };
    let nvlink = NvLinkTelemetry { active: 18, links: 18, ..NvLinkTelemetry::default() };
    let expected = GpuTelemetry {
        margin_celsius: Some(87 - 32),
        is_idle: Some(true),
        slowdown: Some(Slowdown::default()),
        pcie: Some(pcie),
        pcie_replays: Some(0),
        nvlink: Some(nvlink),
    };
    assert_eq!(telemetry(&node, |_| {}).unwrap(), expected);
}

#[test]
fn link_errors_are_the_same_for_both_kinds_of_counters() {
    for (machine, links) in [("dgx-h100", 18), ("gb200-tray", 18), ("dgx-a100-80", 12)] {
        let node = Node::shipped(machine);
        let found = telemetry(&node, |gpu| {
            gpu.nvlink.inactive = [0, 5].into();
            (gpu.nvlink.crc_errors, gpu.nvlink.replays, gpu.nvlink.recoveries) = (7, 8, 9);
            gpu.pcie.replays = 10;
        });
        let found = found.unwrap();
        let expected =
            NvLinkTelemetry { active: links - 2, links, errors: 7, replays: 8, recoveries: 9 };
        assert_eq!((found.nvlink, found.pcie_replays), (Some(expected), Some(10)), "{machine}");
    }
}

#[test]
fn a_slow_link_heat_and_the_power_brake_are_seen() {
    let node = Node::shipped("dgx-h100");
    let found = telemetry(&node, |gpu| {
        gpu.temperature_celsius = Some(90);
        gpu.pcie.width = Some(8);
        gpu.pcie.generation = Some(3);
        gpu.clocks_event_reasons = [ClocksEventReason::HwThermalSlowdown].into();
    });
    let found = found.unwrap();
    assert_eq!(found.margin_celsius, Some(-3));
    let pcie = PcieLink { generation: 3, max_generation: 5, width: 8, max_width: 16 };
    assert_eq!(found.pcie, Some(pcie));
    let hot = Slowdown { is_by_hardware: true, is_hot: true, ..Slowdown::default() };
    assert_eq!(found.slowdown, Some(hot));
    let found = telemetry(&node, |gpu| {
        gpu.clocks_event_reasons =
            [ClocksEventReason::SwPowerCap, ClocksEventReason::HwPowerBrakeSlowdown].into();
    });
    let brake = Slowdown { is_by_hardware: true, is_power_brake: true, ..Slowdown::default() };
    assert_eq!(found.unwrap().slowdown, Some(brake));
}

#[test]
fn what_a_driver_does_not_know_is_absent() {
    const FUNCTION_NOT_FOUND: u32 = 13;
    let node = Node::shipped("dgx-h100");
    let found = telemetry(&node, |gpu| {
        for call in ["nvmlDeviceGetMarginTemperature", "nvmlDeviceGetFieldValues"] {
            gpu.failing_calls.insert(call.to_owned(), FUNCTION_NOT_FOUND);
        }
    });
    let found = found.unwrap();
    assert_eq!((found.margin_celsius, found.pcie_replays, found.nvlink), (None, None, None));
    assert!(found.pcie.is_some() && found.slowdown.is_some());
    // A GPU without NVLink.
    assert_eq!(
        Node::shipped("t4").open().telemetry(&Node::shipped("t4").uuid(0)).unwrap().nvlink,
        None
    );
}

#[test]
fn a_lost_gpu_has_no_telemetry() {
    let node = Node::shipped("dgx-h100");
    let lost = telemetry(&node, |gpu| gpu.lost = true).unwrap_err();
    assert!(matches!(lost, DriverError::GpuLost { .. }), "{lost:?}");
}
