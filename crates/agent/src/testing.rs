//! Shared test helpers: GPUs, and a driver controlled by a test.

pub(crate) mod mig;

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use octavo_gpu::{
    AddressingMode, Clique, Driver, DriverError, DriverVersions, EventStream, Fabric, FabricState,
    Gpu, GpuEvent, GpuHealth, GpuProcess, Inventory, PciAddress, RecoveryAction, UnreadableGpu,
};
use octavo_health::decide::Fence;
use octavo_health::reason::Reason;
use octavo_health::remedy::Remedy;
use octavo_health::state::{Effect, State};

use crate::health::GpuState;

/// `/proc/devices` of a node with all modules of the driver.
pub(crate) const PROC_DEVICES: &str =
    "Character devices:\n195 nvidia\n236 nvidia-caps\n508 nvidia-uvm\n";

/// The UUID of the test GPU with this index.
pub(crate) fn uuid(index: u32) -> String {
    format!("GPU-00000000-0000-0000-0000-00000000000{index}")
}

/// An H100 with this index.
pub(crate) fn gpu(index: u32) -> Gpu {
    Gpu {
        index,
        minor: index,
        number: index,
        uuid: uuid(index),
        name: "NVIDIA H100 80GB HBM3".to_owned(),
        brand: "Nvidia".to_owned(),
        architecture: "Hopper".to_owned(),
        compute_capability: (9, 0),
        memory_bytes: 81_559 << 20,
        reserved_bytes: None,
        multiprocessors: Some(132),
        pci: PciAddress {
            domain: 0,
            bus: 0x1b + u8::try_from(index).unwrap(),
            device: 0,
            function: 0,
        },
        pci_device_id: 0x2330_10de,
        pci_subsystem_id: 0x16c1_10de,
        pcie_root: Some("pci0000:15".to_owned()),
        numa_node: Some(0),
        module: Some(index + 1),
        serial: None,
        addressing_mode: Some(AddressingMode::Hmm),
        ecc: Some(true),
        power_limit_milliwatts: Some(700_000),
        sm_clock_mhz: None,
        memory_clock_mhz: None,
        nvlink: None,
        fabric: Some(Fabric {
            state: FabricState::Completed,
            status: 0,
            clique: Some(Clique {
                cluster: "9c6f1f3e-0000-0000-0000-000000000001".to_owned(),
                id: 1,
            }),
            cluster_uuid: "9c6f1f3e-0000-0000-0000-000000000001".to_owned(),
            clique_id: 1,
            health_mask: None,
        }),
        mig: None,
        mig_profiles: Vec::new(),
        mig_instances: Vec::new(),
    }
}

/// A node with this many GPUs.
pub(crate) fn inventory(count: u32) -> Inventory {
    let gpus: Vec<Gpu> = (0..count).map(gpu).collect();
    found(&gpus)
}

/// An inventory of these GPUs.
pub(crate) fn found(gpus: &[Gpu]) -> Inventory {
    Inventory { versions: versions(), gpus: gpus.to_vec(), unreadable: Vec::new() }
}

fn versions() -> DriverVersions {
    DriverVersions {
        driver: "580.95.05".to_owned(),
        cuda: (13, 0),
        nvml: "13.580.95.05".to_owned(),
    }
}

/// The state of a GPU that is fenced for a reason.
pub(crate) fn fenced(reason: Reason, since: i64) -> GpuState {
    let state = State::Fenced { reason, needs: Remedy::ResetFunction };
    let fence = Fence { state, effect: Effect::NoSchedule, reason: Some(reason) };
    GpuState { fence: Some(fence), since, ..GpuState::default() }
}

/// The driver's answer for a GPU that is well.
pub(crate) fn well() -> GpuHealth {
    advice(RecoveryAction::None)
}

/// The driver's answer for a GPU for which it advises something.
pub(crate) fn advice(action: RecoveryAction) -> GpuHealth {
    GpuHealth { recovery_action: Some(action), ..GpuHealth::default() }
}

/// The driver's answer for a GPU that it lost.
pub(crate) fn lost() -> DriverError {
    DriverError::GpuLost { call: "nvmlDeviceGetFieldValues" }
}

/// A driver controlled by a test. Cheap to clone; clones share their state.
#[derive(Clone)]
pub(crate) struct TestDriver(Arc<Mutex<Commands>>);

struct Commands {
    count: u32,
    /// GPUs other than [`gpu`].
    gpus: BTreeMap<u32, Gpu>,
    /// How often all GPUs were read.
    reads: usize,
    health: BTreeMap<String, Result<GpuHealth, DriverError>>,
    unreadable: BTreeMap<u32, DriverError>,
    gone: Option<DriverError>,
    mig_mode_changes: u64,
    /// Whether the driver says that no process uses a GPU. Otherwise it does not say which do.
    is_idle: bool,
    /// A GPU about which it does not answer until the sender is gone.
    hanging: Option<(String, Arc<Mutex<Receiver<()>>>)>,
    listeners: Vec<Listener>,
}

struct Listener {
    sender: Sender<Result<GpuEvent, DriverError>>,
    unmonitored: Vec<String>,
}

struct TestEvents {
    receiver: Receiver<Result<GpuEvent, DriverError>>,
    unmonitored: Vec<String>,
}

impl TestDriver {
    /// A driver with this many GPUs, all well.
    pub(crate) fn new(count: u32) -> Self {
        Self(Arc::new(Mutex::new(Commands {
            count,
            gpus: BTreeMap::new(),
            reads: 0,
            health: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            gone: None,
            mig_mode_changes: 0,
            is_idle: false,
            hanging: None,
            listeners: Vec::new(),
        })))
    }

    /// Has the driver say that no process uses a GPU.
    pub(crate) fn set_idle(&self) {
        self.0.lock().unwrap().is_idle = true;
    }

    /// Has questions about the health of a GPU wait until what is returned is dropped.
    pub(crate) fn hang(&self, index: u32) -> Sender<()> {
        let (sender, receiver) = channel();
        self.0.lock().unwrap().hanging = Some((uuid(index), Arc::new(Mutex::new(receiver))));
        sender
    }

    /// Replaces the GPU with this GPU's index. No event tells it.
    pub(crate) fn set_gpu(&self, gpu: Gpu) {
        self.0.lock().unwrap().gpus.insert(gpu.index, gpu);
    }

    /// How often all GPUs were read.
    pub(crate) fn reads(&self) -> usize {
        self.0.lock().unwrap().reads
    }

    /// Sets the driver's answer about a GPU.
    pub(crate) fn set_health(&self, index: u32, health: Result<GpuHealth, DriverError>) {
        self.0.lock().unwrap().health.insert(uuid(index), health);
    }

    /// Makes a GPU unreadable, or readable again.
    pub(crate) fn set_unreadable(&self, index: u32, error: Option<DriverError>) {
        let mut commands = self.0.lock().unwrap();
        match error {
            Some(error) => commands.unreadable.insert(index, error),
            None => commands.unreadable.remove(&index),
        };
    }

    /// Makes the driver answer nothing any more, or answer again.
    pub(crate) fn set_gone(&self, error: Option<DriverError>) {
        self.0.lock().unwrap().gone = error;
    }

    /// Sends an event or a failure to listeners. A listener gets no events of GPUs that were lost when it subscribed.
    pub(crate) fn send(&self, event: &Result<GpuEvent, DriverError>) {
        let uuid = event.as_ref().ok().and_then(|event| event.uuid.clone());
        self.0.lock().unwrap().listeners.retain(|listener| {
            let is_deaf = uuid.as_ref().is_some_and(|uuid| listener.unmonitored.contains(uuid));
            is_deaf || listener.sender.send(event.clone()).is_ok()
        });
    }

    /// Notes that a claim changed the MIG mode of a GPU.
    pub(crate) fn mig_mode_changed(&self) {
        self.0.lock().unwrap().mig_mode_changes += 1;
    }

    /// How many listen.
    pub(crate) fn listeners(&self) -> usize {
        self.0.lock().unwrap().listeners.len()
    }
}

impl Commands {
    fn gpu(&self, index: u32) -> Gpu {
        self.gpus.get(&index).cloned().unwrap_or_else(|| gpu(index))
    }
}

impl Driver for TestDriver {
    fn versions(&self) -> Result<DriverVersions, DriverError> {
        self.0.lock().unwrap().gone.clone().map_or_else(|| Ok(versions()), Err)
    }

    fn gpus(&self) -> Result<Vec<Result<Gpu, UnreadableGpu>>, DriverError> {
        let mut commands = self.0.lock().unwrap();
        commands.reads += 1;
        let read = |index| match commands.unreadable.get(&index) {
            Some(error) => Err(UnreadableGpu { index, error: error.clone() }),
            None => Ok(commands.gpu(index)),
        };
        Ok((0..commands.count).map(read).collect())
    }

    fn health(&self, uuid: &str) -> Result<GpuHealth, DriverError> {
        let hanging = self.0.lock().unwrap().hanging.clone();
        if let Some((_, receiver)) = hanging.filter(|(hanging, _)| hanging == uuid) {
            // Nothing is sent: the sender goes.
            let _ = receiver.lock().unwrap().recv();
        }
        let commands = self.0.lock().unwrap();
        if let Some(error) = &commands.gone {
            return Err(error.clone());
        }
        commands.health.get(uuid).cloned().unwrap_or_else(|| Ok(well()))
    }

    fn processes(&self, _: &str) -> Result<Vec<GpuProcess>, DriverError> {
        let is_idle = self.0.lock().unwrap().is_idle;
        if is_idle { Ok(Vec::new()) } else { Err(DriverError::NotSupported { call: "processes" }) }
    }

    fn mig_mode_changes(&self) -> u64 {
        self.0.lock().unwrap().mig_mode_changes
    }

    fn has_mig_changed(&self, known: &Gpu) -> Result<bool, DriverError> {
        let commands = self.0.lock().unwrap();
        if let Some(error) = commands.unreadable.get(&known.index) {
            return Err(error.clone());
        }
        let now = commands.gpu(known.index);
        Ok((now.mig, now.mig_instances) != (known.mig, known.mig_instances.clone()))
    }

    fn events(&self) -> Result<Box<dyn EventStream>, DriverError> {
        let (sender, receiver) = channel();
        let mut commands = self.0.lock().unwrap();
        if let Some(error) = &commands.gone {
            return Err(error.clone());
        }
        let lost = commands.health.iter().filter(|(_, health)| health.is_err());
        let unmonitored: Vec<_> = lost.map(|(uuid, _)| uuid.clone()).collect();
        commands.listeners.push(Listener { sender, unmonitored: unmonitored.clone() });
        Ok(Box::new(TestEvents { receiver, unmonitored }))
    }
}

impl EventStream for TestEvents {
    fn wait(&mut self, timeout: Duration) -> Result<Option<GpuEvent>, DriverError> {
        match self.receiver.recv_timeout(timeout) {
            Ok(event) => event.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(DriverError::NotFound { call: "nvmlEventSetWait_v2" })
            }
        }
    }

    fn unmonitored(&self) -> &[String] {
        &self.unmonitored
    }
}
