use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use octavo_machine::{GpuState, Machine, NicState, PcieState, State};

use crate::nodes::driver_libraries::DriverLibraries;

use super::{build, build_shared, catalogue, place_in_fabric, show_faults};

const BOOT_ID: &str = "0f0e0d0c-0b0a-4908-8706-050403020100";

struct Node {
    folder: tempfile::TempDir,
    libraries: DriverLibraries,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = folder.path().join(name);
            fs::write(&path, "the simulated library").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        for program in ["nvidia-cuda-mps-control", "nvidia-imex", "nvidia-imex-ctl", "fake-kmod"] {
            file(program);
        }
        let libraries = DriverLibraries {
            management: file("library.so"),
            cuda: file("cuda.so"),
            programs: file("nvidia-smi").parent().unwrap().to_owned(),
        };
        Self { folder, libraries }
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("node")
    }

    fn build(&self, machine: &Machine) {
        let shared = self.folder.path().join("machines").join(&machine.name);
        build_shared(&shared, machine).unwrap();
        build(&self.dir(), &shared, "node-0", machine, &self.libraries, BOOT_ID).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.dir().join(path)).unwrap()
    }
}

fn listing(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                found.push((path, format!("-> {}", target.display())));
            } else if path.is_dir() {
                found.push((path.clone(), String::new()));
                open.push(path);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_node_has_what_an_agent_looks_for() {
    let node = Node::new();
    node.build(&catalogue::load("dgx-h100").unwrap());
    let lib = node.dir().join("driver/usr/lib64");
    assert_eq!(fs::read_to_string(lib.join("libnvidia-ml.so")).unwrap(), "the simulated library");
    assert_eq!(
        fs::read_link(lib.join("libnvidia-ml.so.1")).unwrap(),
        Path::new("libnvidia-ml.so.580.95.05")
    );
    assert!(lib.join("libcuda.so.1").exists());
    assert!(lib.join("libnvidia-nvvm.so.4").exists());
    let smi = fs::metadata(node.dir().join("driver/usr/bin/nvidia-smi")).unwrap();
    assert_eq!(smi.permissions().mode() & 0o111, 0o111);
    assert!(node.dir().join("driver/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin").exists());
    let machine = Machine::read(&lib.join("machine.yaml")).unwrap();
    let uuid = machine.gpus[3].uuid.clone().unwrap();
    assert_eq!(uuid, octavo_machine::derive_uuid("node-0", 3));

    assert!(!node.dir().join("dev").exists(), "containers get device nodes by number");
    assert_eq!(node.read("proc/sys/kernel/random/boot_id"), format!("{BOOT_ID}\n"));
    assert!(node.read("proc/devices").contains("195 nvidia\n"));
    assert!(node.read("proc/modules").contains("nvidia_modeset 1048576 1 nvidia_drm, Live"));
    assert_eq!(node.read("driver/usr/bin/rmmod"), "the simulated library");
    assert!(node.read("proc/driver/nvidia/version").contains("x86_64  580.95.05"));
    assert!(node.read("proc/driver/nvidia/params").contains("ModifyDeviceFiles: 1\n"));
    assert!(node.read("proc/driver/nvidia/gpus/0000:61:00.0/information").contains(&uuid));
    assert!(node.dir().join("proc/driver/nvidia/capabilities/mig/config").exists());
    assert!(!node.dir().join("proc/driver/nvidia/capabilities/fabric-imex-mgmt").exists());
}

#[test]
fn every_instance_that_there_could_be_has_a_number() {
    let node = Node::new();
    node.build(&catalogue::load("dgx-h100").unwrap());
    let table = node.read("proc/driver/nvidia-caps/mig-minors");
    assert!(table.starts_with("config 1\nmonitor 2\ngpu0/gi0/access 3\ngpu0/gi0/ci0/access 4\n"));
    // Eight GPUs, each with 14 placements of GPU instances and 28 of compute instances.
    assert_eq!(table.lines().count(), 2 + 8 * (14 + 28));
}

#[test]
fn a_machine_without_mig_has_no_numbers_of_instances() {
    let node = Node::new();
    node.build(&catalogue::load("t4").unwrap());
    assert!(!node.dir().join("proc/driver/nvidia-caps").exists());
}

#[test]
fn a_node_has_few_files_of_its_own() {
    let node = Node::new();
    node.build(&catalogue::load("dgx-h100").unwrap());
    let own = listing(&node.dir()).len();
    assert!(own < 110, "{own} entries, and there are hundreds of nodes");
}

#[test]
fn a_gpu_s_link_in_sysfs_leads_through_its_root() {
    let node = Node::new();
    node.build(&catalogue::load("dgx-a100-80").unwrap());
    let link = fs::read_link(node.dir().join("sys/bus/pci/devices/0000:90:00.0")).unwrap();
    assert!(link.starts_with("../../../devices/pci0000:80"), "{}", link.display());
    let gpu = "sys/bus/pci/devices/0000:90:00.0";
    assert_eq!(node.read(&format!("{gpu}/numa_node")), "7\n");
    assert_eq!(node.read(&format!("{gpu}/device")), "0x20b2\n");
    assert_eq!(node.read(&format!("{gpu}/drm/renderD133/dev")), "226:133\n");
    // The other GPU below that root is behind the same switch, at another port.
    let other = fs::read_link(node.dir().join("sys/bus/pci/devices/0000:87:00.0")).unwrap();
    let above = |path: &Path, levels: usize| path.ancestors().nth(levels).unwrap().to_owned();
    assert_eq!(above(&link, 2), above(&other, 2));
    assert_ne!(above(&link, 1), above(&other, 1));
}

#[test]
fn a_network_card_is_behind_the_switch_of_its_gpu_and_has_a_port() {
    let node = Node::new();
    node.build(&catalogue::load("dgx-h100").unwrap());
    let link = |path: &str| fs::read_link(node.dir().join(path)).unwrap();
    let card = link("sys/class/infiniband/mlx5_5");
    let below = "devices/pci0000:59/0000:59:01.0/0000:5a:00.0/0000:5b:1e.0/0000:5e:00.0";
    assert_eq!(card, Path::new("../..").join(below).join("infiniband/mlx5_5"));
    assert_eq!(link("sys/class/infiniband/mlx5_5/device"), Path::new("../../../0000:5e:00.0"));
    assert_eq!(link("sys/bus/pci/devices/0000:5e:00.0"), Path::new("../../..").join(below));
    let gpu = link("sys/bus/pci/devices/0000:61:00.0");
    assert!(gpu.starts_with("../../../devices/pci0000:59/0000:59:01.0/0000:5a:00.0"));
    let port = "sys/class/infiniband/mlx5_5/ports/1";
    assert_eq!(node.read(&format!("{port}/state")), "4: ACTIVE\n");
    assert_eq!(node.read(&format!("{port}/counters/symbol_error")), "0\n");
    assert!(node.dir().join("sys/class/infiniband/mlx5_5/device/vendor").exists());
}

#[test]
fn a_node_whose_devices_fail_has_a_sysfs_of_its_own() {
    let node = Node::new();
    let machine = catalogue::load("dgx-h100").unwrap();
    node.build(&machine);
    let shared = node.folder.path().join("machines/dgx-h100");
    let before = listing(&shared);
    let port = |file: &str| node.read(&format!("sys/class/infiniband/mlx5_5/ports/1/{file}"));
    let down = NicState { is_down: true, symbol_errors: 121, recoveries: 6, downs: 1 };
    let mut state = State { nics: [("mlx5_5".to_owned(), down)].into(), ..State::default() };
    let link = PcieState { fatal_errors: 3, ..PcieState::default() };
    state.gpus.insert(1, GpuState { pcie: link, ..GpuState::default() });
    show_faults(&node.dir(), &machine, &state).unwrap();
    let errors = || {
        let pci = &machine.gpus[1].pci;
        node.read(&format!("sys/bus/pci/devices/{pci}/aer_dev_fatal"))
    };
    assert!(errors().ends_with("TOTAL_ERR_FATAL 3\n"), "{}", errors());
    let shown = ["state", "phys_state", "counters/symbol_error", "counters/link_error_recovery"];
    assert_eq!(shown.map(port), ["1: DOWN\n", "2: Polling\n", "121\n", "6\n"]);
    assert_eq!(port("counters/link_downed"), "1\n");
    assert_eq!(node.read("sys/class/infiniband/mlx5_0/ports/1/state"), "4: ACTIVE\n");
    assert_eq!(node.read("sys/bus/pci/devices/0000:61:00.0/class"), "0x030200\n");
    // A lab that starts again leaves it, and what others share is as it was.
    node.build(&machine);
    assert_eq!(port("state"), "1: DOWN\n");
    assert_eq!(listing(&shared), before);
    show_faults(&node.dir(), &machine, &State::default()).unwrap();
    assert!(errors().ends_with("TOTAL_ERR_FATAL 0\n"), "{}", errors());
    assert_eq!(
        (port("state"), port("counters/symbol_error")),
        ("4: ACTIVE\n".into(), "0\n".into())
    );
    // Another machine discards it.
    node.build(&catalogue::load("t4").unwrap());
    assert!(!node.dir().join("own").exists());
    assert!(!node.dir().join("sys/class").exists());
}

#[test]
fn a_tray_of_a_rack_has_channels_to_the_others() {
    let node = Node::new();
    node.build(&catalogue::load("gb200-tray").unwrap());
    let capability = node.read("proc/driver/nvidia/capabilities/fabric-imex-mgmt");
    assert!(capability.starts_with("DeviceFileMinor: 4323\n"), "{capability}");
    assert!(node.read("proc/devices").contains("nvidia-caps-imex-channels\n"));
    for name in ["nvidia-imex", "nvidia-imex-ctl"] {
        let program = node.dir().join("driver/usr/bin").join(name);
        assert_eq!(fs::read_to_string(program).unwrap(), "the simulated library");
    }
    assert!(node.read("proc/driver/nvidia/version").contains("aarch64"));
    let fabric = node.dir().join("driver/usr/lib64/fabric");
    assert!(fs::read_link(&fabric).unwrap().is_dir(), "a folder of all nodes");
    assert_eq!(fs::metadata(fabric).unwrap().permissions().mode() & 0o7777, 0o1777);
}

#[test]
fn building_again_changes_nothing_and_keeps_the_state() {
    let node = Node::new();
    let machine = catalogue::load("dgx-h100").unwrap();
    node.build(&machine);
    let lib = node.dir().join("driver/usr/lib64");
    let lost = GpuState { lost: true, ..GpuState::default() };
    let state = State { gpus: [(0, lost)].into(), ..State::default() };
    state.write(&lib.join("state.json")).unwrap();
    let inode = fs::metadata(lib.join("libnvidia-ml.so.1")).unwrap().ino();
    let before = listing(&node.dir());
    node.build(&machine);
    assert_eq!(listing(&node.dir()), before);
    assert_eq!(fs::metadata(lib.join("libnvidia-ml.so.1")).unwrap().ino(), inode);
}

#[test]
fn changed_machine_or_partial_build_is_rebuilt() {
    let (node, fresh) = (Node::new(), Node::new());
    node.build(&catalogue::load("dgx-h100").unwrap());
    node.build(&catalogue::load("t4").unwrap());
    fresh.build(&catalogue::load("t4").unwrap());
    let names = |node: &Node| -> Vec<PathBuf> {
        let dir = node.dir();
        listing(&dir)
            .into_iter()
            .map(|(path, _)| path.strip_prefix(&dir).unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&node), names(&fresh));
    fs::remove_file(node.dir().join("driver/usr/lib64/machine.yaml")).unwrap();
    fs::remove_file(node.dir().join("sys")).unwrap();
    node.build(&catalogue::load("t4").unwrap());
    assert_eq!(names(&node), names(&fresh));
}

#[test]
fn a_new_library_replaces_the_old_file_and_is_no_link_to_the_original() {
    let node = Node::new();
    let machine = catalogue::load("l4").unwrap();
    node.build(&machine);
    let copy = node.dir().join("driver/usr/lib64/libnvidia-ml.so.580.95.05");
    let first = fs::metadata(&copy).unwrap().ino();
    assert_ne!(first, fs::metadata(&node.libraries.management).unwrap().ino());
    fs::write(&node.libraries.management, "a newer simulated library").unwrap();
    node.build(&machine);
    assert_eq!(fs::read_to_string(&copy).unwrap(), "a newer simulated library");
    assert_ne!(fs::metadata(&copy).unwrap().ino(), first);
}

#[test]
fn eighteen_trays_share_a_clique_and_the_next_rack_has_its_own() {
    let cluster = |index: u32| {
        let mut machine = catalogue::load("gb200-tray").unwrap();
        place_in_fabric(&mut machine, index);
        machine.check().unwrap();
        machine.fabric.unwrap().cluster_uuid
    };
    assert_eq!(cluster(0), cluster(17));
    assert_ne!(cluster(17), cluster(18));
    assert_eq!(cluster(18), cluster(35));
    assert_ne!(cluster(35), cluster(36));
}

#[test]
fn a_fabric_within_a_chassis_is_the_same_everywhere() {
    let machine = catalogue::load("dgx-h100").unwrap();
    let mut placed = machine.clone();
    place_in_fabric(&mut placed, 40);
    assert_eq!(placed, machine);
}
