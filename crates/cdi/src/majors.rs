//! Major numbers of the driver's device nodes.

use octavo_gpu::CharDevices;

use crate::spec::DeviceNode;

/// Minor number of `/dev/nvidiactl`; GPUs have those from 0.
const CTL_MINOR: u32 = 255;
/// Minor number of `/dev/nvidia-modeset`.
const MODESET_MINOR: u32 = 254;
/// Minor number of `/dev/nvidia-uvm`.
const UVM_MINOR: u32 = 0;
/// Minor number of `/dev/nvidia-uvm-tools`.
const UVM_TOOLS_MINOR: u32 = 1;

/// Names of the GPUs' character device, the newest first. Drivers before 550 have the last.
const GPU_NAMES: [&str; 2] = ["nvidia", "nvidia-frontend"];

/// Permission bits of nodes that every user may open.
pub const ALL_MODE: u32 = 0o666;

/// Major numbers of the driver's character devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Majors {
    /// Of the GPUs and `/dev/nvidiactl`.
    gpu: u32,
    /// Of `/dev/nvidia-uvm`.
    uvm: u32,
    /// Of `/dev/nvidia-modeset`, if that module is loaded.
    modeset: Option<u32>,
    /// Of capabilities, if the driver has any.
    caps: Option<u32>,
}

/// A character device that is not there, and the kernel module that registers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingModule {
    /// Name in `/proc/devices`, or the begin of its path.
    pub device: &'static str,
    /// Name of the module.
    pub module: &'static str,
}

impl Majors {
    /// The numbers among those of all character devices.
    ///
    /// # Errors
    ///
    /// A module without which no container can use a GPU.
    pub fn of(devices: &CharDevices) -> Result<Self, MissingModule> {
        let [newest, oldest] = GPU_NAMES;
        let gpu = devices.major(newest).or_else(|| devices.major(oldest));
        let missing = |device, module| MissingModule { device, module };
        Ok(Self {
            gpu: gpu.ok_or(missing(newest, "nvidia"))?,
            uvm: devices.major("nvidia-uvm").ok_or(missing("nvidia-uvm", "nvidia-uvm"))?,
            modeset: devices.major("nvidia-modeset").or_else(|| devices.major(oldest)),
            caps: devices.major("nvidia-caps"),
        })
    }

    /// The nodes that all GPUs share.
    pub fn common_nodes(self) -> Vec<DeviceNode> {
        let modeset = self.modeset.map(|major| ("/dev/nvidia-modeset", major, MODESET_MINOR));
        let nodes = [
            ("/dev/nvidiactl", self.gpu, CTL_MINOR),
            ("/dev/nvidia-uvm", self.uvm, UVM_MINOR),
            ("/dev/nvidia-uvm-tools", self.uvm, UVM_TOOLS_MINOR),
        ];
        let nodes = nodes.into_iter().chain(modeset);
        nodes.map(|(path, major, minor)| DeviceNode::new(path, major, minor, ALL_MODE)).collect()
    }

    /// The node of a GPU.
    pub fn gpu_node(self, minor: u32) -> DeviceNode {
        DeviceNode::new(format!("/dev/nvidia{minor}"), self.gpu, minor, ALL_MODE)
    }

    /// The node of a capability.
    pub fn cap_node(self, minor: u32, mode: u32) -> Result<DeviceNode, MissingModule> {
        let missing = MissingModule { device: "nvidia-caps", module: "nvidia" };
        let major = self.caps.ok_or(missing)?;
        let path = format!("/dev/nvidia-caps/nvidia-cap{minor}");
        Ok(DeviceNode::new(path, major, minor, mode))
    }
}

#[cfg(test)]
mod tests;
