//! A simulated node: a driver root, a sysfs and the state of the simulation.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use octavo_gpu::nvml::{LIBRARY_NAME, Nvml, find_library};
use octavo_gpu::{Driver, Gpu, UnreadableGpu};
use octavo_machine::{Machine, State};
use tempfile::TempDir;

/// The folder of a node; deleted on drop.
pub(crate) struct Node {
    folder: TempDir,
    pub(crate) machine: Machine,
}

impl Node {
    /// A node with `machine`. GPUs without UUID are named after the machine.
    pub(crate) fn of(mut machine: Machine) -> Self {
        machine.instantiate(&machine.name.clone());
        let node = Self { folder: tempfile::tempdir().unwrap(), machine };
        let driver = node.driver();
        fs::create_dir_all(&driver).unwrap();
        // A copy, not a link: the loader treats two names of one file as one library.
        fs::copy(simulated_library(), driver.join(LIBRARY_NAME)).unwrap();
        fs::write(driver.join("machine.yaml"), node.machine.to_yaml().unwrap()).unwrap();
        fs::create_dir_all(node.proc_root().join("driver/nvidia/capabilities/mig")).unwrap();
        for gpu in &node.machine.gpus {
            plug_in(&node.sys_root(), gpu);
        }
        node
    }

    /// A node with a machine that ships.
    pub(crate) fn shipped(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
        Self::of(Machine::read(&folder.join(name).with_extension("yaml")).unwrap())
    }

    /// Loads the node's driver.
    pub(crate) fn open(&self) -> Nvml {
        let library = find_library(&self.folder.path().join("driver")).unwrap();
        Nvml::open(&library, &self.sys_root()).unwrap()
    }

    /// Loads a copy of the node's driver. Like another process, it shares only the node's files
    /// with the first.
    pub(crate) fn open_beside(&self, name: &str) -> Nvml {
        let library = self.driver().join(name);
        fs::copy(simulated_library(), &library).unwrap();
        Nvml::open(&library, &self.sys_root()).unwrap()
    }

    /// Replaces the state of the simulation.
    pub(crate) fn set(&self, state: &State) {
        state.write(&self.driver().join("state.json")).unwrap();
    }

    /// Changes the state of the simulation.
    pub(crate) fn edit(&self, change: impl FnOnce(&mut State)) {
        octavo_machine::change(&self.driver(), &self.machine, |state| {
            change(state);
            Ok::<_, octavo_machine::MachineError>(())
        })
        .unwrap();
    }

    /// The state of the simulation.
    pub(crate) fn state(&self) -> State {
        State::read(&self.driver().join("state.json")).unwrap()
    }

    /// The UUID of a GPU.
    pub(crate) fn uuid(&self, index: usize) -> String {
        self.machine.gpus[index].uuid.clone().unwrap()
    }

    pub(crate) fn driver(&self) -> PathBuf {
        self.folder.path().join("driver/usr/lib64")
    }

    pub(crate) fn proc_root(&self) -> PathBuf {
        self.folder.path().join("proc")
    }

    pub(crate) fn sys_root(&self) -> PathBuf {
        self.folder.path().join("sys")
    }
}

/// The result of reading each GPU.
pub(crate) fn gpus(driver: &Nvml) -> Vec<Result<Gpu, UnreadableGpu>> {
    driver.gpus().unwrap()
}

/// Four H100s behind switches, on two sockets.
pub(crate) fn switched() -> Machine {
    machine(
        "switched",
        "
model:
  name: NVIDIA H100 80GB HBM3
  brand: Nvidia
  architecture: Hopper
  computeCapability: '9.0'
  memoryMib: 81559
  reservedMib: 551
  multiprocessors: 132
  pciDeviceId: '0x233010DE'
  pciSubsystemId: '0x16C110DE'
  addressingMode: HMM
  ecc: true
  powerLimitWatts: 700
  smClockMhz: 1980
  memoryClockMhz: 2619
  nvlink: {version: 4, links: 18, switched: true}
  mig: {table: h100-80}
fabric: {clusterUuid: 3b1c4e2a-9011-4d6f-8a00-010203040506, cliqueId: 7}
gpus:
- {minor: 2, module: 4, pci: '0000:1b:00.0', pcieRoot: 'pci0000:15', numaNode: 0, serial: '1650000001'}
- {minor: 3, module: 2, pci: '0000:43:00.0', pcieRoot: 'pci0000:3d', numaNode: 0, serial: '1650000002'}
- {minor: 0, module: 3, pci: '0000:9d:00.0', pcieRoot: 'pci0000:97', numaNode: 1, serial: '1650000003'}
- {minor: 1, module: 1, pci: '0000:df:00.0', pcieRoot: 'pci0000:d7', numaNode: 1, serial: '1650000004'}
",
    )
}

/// Four A100s with links between them, without NUMA, serial numbers or addressing mode.
pub(crate) fn meshed() -> Machine {
    machine(
        "meshed",
        "
model:
  name: NVIDIA A100-SXM4-40GB
  brand: Nvidia
  architecture: Ampere
  computeCapability: '8.0'
  memoryMib: 40960
  multiprocessors: 108
  pciDeviceId: '0x20B010DE'
  ecc: true
  powerLimitWatts: 400
  smClockMhz: 1410
  memoryClockMhz: 1215
  nvlink: {version: 3, links: 12, switched: false}
gpus:
- {minor: 0, pci: '0000:01:00.0', pcieRoot: 'pci0000:00'}
- {minor: 1, pci: '0000:41:00.0', pcieRoot: 'pci0000:40'}
- {minor: 2, pci: '0000:81:00.0', pcieRoot: 'pci0000:80'}
- {minor: 3, pci: '0000:c1:00.0', pcieRoot: 'pci0000:c0'}
",
    )
}

fn machine(name: &str, rest: &str) -> Machine {
    Machine::parse(&format!(
        "name: {name}\ndescription: a machine for tests\n\
         driver: {{version: 580.95.05, cuda: '13.0', nvml: 13.580.95.05}}{rest}"
    ))
    .unwrap()
}

/// The simulated library, which cargo puts beside the test or one folder above.
fn simulated_library() -> PathBuf {
    const NAME: &str = "liboctavo_fake_nvml.so";
    let test = std::env::current_exe().unwrap();
    test.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(NAME))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("no {NAME} beside {} or above it", test.display()))
}

/// Adds a GPU to sysfs with a relative link like the kernel's.
fn plug_in(sys_root: &Path, gpu: &octavo_machine::Gpu) {
    let links = sys_root.join("bus/pci/devices");
    fs::create_dir_all(&links).unwrap();
    let target = Path::new("../../../devices").join(&gpu.pcie_root).join(&gpu.pci);
    let device = sys_root.join("devices").join(&gpu.pcie_root).join(&gpu.pci);
    fs::create_dir_all(&device).unwrap();
    let numa = gpu.numa_node.map_or_else(|| "-1".to_owned(), |node| node.to_string());
    fs::write(device.join("numa_node"), format!("{numa}\n")).unwrap();
    symlink(target, links.join(&gpu.pci)).unwrap();
}
