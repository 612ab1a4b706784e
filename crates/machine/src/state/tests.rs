use super::{Event, EventKind, GpuState, RecoveryAction, ResetState, State};

#[test]
fn missing_state_file_is_the_default_state() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(State::read(&folder.path().join("state.json")).unwrap(), State::default());
}

#[test]
fn a_state_survives_being_written_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let gpu = GpuState {
        lost: true,
        recovery_action: RecoveryAction::DrainAndReset,
        fabric_health: Some(0x1aa),
        failing_calls: [("nvmlDeviceGetUUID".to_owned(), 999)].into(),
        ..GpuState::default()
    };
    let event = Event {
        gpu: 3,
        kind: EventKind::Xid,
        data: 79,
        gpu_instance: None,
        compute_instance: Some(1),
    };
    let state = State { gpus: [(3, gpu)].into(), events: vec![event], ..State::default() };
    state.write(&path).unwrap();
    assert_eq!(State::read(&path).unwrap(), state);
    let files = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 1, "writing leaves nothing else behind");
}

#[test]
fn a_hand_written_state_needs_only_what_differs() {
    let state: State = serde_json::from_str(
        r#"{"gpus": {"0": {"recoveryAction": "gpuReset"}}, "events": [{"gpu": 0, "kind": "xid", "data": 48}]}"#,
    )
    .unwrap();
    assert_eq!(state.gpus[&0].recovery_action, RecoveryAction::GpuReset);
    assert_eq!(state.events[0].data, 48);
}

#[test]
fn an_unknown_field_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    std::fs::write(&path, r#"{"gpus": {"0": {"lots": true}}}"#).unwrap();
    let message = State::read(&path).unwrap_err().to_string();
    assert!(message.starts_with("not a machine state: ") && message.contains("lots"), "{message}");
}

#[test]
fn versions_of_one_size_that_follow_fast_differ_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let times: Vec<_> = (0..50)
        .map(|n| {
            let gpu = GpuState { lost: n % 2 == 0, ..GpuState::default() };
            let state = State { gpus: [(n % 3, gpu)].into(), ..State::default() };
            state.write(&path).unwrap();
            std::fs::metadata(&path).unwrap().modified().unwrap()
        })
        .collect();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn a_reboot_keeps_faults_and_what_is_counted_for_life() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let machine = crate::Machine::read(&folder.join("dgx-h100.yaml")).unwrap();
    let ecc = crate::Ecc {
        volatile_corrected: 1,
        volatile_uncorrected: 2,
        aggregate_corrected: 3,
        aggregate_uncorrected: 4,
    };
    let gpu = GpuState { ecc, processes: 5, remap_failed: true, ..GpuState::default() };
    let mut state = State { gpus: [(6, gpu)].into(), mig_create_millis: 7, ..State::default() };
    state.reboot(&machine);
    let gpu = &state.gpus[&6];
    assert_eq!((gpu.ecc.volatile_corrected, gpu.ecc.volatile_uncorrected), (0, 0));
    assert_eq!((gpu.ecc.aggregate_corrected, gpu.ecc.aggregate_uncorrected), (3, 4));
    assert_eq!((gpu.processes, gpu.remap_failed, state.mig_create_millis), (0, true, 7));
}

#[test]
fn a_reboot_brings_a_lost_gpu_back_unless_it_is_in_vain() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let machine = crate::Machine::read(&folder.join("dgx-h100.yaml")).unwrap();
    for is_in_vain in [false, true] {
        let gpu = GpuState {
            lost: true,
            recovery_action: RecoveryAction::NodeReboot,
            reset: ResetState { is_in_vain, ..ResetState::default() },
            ..GpuState::default()
        };
        let mut state = State { gpus: [(6, gpu)].into(), ..State::default() };
        state.reboot(&machine);
        let gpu = &state.gpus[&6];
        assert_eq!(gpu.lost, is_in_vain);
        assert_eq!(gpu.recovery_action == RecoveryAction::None, !is_in_vain);
    }
}
