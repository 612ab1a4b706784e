use std::fs;
use std::path::Path;

use super::*;

const POD: &str = "6f1c2c9e-0000-4000-8000-000000000001";
const SLICE: &str = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6f1c2c9e_0000_4000_8000_000000000001.slice";

/// A process of a proc file system.
fn process(root: &Path, pid: u32, parent: u32, start_time: u64, cgroup: &str) {
    let folder = root.join(pid.to_string());
    fs::create_dir_all(folder.join("task").join(pid.to_string())).unwrap();
    let stat =
        format!("{pid} (a) b) S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start_time} 0 0");
    fs::write(folder.join("stat"), &stat).unwrap();
    fs::write(folder.join("task").join(pid.to_string()).join("stat"), &stat).unwrap();
    fs::write(folder.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
}

#[test]
fn the_first_process_of_a_container_is_the_one_that_its_runtime_started() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let own = format!("{SLICE}/cri-containerd-abc.scope");
    process(root, 50, 10, 700, &own);
    process(root, 7, 50, 700, &own);
    process(root, 3, 10, 900, &own);
    process(root, 51, 10, 600, &format!("{SLICE}/cri-containerd-def.scope"));
    process(root, 10, 1, 500, "/system.slice/containerd.service");
    let containers = Containers::new(root.to_owned());
    let first = containers.first_process(POD, "abc").unwrap();
    assert_eq!(first, Some(Process { pid: 50, start_time: 700 }));
    assert_eq!(containers.first_process(POD, "ghi").unwrap(), None);
    assert_eq!(containers.first_process("another", "abc").unwrap(), None);
    assert!(containers.has_pod(POD).unwrap());
    assert!(!containers.has_pod("another").unwrap());
}

#[test]
fn a_cgroup_within_a_container_names_no_other_container() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let hostile =
        format!("{SLICE}/crio-evil.scope/kubepods-pod{}.slice/crio-abc.scope", "0".repeat(32));
    process(root, 5, 1, 1, &hostile);
    process(root, 6, 1, 2, &format!("/../../pod{POD}/abc"));
    let containers = Containers::new(root.to_owned());
    let first = containers.first_process(POD, "abc").unwrap();
    assert_eq!(first, Some(Process { pid: 6, start_time: 2 }));
    assert_eq!(containers.first_process(&"0".repeat(32), "abc").unwrap(), None);
}

#[test]
fn the_process_that_watches_over_a_container_is_none_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let containers = Containers::new(root.to_owned());
    for (pid, scope) in [(40, "crio-conmon-abc.scope"), (41, "conmon-abc.scope")] {
        process(root, pid, 1, 600, &format!("{SLICE}/{scope}"));
    }
    assert_eq!(containers.first_process(POD, "abc").unwrap(), None);
    process(root, 50, 40, 700, &format!("{SLICE}/crio-abc.scope"));
    let first = containers.first_process(POD, "abc").unwrap();
    assert_eq!(first, Some(Process { pid: 50, start_time: 700 }));
    assert!(containers.has_pod(POD).unwrap());
}
