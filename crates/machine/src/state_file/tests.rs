use crate::{GpuState, State};

use super::StateFile;

fn lost() -> State {
    State { gpus: [(0, GpuState { lost: true, ..GpuState::default() })].into(), ..State::default() }
}

#[test]
fn a_missing_file_is_a_machine_that_is_well() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = StateFile::open(folder.path().join("state.json"));
    assert_eq!(*file.refresh(), State::default());
}

#[test]
fn a_written_state_is_seen_at_once_and_so_is_its_removal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let mut file = StateFile::open(path.clone());
    lost().write(&path).unwrap();
    assert_eq!(*file.refresh(), lost());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(*file.refresh(), State::default());
}

#[test]
fn a_broken_file_leaves_the_last_good_state() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    lost().write(&path).unwrap();
    let mut file = StateFile::open(path.clone());
    std::fs::write(&path, "{\"gpus\": {\"0\"").unwrap();
    assert_eq!(*file.refresh(), lost());
    State::default().write(&path).unwrap();
    assert_eq!(*file.refresh(), State::default());
}
