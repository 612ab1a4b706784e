use super::*;

/// A machine of eight GPUs, in a folder of its own.
fn machine() -> (tempfile::TempDir, MachineLocation) {
    let folder = tempfile::tempdir().unwrap();
    let text = include_str!("../../../../machines/dgx-h100.yaml");
    std::fs::write(folder.path().join("machine.yaml"), text).unwrap();
    let location = MachineLocation { folder: folder.path().to_owned(), devices: None };
    (folder, location)
}

fn ask(location: &MachineLocation, args: &str) -> Result<String, Failure> {
    let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
    answer(&args, location)
}

fn states(location: &MachineLocation) -> Vec<(u32, u32)> {
    let state = State::read(&location.folder.join("state.json")).unwrap();
    (0..8)
        .map(|index| {
            state.gpus.get(&index).map_or((0, 0), |gpu| (gpu.compute_mode, gpu.time_slice))
        })
        .collect()
}

#[test]
fn a_time_slice_is_set_on_the_named_gpus_alone() {
    let (_folder, location) = machine();
    let listed = ask(&location, "-L").unwrap();
    let uuid = listed.lines().nth(2).unwrap().split("UUID: ").nth(1).unwrap();
    let uuid = uuid.trim_end_matches(')');
    ask(&location, &format!("compute-policy -i {uuid} --set-timeslice=2")).unwrap();
    ask(&location, "compute-policy --id 5 --set-timeslice 3").unwrap();
    let slices: Vec<u32> = states(&location).into_iter().map(|(_, slice)| slice).collect();
    assert_eq!(slices, [0, 0, 2, 0, 0, 3, 0, 0]);
    let shown = ask(&location, "compute-policy -l -i 2").unwrap();
    assert!(shown.contains("|   2   Timeslice       Medium        |"), "{shown}");
}

#[test]
fn a_compute_mode_has_a_name_or_a_number() {
    let (_folder, location) = machine();
    ask(&location, "-i 0 -c EXCLUSIVE_PROCESS").unwrap();
    ask(&location, "-i 1 -c 2").unwrap();
    let modes: Vec<u32> = states(&location).into_iter().map(|(mode, _)| mode).collect();
    assert_eq!(modes[..3], [3, 2, 0]);
}

#[test]
fn wrong_input_has_the_exit_code_of_the_manual_and_changes_nothing() {
    let (_folder, location) = machine();
    for (args, code) in [
        ("compute-policy -i 99 -l", NOT_FOUND),
        ("compute-policy -i GPU-x --set-timeslice=1", NOT_FOUND),
        ("compute-policy --set-timeslice=9", INVALID_ARGUMENT),
        ("-i 0 -c SOMETIMES", INVALID_ARGUMENT),
        ("--unknown", INVALID_ARGUMENT),
        ("", INVALID_ARGUMENT),
    ] {
        let failure = ask(&location, args).unwrap_err();
        assert_eq!(failure.0, code, "{args}: {failure:?}");
    }
    assert_eq!(states(&location), [(0, 0); 8]);
}
