use octavo_machine::RecoveryAction;

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

/// A machine whose MIG mode changes with a reset alone.
fn ampere() -> (tempfile::TempDir, MachineLocation) {
    let (folder, location) = machine();
    let text = include_str!("../../../../machines/dgx-a100-80.yaml");
    std::fs::write(folder.path().join("machine.yaml"), text).unwrap();
    (folder, location)
}

#[test]
fn a_mig_mode_that_waits_for_a_reset_is_active_after_it() {
    let (_folder, location) = ampere();
    let modes = "-i 1 --query-gpu=mig.mode.current,mig.mode.pending --format=csv,noheader";
    assert_eq!(ask(&location, modes).unwrap(), "Disabled, Disabled\n");
    assert!(ask(&location, "-i 1 -mig 1").unwrap().contains("pending state for GPU 1"));
    assert_eq!(ask(&location, modes).unwrap(), "Disabled, Enabled\n");
    assert!(ask(&location, "--gpu-reset -i 1").unwrap().contains("GPU 1 was successfully reset"));
    assert_eq!(ask(&location, modes).unwrap(), "Enabled, Enabled\n");
    let others = ask(&location, "--query-gpu=mig.mode.current --format=csv,noheader").unwrap();
    assert_eq!(others.matches("Enabled").count(), 1);
}

#[test]
fn a_gpu_that_any_process_has_open_is_not_reset() {
    let (_folder, location) = ampere();
    ask(&location, "-i 1 -mig 1").unwrap();
    let machine = location.folder.join("machine.yaml");
    let client = octavo_fake_gpu::driver_client::DriverClient::open(&machine).unwrap();
    let refused = ask(&location, "-r -i 1").unwrap_err();
    assert_eq!(refused.0, IN_USE);
    assert!(refused.1.contains("GPU 1 is currently in use"), "{}", refused.1);
    drop(client);
    ask(&location, "-r -i 1").unwrap();
}

/// Changes the state of GPU 1.
fn becomes(location: &MachineLocation, set: impl FnOnce(&mut octavo_machine::GpuState)) {
    let file = location.folder.join("state.json");
    let mut state = State::read(&file).unwrap();
    set(state.gpus.entry(1).or_default());
    state.write(&file).unwrap();
}

#[test]
fn a_reset_ends_what_the_driver_advised_it_for() {
    let (_folder, location) = ampere();
    let gpu = || State::read(&location.folder.join("state.json")).unwrap().gpus[&1].clone();
    becomes(&location, |gpu| {
        gpu.recovery_action = RecoveryAction::GpuReset;
        gpu.nvlink.replays = 7;
        gpu.nvlink.inactive = [3].into();
        gpu.reset.is_in_vain = true;
    });
    ask(&location, "-r -i 1").unwrap();
    assert_eq!(gpu().recovery_action, RecoveryAction::GpuReset, "it was in vain");
    assert_eq!((gpu().nvlink.replays, gpu().nvlink.inactive.len()), (0, 1));
    becomes(&location, |gpu| {
        gpu.reset.is_in_vain = false;
        gpu.reset.fails = true;
    });
    assert_eq!(ask(&location, "-r -i 1").unwrap_err().0, UNKNOWN);
    assert_eq!(gpu().recovery_action, RecoveryAction::GpuReset, "it failed");
    becomes(&location, |gpu| gpu.reset.fails = false);
    ask(&location, "-r -i 1").unwrap();
    assert_eq!(gpu().recovery_action, RecoveryAction::None);
    // A reboot is needed for these.
    becomes(&location, |gpu| gpu.recovery_action = RecoveryAction::NodeReboot);
    ask(&location, "-r -i 1").unwrap();
    assert_eq!(gpu().recovery_action, RecoveryAction::NodeReboot);
    becomes(&location, |gpu| gpu.lost = true);
    assert_eq!(ask(&location, "-r -i 1").unwrap_err().0, GPU_IS_LOST);
}

#[test]
fn unknown_modes_columns_and_formats_are_refused() {
    let (_folder, location) = ampere();
    for args in ["-i 1 -mig 2", "--query-gpu=name", "--query-gpu=mig.mode.current --format=xml"] {
        assert_eq!(ask(&location, args).unwrap_err().0, INVALID_ARGUMENT, "{args}");
    }
}
