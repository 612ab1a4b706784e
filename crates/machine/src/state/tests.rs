use super::{Event, EventKind, GpuState, RecoveryAction, State};

#[test]
fn a_state_that_is_not_there_is_that_of_a_machine_to_which_nothing_happened() {
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
