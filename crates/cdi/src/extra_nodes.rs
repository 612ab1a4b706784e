//! Device nodes that a class gives to containers beside those of GPUs, found by number.
//!
//! | nodes | numbers |
//! |---|---|
//! | `/dev/nvidia-fs*` | of the files `dev` in sysfs class `nvidia-fs-class` |
//! | `/dev/gdrdrv` | major `gdrdrv` in `/proc/devices`, minor 0 |
//! | `/dev/infiniband/*` | of the files `dev` in sysfs classes `infiniband_verbs` and `misc` |
//! | `/dev/nvidia-nvswitchctl` | major `nvidia-nvswitch` in `/proc/devices`, minor 255 |
//! | `/dev/nvidia-nvswitch*` | the same major, minors from 0; one for each entry of `/proc/driver/nvidia-nvswitch/devices` |
//!
//! The paths are those that NVIDIA's Container Toolkit mounts for `NVIDIA_GDS`, `NVIDIA_GDRCOPY`, `NVIDIA_MOFED` and
//! `NVIDIA_NVSWITCH`. The numbers are those of the drivers' sources. The driver gives a switch the lowest free minor, so a
//! hole is possible after a switch was unbound by hand.

use std::fs;
use std::path::Path;

use octavo_api::config::DeviceNodesConfig;
use octavo_gpu::CharDevices;
use octavo_node::NodePaths;

use crate::majors::{ALL_MODE, MissingModule};
use crate::spec::{DeviceNode, Mount};
use crate::sysfs;

/// Minor number of `/dev/nvidia-nvswitchctl`.
const NVSWITCH_CTL_MINOR: u32 = 255;
/// Folder with an entry for each NVSwitch, below the proc root.
const NVSWITCHES: &str = "driver/nvidia-nvswitch/devices";
/// What programs with GPUDirect Storage read beside the device nodes.
const GDS_FILES: [&str; 2] = ["/run/udev", "/etc/cufile.json"];

/// Extra device nodes, and the files that go with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraNodes {
    /// The nodes that are there.
    pub device_nodes: Vec<DeviceNode>,
    /// Files of the driver's root.
    pub mounts: Vec<Mount>,
    /// What is wanted and not there.
    pub missing: Option<MissingModule>,
}

impl ExtraNodes {
    /// Finds the wanted nodes.
    pub fn find(paths: &NodePaths, wanted: DeviceNodesConfig, devices: &CharDevices) -> Self {
        let mut found = Self::default();
        if wanted.gds {
            found.add_class(paths, "nvidia-fs-class", "nvidia-fs", "/dev");
            found.require("/dev/nvidia-fs", "nvidia-fs");
            let files = GDS_FILES.map(Path::new).into_iter();
            let files = files.filter(|file| paths.driver_seen(file).exists());
            let mounts = files.map(|file| Mount::read_only(&paths.driver_on_host(file), file));
            found.mounts.extend(mounts);
        }
        if wanted.gdrcopy {
            if let Some(major) = devices.major("gdrdrv") {
                found.add("/dev/gdrdrv".to_owned(), major, 0);
            }
            found.require("/dev/gdrdrv", "gdrdrv");
        }
        if wanted.infiniband {
            let folder = "/dev/infiniband";
            found.add_class(paths, "infiniband_verbs", "uverbs", folder);
            found.require("/dev/infiniband/uverbs", "ib_uverbs");
            // Only programs with the connection manager need it.
            found.add_class(paths, "misc", "rdma_cm", folder);
        }
        if wanted.nvswitch {
            let switches = fs::read_dir(paths.proc_root.join(NVSWITCHES)).into_iter().flatten();
            if let Some(major) = devices.major("nvidia-nvswitch") {
                found.add("/dev/nvidia-nvswitchctl".to_owned(), major, NVSWITCH_CTL_MINOR);
                for minor in (0..NVSWITCH_CTL_MINOR).take(switches.flatten().count()) {
                    found.add(format!("/dev/nvidia-nvswitch{minor}"), major, minor);
                }
            }
            found.require("/dev/nvidia-nvswitch0", "nvidia");
        }
        found
    }

    /// Notes a module if no node has a path that begins like this.
    fn require(&mut self, path: &'static str, module: &'static str) {
        if !self.device_nodes.iter().any(|node| node.path.starts_with(path)) {
            self.missing.get_or_insert(MissingModule { device: path, module });
        }
    }

    /// Adds the devices of a sysfs class whose names begin with `prefix`, in order of their minor numbers.
    fn add_class(&mut self, paths: &NodePaths, class: &str, prefix: &str, folder: &str) {
        let class = paths.sys_root.join("class").join(class);
        let mut found = sysfs::devices(&class, |name| name.starts_with(prefix));
        found.sort_by_key(|device| device.minor);
        for device in found {
            self.add(format!("{folder}/{}", device.name), device.major, device.minor);
        }
    }

    fn add(&mut self, path: String, major: u32, minor: u32) {
        self.device_nodes.push(DeviceNode::new(path, major, minor, ALL_MODE));
    }
}

#[cfg(test)]
mod tests;
