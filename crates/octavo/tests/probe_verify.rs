//! `octavo probe verify` on a simulated machine: exit codes, reports, and what faults of the machine lead to.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use octavo_testkit::{simulated_cuda, simulated_nvml};
use serde_json::Value;
use tempfile::TempDir;

const OCTAVO: &str = env!("CARGO_BIN_EXE_octavo");

/// A folder with the driver of a simulated machine in a state.
fn machine(description: &str, state: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let put = |from: &Path, name: &str| fs::copy(from, folder.path().join(name)).unwrap();
    put(&simulated_cuda(), "libcuda.so.1");
    put(&simulated_nvml(), "libnvidia-ml.so.1");
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    put(&machines.join(description), "machine.yaml");
    fs::write(folder.path().join("state.json"), state).unwrap();
    folder
}

/// Runs the command in a machine for a second.
fn verify(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(OCTAVO);
    command.args(["probe", "verify", "--seconds", "1", "--memory", "1"]).args(arguments);
    command.env("LD_LIBRARY_PATH", folder).env_remove("CUDA_VISIBLE_DEVICES").output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn verdict<'a>(report: &'a Value, check: &str) -> &'a str {
    let checks = report["gpus"][0]["checks"].as_array().unwrap();
    checks.iter().find(|one| one["check"] == check).unwrap()["verdict"].as_str().unwrap()
}

#[test]
fn a_machine_without_faults_passes() {
    let machine = machine("dgx-h100.yaml", "{}");
    let output = verify(machine.path(), &["--gpus", "3,1", "-o", "json"]);
    let report = json(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!(report["kind"], "ProbeVerify");
    assert_eq!(report["verdict"], "passed");
    assert_eq!(report["gpus"][0]["gpu"], 3, "in the order of the command line");
    assert_eq!(report["gpus"][1]["gpu"], 1);
    for check in ["facts", "memory", "compute", "peers"] {
        assert_eq!(verdict(&report, check), "passed", "{report:#}");
    }
    let uuid = report["gpus"][1]["uuid"].as_str().unwrap().to_owned();
    let output = verify(machine.path(), &["--gpus", &uuid]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains(&uuid) && text.contains("passed: GPUs tested"), "{text}");
    assert!(text.contains("not tried  one GPU is tested"), "{text}");
}

#[test]
fn what_the_driver_says_fails_before_any_work() {
    for (state, message) in [
        (r#""recoveryAction": "gpuReset""#, "a reset of the GPU"),
        (r#""remapPending": true"#, "a row remap waits for a reset"),
        (r#""remapFailed": true"#, "a row remap has failed"),
        (r#""nvlink": {"inactive": [3, 4]}"#, "of 18 NVLink links 2 are not active"),
        (r#""lost": true"#, "lost"),
    ] {
        let machine = machine("dgx-h100.yaml", &format!(r#"{{"gpus": {{"0": {{{state}}}}}}}"#));
        let output = verify(machine.path(), &["--gpus", "0", "-o", "json"]);
        let report = json(&output);
        assert_eq!(output.status.code(), Some(1), "{report:#}");
        assert_eq!(verdict(&report, "facts"), "failed");
        let found = report["gpus"][0]["checks"][0]["message"].as_str().unwrap();
        assert!(found.contains(message), "{found}");
        assert_eq!(verdict(&report, "memory"), "notTried");
    }
}

#[test]
fn faults_of_memory_multiprocessors_and_kernels_fail() {
    for (state, check, message) in [
        (r#""weakMemory": [2097160]"#, "memory", "words of memory"),
        (r#""faultyMultiprocessors": [5]"#, "compute", "elements of products"),
        (
            r#""kernels": {"octavo_verify_fill": {"fault": "neverEnds"}}"#,
            "memory",
            "did not end within 1 s",
        ),
    ] {
        let machine = machine("t4.yaml", &format!(r#"{{"gpus": {{"0": {{{state}}}}}}}"#));
        let output = verify(machine.path(), &["--gpus", "0", "--deadline", "1", "-o", "json"]);
        let report = json(&output);
        assert_eq!(output.status.code(), Some(1), "{report:#}");
        assert_eq!(verdict(&report, check), "failed");
        assert!(report.to_string().contains(message), "{report:#}");
        let text = verify(machine.path(), &["--gpus", "0", "--deadline", "1"]);
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        assert!(text.contains("FAILED: GPUs with faults: 1 of 1"), "{text}");
    }
}

#[test]
fn what_cannot_be_tried_has_a_code_of_its_own() {
    let empty = tempfile::tempdir().unwrap();
    let output = verify(empty.path(), &["-o", "json"]);
    let report = json(&output);
    assert_eq!(output.status.code(), Some(3), "{report:#}");
    assert_eq!(report["verdict"], "notTried");
    assert!(report["message"].as_str().unwrap().contains("libcuda.so.1"), "{report:#}");

    let machine = machine("t4.yaml", r#"{"failingCalls": {"cuMemAlloc": 2}}"#);
    let output = verify(machine.path(), &["--gpus", "0"]);
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("not tried: nothing is known of 1 GPUs of 1"), "{text}");
    let output = verify(machine.path(), &["--gpus", "GPU-none"]);
    assert_eq!(output.status.code(), Some(3));
    let output = verify(machine.path(), &["--seconds", "0"]);
    assert_eq!(output.status.code(), Some(2));
}
