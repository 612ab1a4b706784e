use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use super::change;
use crate::{GpuInstance, KernelModule, Machine, MachineError, State};

const PARTS: [&str; 2] = ["driver/usr/lib64", "proc/driver/nvidia/capabilities"];

struct Node {
    folder: tempfile::TempDir,
    machine: Machine,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for part in PARTS {
            fs::create_dir_all(folder.path().join(part)).unwrap();
        }
        let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
        let machine = Machine::read(&machines.join("dgx-h100.yaml")).unwrap();
        Self { folder, machine }
    }

    fn driver(&self) -> PathBuf {
        self.folder.path().join(PARTS[0])
    }

    fn capability(&self, path: &str) -> PathBuf {
        self.folder.path().join(PARTS[1]).join(path)
    }

    fn change(&self, edit: impl FnOnce(&mut State)) {
        change(&self.driver(), &self.machine, |state| {
            edit(state);
            Ok::<_, MachineError>(())
        })
        .unwrap();
    }

    fn state(&self) -> State {
        State::read(&self.driver().join("state.json")).unwrap()
    }
}

/// An instance at the first memory slice, with one compute instance.
fn instance() -> GpuInstance {
    let text =
        r#"{"profile": 19, "start": 0, "computeInstances": {"0": {"profile": 0, "start": 0}}}"#;
    serde_json::from_str(text).unwrap()
}

#[test]
fn no_change_is_lost_when_many_write() {
    let node = Node::new();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    node.change(|state| state.gpus.entry(0).or_default().memory_used_mib += 1);
                }
            });
        }
    });
    assert_eq!(node.state().gpus[&0].memory_used_mib, 100);
}

#[test]
fn a_change_that_is_refused_writes_nothing() {
    let node = Node::new();
    let refused: Result<(), MachineError> = change(&node.driver(), &node.machine, |state| {
        state.gpus.entry(0).or_default().lost = true;
        Err(MachineError::Parse("no".to_owned()))
    });
    assert!(refused.is_err());
    assert!(!node.driver().join("state.json").exists());
}

#[test]
fn capabilities_follow_the_instances() {
    let node = Node::new();
    node.change(|state| {
        state.gpus.entry(2).or_default().mig.instances.insert(7, instance());
        state.gpus.entry(5).or_default().mig.instances.insert(7, instance());
    });
    let outer = fs::read_to_string(node.capability("gpu2/mig/gi7/access")).unwrap();
    let minor = 3 + (2 * 15 + 7) * 9;
    assert_eq!(
        outer,
        format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
    );
    let inner = fs::read_to_string(node.capability("gpu2/mig/gi7/ci0/access")).unwrap();
    assert!(inner.starts_with(&format!("DeviceFileMinor: {}\n", minor + 1)), "{inner}");
    node.change(|state| {
        let mig = &mut state.gpus.get_mut(&2).unwrap().mig;
        mig.instances.get_mut(&7).unwrap().compute_instances.clear();
    });
    assert!(node.capability("gpu2/mig/gi7/access").exists());
    assert!(!node.capability("gpu2/mig/gi7/ci0").exists());
    node.change(|state| state.gpus.get_mut(&2).unwrap().mig.instances.clear());
    assert!(!node.capability("gpu2/mig/gi7").exists());
    assert!(node.capability("gpu5/mig/gi7/ci0/access").exists(), "another GPU's stay");
}

#[test]
fn a_folder_that_is_no_part_of_a_node_has_no_capabilities() {
    let node = Node::new();
    let apart = node.folder.path().join("apart");
    fs::create_dir(&apart).unwrap();
    let make = |state: &mut State| {
        state.gpus.entry(0).or_default().mig.instances.insert(7, instance());
        Ok::<_, MachineError>(())
    };
    change(&apart, &node.machine, make).unwrap();
    assert_eq!(fs::read_dir(node.folder.path().join(PARTS[1])).unwrap().count(), 0);
    assert_eq!(fs::read_dir(apart).unwrap().count(), 2, "the state and its lock");
}

#[test]
fn a_state_that_cannot_be_read_is_not_overwritten() {
    let node = Node::new();
    fs::write(node.driver().join("state.json"), "{").unwrap();
    let answer: Result<(), MachineError> = change(&node.driver(), &node.machine, |_| Ok(()));
    assert!(answer.unwrap_err().to_string().starts_with("not a machine state"));
    assert_eq!(fs::read_to_string(node.driver().join("state.json")).unwrap(), "{");
}

#[test]
fn the_kernel_s_lists_follow_its_modules() {
    let node = Node::new();
    let list = |name: &str| fs::read_to_string(node.folder.path().join("proc").join(name));
    node.change(|state| state.mig_create_millis = 1);
    assert!(list("modules").is_err(), "nothing has changed of the modules");
    node.change(|state| state.unload(KernelModule::NvidiaUvm));
    assert!(!list("modules").unwrap().contains("nvidia_uvm"));
    assert!(!list("devices").unwrap().contains("nvidia-uvm"));
    node.change(|state| state.load(&node.machine, KernelModule::NvidiaUvm));
    assert!(list("modules").unwrap().contains("nvidia_uvm "));
    assert!(list("devices").unwrap().contains("508 nvidia-uvm"));
}
