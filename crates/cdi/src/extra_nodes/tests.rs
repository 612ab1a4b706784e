use std::fs;

use tempfile::TempDir;

use super::*;

const ALL: DeviceNodesConfig =
    DeviceNodesConfig { gds: true, gdrcopy: true, infiniband: true, nvswitch: true };

/// A node with files at some paths.
fn node(files: &[(&str, &str)]) -> (TempDir, NodePaths) {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    for (path, text) in files {
        fs::create_dir_all(at(path).parent().unwrap()).unwrap();
        fs::write(at(path), text).unwrap();
    }
    let paths = NodePaths {
        driver_root: "/run/nvidia/driver".into(),
        driver_root_seen: at("driver"),
        proc_root: at("proc"),
        sys_root: at("sys"),
        cgroup_root: at("sys/fs/cgroup"),
        kubelet_root: at("kubelet"),
        device_plugin_root: at("kubelet/device-plugins"),
        cdi_root: at("cdi"),
        run_root: at("run"),
        hook_path: "/octavo-cdi-hook".into(),
        share_tmpfs: false,
        mounts: Vec::new(),
    };
    (folder, paths)
}

fn numbers(found: &ExtraNodes) -> Vec<(&str, u32, u32)> {
    let nodes = found.device_nodes.iter();
    nodes.map(|node| (node.path.as_str(), node.major, node.minor)).collect()
}

fn find(paths: &NodePaths, wanted: DeviceNodesConfig) -> ExtraNodes {
    ExtraNodes::find(paths, wanted, &CharDevices::read(&paths.proc_root).unwrap())
}

#[test]
fn nodes_have_the_numbers_of_proc_and_sysfs() {
    let (_folder, paths) = node(&[
        ("proc/devices", "Character devices:\n 195 nvidia\n 508 gdrdrv\n 506 nvidia-nvswitch\n"),
        ("proc/driver/nvidia-nvswitch/devices/0000:05:00.0/information", ""),
        ("proc/driver/nvidia-nvswitch/devices/0000:06:00.0/information", ""),
        ("sys/class/nvidia-fs-class/nvidia-fs1/dev", "505:1\n"),
        ("sys/class/nvidia-fs-class/nvidia-fs0/dev", "505:0\n"),
        ("sys/class/infiniband_verbs/abi_version", "6\n"),
        ("sys/class/infiniband_verbs/uverbs0/dev", "231:192\n"),
        ("sys/class/misc/rdma_cm/dev", "10:57\n"),
        ("sys/class/misc/fuse/dev", "10:229\n"),
        ("driver/etc/cufile.json", "{}"),
    ]);
    let found = find(&paths, ALL);
    let expected = [
        ("/dev/nvidia-fs0", 505, 0),
        ("/dev/nvidia-fs1", 505, 1),
        ("/dev/gdrdrv", 508, 0),
        ("/dev/infiniband/uverbs0", 231, 192),
        ("/dev/infiniband/rdma_cm", 10, 57),
        ("/dev/nvidia-nvswitchctl", 506, 255),
        ("/dev/nvidia-nvswitch0", 506, 0),
        ("/dev/nvidia-nvswitch1", 506, 1),
    ];
    assert_eq!(numbers(&found), expected);
    let mounts = found.mounts.iter();
    let mounts: Vec<_> =
        mounts.map(|m| (m.host_path.as_str(), m.container_path.as_str())).collect();
    assert_eq!(mounts, [("/run/nvidia/driver/etc/cufile.json", "/etc/cufile.json")]);

    let one = DeviceNodesConfig { gdrcopy: true, ..DeviceNodesConfig::default() };
    let found = find(&paths, one);
    assert_eq!(numbers(&found), [("/dev/gdrdrv", 508, 0)]);
}

#[test]
fn what_is_not_there_is_named_with_its_module() {
    let (_folder, paths) = node(&[
        ("proc/devices", "Character devices:\n 195 nvidia\n 506 nvidia-nvswitch\n 508 gdrdrv\n"),
        ("sys/class/misc/rdma_cm/dev", "10:57\n"),
    ]);
    let none = DeviceNodesConfig::default();
    for (wanted, device, module) in [
        (DeviceNodesConfig { gds: true, ..none }, "/dev/nvidia-fs", "nvidia-fs"),
        (DeviceNodesConfig { infiniband: true, ..none }, "/dev/infiniband/uverbs", "ib_uverbs"),
        // Its control node alone is of no use.
        (DeviceNodesConfig { nvswitch: true, ..none }, "/dev/nvidia-nvswitch0", "nvidia"),
    ] {
        assert_eq!(find(&paths, wanted).missing, Some(MissingModule { device, module }));
    }
    let found = find(&paths, ALL);
    assert_eq!(found.missing.map(|missing| missing.module), Some("nvidia-fs"), "the first");
    assert!(numbers(&found).contains(&("/dev/gdrdrv", 508, 0)), "the others are there");
    assert_eq!(find(&paths, none), ExtraNodes::default());
    fs::write(paths.proc_root.join("devices"), "Character devices:\n").unwrap();
    let gdrcopy = DeviceNodesConfig { gdrcopy: true, ..none };
    let missing = MissingModule { device: "/dev/gdrdrv", module: "gdrdrv" };
    assert_eq!(find(&paths, gdrcopy).missing, Some(missing));
}
