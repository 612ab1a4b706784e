use clap::Parser;
use octavo_machine::NicState;

use super::*;
use crate::nodes::hardware::catalogue;

#[derive(Debug, Parser)]
struct Line {
    #[command(subcommand)]
    action: GpuAction,
}

fn parse(line: &str) -> Result<GpuAction, clap::Error> {
    let words = std::iter::once("gpu").chain(line.split_whitespace());
    Line::try_parse_from(words).map(|line| line.action)
}

fn after(lines: &[&str]) -> State {
    let machine = catalogue::load("dgx-h100").unwrap();
    let mut state = State::default();
    for line in lines {
        apply(&machine, &mut state, 3, &parse(line).unwrap()).unwrap();
    }
    state
}

#[test]
fn an_xid_is_an_event_and_may_lose_the_gpu_and_carry_advice() {
    let state = after(&["fail --xid 79 --lost --recovery-action reboot"]);
    let [event] = state.events[..] else { panic!("{:?}", state.events) };
    assert_eq!((event.gpu, event.kind, event.data), (3, EventKind::Xid, 79));
    assert!(state.gpus[&3].lost);
    assert_eq!(state.gpus[&3].recovery_action, RecoveryAction::NodeReboot);
}

#[test]
fn an_error_of_a_link_that_goes_on_carries_no_advice() {
    let state = after(&["fail --xid 145 --link nonfatal --sxid 20034"]);
    assert_eq!(state.gpus[&3].recovery_action, RecoveryAction::None);
    let state = after(&["fail --xid 145"]);
    assert_eq!(state.gpus[&3].recovery_action, RecoveryAction::GpuReset);
}

#[test]
fn memory_errors_count_both_since_load_and_for_life() {
    let state = after(&["fail --ecc corrected=5", "fail --ecc uncorrected --ecc corrected=2"]);
    let ecc = state.gpus[&3].ecc;
    assert_eq!((ecc.volatile_corrected, ecc.aggregate_corrected), (7, 7));
    assert_eq!((ecc.volatile_uncorrected, ecc.aggregate_uncorrected), (1, 1));
    assert_eq!(state.events.len(), 3);
}

#[test]
fn healing_clears_the_state_and_keeps_the_history() {
    let state = after(&["fail --xid 48", "lost", "set --temperature 95", "heal"]);
    assert!(state.gpus.is_empty());
    assert_eq!(state.events.len(), 1);
}

#[test]
fn setting_one_value_leaves_the_others() {
    let state = after(&[
        "set --temperature 71 --power 650",
        "set --utilisation 100 --call nvmlDeviceGetUUID=15 --call nvmlDeviceGetName=999",
        "set --remap-pending true --call nvmlDeviceGetName=0",
    ]);
    let gpu = &state.gpus[&3];
    assert_eq!(gpu.temperature_celsius, Some(71));
    assert_eq!(gpu.power_milliwatts, Some(650_000));
    assert_eq!(gpu.utilisation_percent, 100);
    assert!(gpu.remap_pending && !gpu.remap_failed);
    assert_eq!(gpu.failing_calls.iter().collect::<Vec<_>>(), [(&"nvmlDeviceGetUUID".into(), &15)]);
}

#[test]
fn links_clocks_and_resets_are_set_and_healed() {
    let state = after(&[
        "set --inactive-links 3,4 --nvlink-recoveries 5 --pcie-width 8 --pcie-fatal-errors 2",
        "set --slowdown heat --slowdown power-cap --reset-fails true --reset-time 7",
    ]);
    let gpu = &state.gpus[&3];
    assert_eq!(gpu.nvlink.inactive, [3, 4].into());
    assert_eq!((gpu.nvlink.recoveries, gpu.pcie.width), (5, Some(8)));
    assert_eq!(gpu.pcie.fatal_errors, 2);
    assert_eq!(gpu.clocks_event_reasons.len(), 2);
    assert!(gpu.reset.fails && gpu.reset.millis == 7);
    let state = after(&["set --inactive-links 3", "set --inactive-links none --slowdown none"]);
    assert_eq!(state.gpus[&3], GpuState::default());
    assert!(after(&["set --inactive-links 3 --pcie-replays 4", "heal"]).gpus.is_empty());
}

#[test]
fn weak_memory_and_faulty_multiprocessors_are_set_and_healed() {
    let state = after(&["set --weak-memory 8388608,7 --faulty-multiprocessors 131"]);
    let gpu = &state.gpus[&3];
    assert_eq!(gpu.weak_memory, [7, 8_388_608].into());
    assert_eq!(gpu.faulty_multiprocessors, [131].into());
    assert!(parse("set --weak-memory some").is_err());
    let none = "set --weak-memory none --faulty-multiprocessors none";
    assert_eq!(after(&["set --weak-memory 7", none]).gpus[&3], GpuState::default());
    assert!(after(&["set --weak-memory 7", "heal"]).gpus.is_empty());
}

#[test]
fn network_cards_are_set_by_their_gpu_and_healed_with_it() {
    let state = after(&["set --nic-down true --nic-symbol-errors 121", "set --nic-down true"]);
    let down = NicState { is_down: true, symbol_errors: 121, downs: 1, ..NicState::default() };
    assert_eq!(state.nics, [("mlx5_5".to_owned(), down)].into());
    assert_eq!(state.gpus[&3], GpuState::default());
    let state =
        after(&["set --nic-down true --nic-downs 7", "set --nic-down false --nic-recoveries 6"]);
    let up = NicState { recoveries: 6, downs: 7, ..NicState::default() };
    assert_eq!(state.nics["mlx5_5"], up);
    assert!(after(&["set --nic-down true", "heal"]).nics.is_empty());
    let machine = catalogue::load("l4").unwrap();
    let action = parse("set --nic-down true").unwrap();
    let error = apply(&machine, &mut State::default(), 0, &action).unwrap_err().to_string();
    assert!(error.contains("it has no network card") && error.contains("l4"), "{error}");
}

#[test]
fn a_reset_ends_what_the_driver_advised_it_for() {
    let advice = |lines: &[&str]| after(lines).gpus[&3].recovery_action;
    assert_eq!(advice(&["fail --xid 95", "reset"]), RecoveryAction::None);
    assert_eq!(advice(&["fail --xid 79", "reset"]), RecoveryAction::NodeReboot);
    let in_vain = ["set --reset-in-vain true", "fail --xid 95", "reset"];
    assert_eq!(advice(&in_vain), RecoveryAction::GpuReset);
}

#[test]
fn a_fault_without_a_kind_and_nonsense_are_refused() {
    for line in [
        "fail",
        "set",
        "fail --ecc some",
        "set --utilisation 101",
        "set --call name=1",
        "set --inactive-links x",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn the_state_on_disk_is_changed_in_place() {
    let machine = catalogue::load("l4").unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join(DRIVER_DIR)).unwrap();
    for index in 0..2 {
        let lose = |state: &mut State| apply(&machine, state, index, &GpuAction::Lost);
        let done = edit(folder.path(), &machine, lose).unwrap();
        assert_eq!(done, ActionResult::Changed("is lost".to_owned()));
    }
    let state = State::read(&folder.path().join(DRIVER_DIR).join("state.json")).unwrap();
    assert_eq!(state.gpus.len(), 2);
}

#[test]
fn a_rebooted_node_has_neither_instances_nor_their_capabilities() {
    let machine = catalogue::load("dgx-a100-80").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let capabilities = folder.path().join("proc/driver/nvidia/capabilities");
    std::fs::create_dir_all(&capabilities).unwrap();
    std::fs::create_dir_all(folder.path().join(DRIVER_DIR)).unwrap();
    std::fs::write(machine_file(folder.path()), machine.to_yaml().unwrap()).unwrap();
    let act = |line: &str| {
        let action = parse(line).unwrap();
        edit(folder.path(), &machine, |state| apply(&machine, state, 0, &action)).unwrap();
    };
    for line in ["mig mode on", "reset", "mig create 1g.10gb@6", "fail --ecc uncorrected=3"] {
        act(line);
    }
    assert!(capabilities.join("gpu0/mig/gi13/ci0/access").exists());
    reboot(folder.path()).unwrap();
    assert!(!capabilities.join("gpu0/mig/gi13").exists());
    let state = State::read(&folder.path().join(DRIVER_DIR).join("state.json")).unwrap();
    let gpu = &state.gpus[&0];
    assert!(gpu.mig.instances.is_empty());
    assert_eq!(gpu.mig.enabled, Some(true), "the board remembers the mode");
    assert_eq!((gpu.ecc.volatile_uncorrected, gpu.ecc.aggregate_uncorrected), (0, 3));
}
