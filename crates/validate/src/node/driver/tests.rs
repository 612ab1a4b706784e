use std::fs;
use std::os::unix::fs::symlink;

use octavo_testkit::simulated_nvml;

use super::*;
use crate::report::State;

const MACHINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines");

/// A driver's root with the simulated driver of a machine, and device nodes of its own.
fn driver_root(machine: &str, nodes: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let libraries = root.path().join("usr/lib64");
    fs::create_dir_all(&libraries).unwrap();
    fs::copy(simulated_nvml(), libraries.join("libnvidia-ml.so.1")).unwrap();
    fs::copy(format!("{MACHINES}/{machine}"), libraries.join("machine.yaml")).unwrap();
    fs::create_dir(root.path().join("dev")).unwrap();
    for node in nodes {
        // A character device for which no right is needed.
        symlink("/dev/null", root.path().join("dev").join(node)).unwrap();
    }
    root
}

fn check_root(root: &tempfile::TempDir) -> Finding {
    check(&DriverRoot::new(Path::new("/run/nvidia/driver"), Some(root.path())))
}

#[test]
fn a_driver_with_all_gpus_and_device_nodes_is_ready() {
    let root = driver_root("t4.yaml", &["nvidiactl", "nvidia0", "nvidia1", "nvidia2", "nvidia3"]);
    let finding = check_root(&root);
    assert_eq!(finding.state, State::Ready, "{finding:?}");
    assert!(finding.message.contains("lists its GPUs: "), "{finding:?}");
}

#[test]
fn missing_device_nodes_are_named() {
    let finding = check_root(&driver_root("t4.yaml", &["nvidiactl"]));
    assert_eq!(finding.state, State::Failed);
    assert!(finding.message.contains("lacks device nodes: nvidia0"), "{finding:?}");
}

#[test]
fn a_lost_gpu_is_named_with_what_to_do() {
    let root = driver_root("t4.yaml", &["nvidiactl", "nvidia0", "nvidia1", "nvidia2", "nvidia3"]);
    let state = r#"{"gpus": {"1": {"lost": true}}}"#;
    fs::write(root.path().join("usr/lib64/state.json"), state).unwrap();
    let finding = check_root(&root);
    assert_eq!(finding.state, State::Failed, "{finding:?}");
    assert!(finding.message.contains("lost"), "{finding:?}");
    assert!(finding.remedy.unwrap().contains("reset the GPU"));
}

#[test]
fn without_a_library_the_message_says_where_it_was_searched() {
    let root = tempfile::tempdir().unwrap();
    let finding = check_root(&root);
    assert_eq!(finding.state, State::Failed);
    assert!(finding.message.contains("libnvidia-ml.so.1"), "{finding:?}");
}

#[test]
fn operands_read_where_the_driver_and_the_device_nodes_are() {
    let host = DriverRoot::new(Path::new("/"), Some(Path::new("/driver-root")));
    assert_eq!(
        host.variables(),
        "IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\nDRIVER_ROOT_CTR_PATH=/host\nNVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n"
    );
    let root = driver_root("t4.yaml", &[]);
    let container = DriverRoot::new(Path::new("/run/nvidia/driver"), Some(root.path()));
    assert_eq!(
        container.variables(),
        "IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\nDRIVER_ROOT_CTR_PATH=/driver-root\n\
         NVIDIA_DEV_ROOT=/run/nvidia/driver\nDEV_ROOT_CTR_PATH=/driver-root\n"
    );
    fs::remove_dir(root.path().join("dev")).unwrap();
    let text = container.variables();
    assert!(text.ends_with("NVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n"), "{text}");
}

#[tokio::test]
async fn a_driver_that_does_not_answer_is_a_failure() {
    let (release, hang) = std::sync::mpsc::channel::<()>();
    let hanging = move || {
        let _ = hang.recv();
        Finding::ready(Component::Driver, "late".to_owned())
    };
    let finding = within(Duration::from_millis(20), hanging).await;
    assert_eq!(finding.state, State::Failed);
    assert!(finding.message.contains("does not answer within"), "{finding:?}");
    drop(release);
    let answer = || Finding::ready(Component::Driver, "in time".to_owned());
    assert_eq!(within(Duration::from_mins(1), answer).await.message, "in time");
}
