use std::fs;
use std::os::unix::fs::symlink;

use octavo_cdi::{DriverFiles, ExtraNodes, Majors, Spec};
use octavo_gpu::CharDevices;
use octavo_node::{ClaimRef, NodePaths};
use tempfile::TempDir;

use super::{CdiDevice, CdiFolder, SpecContent, cdi_id, spec_for};
use crate::checkpoint::{HeldDevice, HeldKind, HeldMig, HeldShare, Record, RecordState};
use crate::claims::KnownDevice;
use crate::node::DraDriver;
use crate::testing::PROC_DEVICES;

const UID: &str = "0d3b9a2e-8a39-4a3c-9d0c-6d1f6b1a2c3d";

/// A node's folder with files at some paths.
fn node(files: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(folder.path().join("proc")).expect("makes");
    fs::write(folder.path().join("proc/devices"), PROC_DEVICES).expect("writes");
    for file in files {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().expect("has a parent")).expect("makes");
        fs::write(path, "").expect("writes");
    }
    folder
}

fn paths(node: &TempDir) -> NodePaths {
    let at = |path: &str| node.path().join(path);
    NodePaths {
        driver_root: "/run/nvidia/driver".into(),
        driver_root_seen: at("driver"),
        proc_root: at("proc"),
        sys_root: at("sys"),
        cgroup_root: at("sys/fs/cgroup"),
        kubelet_root: at("kubelet"),
        device_plugin_root: at("kubelet/device-plugins"),
        cdi_root: at("cdi"),
        run_root: at("run"),
        hook_path: "/opt/octavo/bin/octavo-cdi-hook".into(),
        share_tmpfs: false,
        mounts: Vec::new(),
    }
}

fn gpu(minor: u32) -> KnownDevice {
    KnownDevice {
        name: format!("gpu-{minor}"),
        uuid: format!("GPU-{minor}"),
        minor,
        pci: format!("0000:{minor:02x}:00.0"),
        kind: crate::claims::DeviceKind::Gpu {
            memory_bytes: 80 << 30,
            reserved_bytes: 0,
            shares: crate::config::GpuShares::Memory,
        },
    }
}

fn record() -> Record {
    Record {
        claim: ClaimRef { namespace: "ns".to_owned(), name: "c".to_owned(), uid: UID.to_owned() },
        boot_id: "boot".to_owned(),
        state: RecordState::Prepared,
        prepared_at: None,
        devices: vec![HeldDevice {
            requests: vec!["gpu".to_owned()],
            pool: "node".to_owned(),
            device: "gpu-1".to_owned(),
            uuid: "GPU-1".to_owned(),
            cdi_ids: vec![cdi_id(UID, "gpu-1", None)],
            ..HeldDevice::default()
        }],
    }
}

fn majors(paths: &NodePaths) -> Majors {
    Majors::of(&CharDevices::read(&paths.proc_root).expect("reads")).expect("has all modules")
}

/// The spec of a claim that has one whole GPU.
fn spec_of(paths: &NodePaths, files: &DriverFiles, gpu: &KnownDevice) -> Spec {
    let held = HeldDevice { device: gpu.name.clone(), ..HeldDevice::default() };
    let majors = majors(paths);
    spec_for(
        paths,
        files,
        majors,
        UID,
        &[CdiDevice {
            held: &held,
            gpu,
            minor: gpu.minor,
            caps: None,
            backend: None,
            extra: ExtraNodes::default(),
        }],
    )
}

/// A device of a claim of a kind.
fn held(device: &str, share: Option<&str>, kind: HeldKind) -> HeldDevice {
    HeldDevice {
        device: device.to_owned(),
        share_id: share.map(str::to_owned),
        kind,
        ..HeldDevice::default()
    }
}

#[test]
fn a_spec_has_what_a_container_needs() {
    let node = node(&[
        "driver/usr/lib64/libcuda.so.580.95.05",
        "driver/run/nvidia-persistenced/socket",
        "sys/bus/pci/devices/0000:01:00.0/drm/card1/dev",
        "sys/bus/pci/devices/0000:01:00.0/drm/renderD129/dev",
        "sys/bus/pci/devices/0000:01:00.0/drm/renderD200/dev",
        "sys/bus/pci/devices/0000:01:00.0/drm/version",
    ]);
    for (name, numbers) in [("card1", "226:1\n"), ("renderD129", "226:129\n")] {
        let file = format!("sys/bus/pci/devices/0000:01:00.0/drm/{name}/dev");
        fs::write(node.path().join(file), numbers).expect("writes");
    }
    let library = node.path().join("driver/usr/lib64/libcuda.so.1");
    symlink("libcuda.so.580.95.05", library).expect("links");
    let paths = paths(&node);
    let files = DriverFiles::discover(&paths.driver_root_seen, "580.95.05");
    let spec = spec_of(&paths, &files, &gpu(1));
    let hook = |name: &str, args: serde_json::Value| {
        let mut all = vec![serde_json::json!("octavo"), "cdi-hook".into(), name.into()];
        all.extend(args.as_array().cloned().unwrap_or_default());
        serde_json::json!({"hookName": "createContainer", "path": "/opt/octavo/bin/octavo-cdi-hook",
            "args": all, "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], "timeout": 60})
    };
    let device = |path: &str, major: u32, minor: u32| {
        serde_json::json!({"path": path, "type": "c", "major": major, "minor": minor,
            "fileMode": 0o666, "permissions": "rw"})
    };
    let mount = |path: &str| {
        serde_json::json!({"hostPath": format!("/run/nvidia/driver{path}"), "containerPath": path,
            "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"]})
    };
    let writable = |path: &str| {
        let mut mount = mount(path);
        mount["options"][0] = "rw".into();
        mount["options"].as_array_mut().expect("a list").push("noexec".into());
        mount
    };
    let expected = serde_json::json!({
        "cdiVersion": "0.5.0",
        "kind": "k8s.gpu.nvidia.com/claim",
        "devices": [{
            "name": format!("{UID}-gpu-1"),
            "containerEdits": {
                "deviceNodes": [
                    device("/dev/nvidia1", 195, 1),
                    device("/dev/dri/card1", 226, 1),
                    device("/dev/dri/renderD129", 226, 129),
                ],
                "hooks": [hook("create-symlinks", serde_json::json!([
                    "--link", "../card1::/dev/dri/by-path/pci-0000:01:00.0-card",
                    "--link", "../renderD129::/dev/dri/by-path/pci-0000:01:00.0-render",
                ]))],
            },
        }],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64"],
            "deviceNodes": [
                device("/dev/nvidiactl", 195, 255),
                device("/dev/nvidia-uvm", 508, 0),
                device("/dev/nvidia-uvm-tools", 508, 1),
            ],
            "mounts": [
                mount("/usr/lib64/libcuda.so.580.95.05"), writable("/run/nvidia-persistenced/socket"),
            ],
            "hooks": [
                hook("disable-device-node-modification", serde_json::json!([])),
                hook("create-symlinks", serde_json::json!([
                    "--link", "libcuda.so.580.95.05::/usr/lib64/libcuda.so.1",
                ])),
                hook("update-ldcache", serde_json::json!([
                    "--folder", "/usr/lib64", "--cuda-compat", "580.95.05",
                ])),
            ],
        },
    });
    assert_eq!(serde_json::to_value(&spec).expect("is JSON"), expected);
}

#[test]
fn a_spec_of_the_usual_roots_names_no_other_path_on_the_host() {
    let node = node(&[]);
    let paths = NodePaths { driver_root: "/".into(), ..paths(&node) };
    let files =
        DriverFiles { mounts: vec!["/usr/bin/nvidia-smi".into()], ..DriverFiles::default() };
    let spec = spec_of(&paths, &files, &gpu(0));
    assert_eq!(spec.container_edits.mounts[0].host_path, "/usr/bin/nvidia-smi");
    let hooks = spec.container_edits.hooks.iter().map(|hook| hook.args[2].as_str());
    assert_eq!(hooks.collect::<Vec<_>>(), ["disable-device-node-modification"]);
}

#[test]
fn only_mig_instances_with_graphics_have_the_nodes_that_draw() {
    let node = node(&["sys/bus/pci/devices/0000:01:00.0/drm/card1/dev"]);
    let drm = node.path().join("sys/bus/pci/devices/0000:01:00.0/drm/card1/dev");
    fs::write(drm, "226:1\n").expect("writes");
    let paths = paths(&node);
    let (gpu, majors) = (gpu(1), majors(&paths));
    let caps = [66, 67].map(|minor| majors.cap_node(minor, 0o444).expect("has capabilities"));
    for (profile, draws) in [("1g.24gb", false), ("1g.24gb+gfx", true)] {
        let mig = HeldMig {
            profile: profile.to_owned(),
            profile_id: 19,
            start: 0,
            size: 1,
            is_dynamic: true,
            made: None,
        };
        let held = held("gpu-1-mig", None, HeldKind::Mig(mig));
        let device = CdiDevice {
            held: &held,
            gpu: &gpu,
            minor: 1,
            caps: Some(caps.clone()),
            backend: None,
            extra: ExtraNodes::default(),
        };
        let spec = spec_for(&paths, &DriverFiles::default(), majors, UID, &[device]);
        let nodes = spec.devices[0].container_edits.device_nodes.iter();
        let nodes: Vec<_> = nodes.map(|node| node.path.as_str()).collect();
        assert_eq!(
            nodes[..3],
            ["/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67"]
        );
        assert_eq!(nodes[3..].contains(&"/dev/dri/card1"), draws, "{profile}: {nodes:?}");
    }
}

#[test]
fn shares_and_mig_instances_have_their_own_cdi_devices() {
    let node = node(&[]);
    let paths = NodePaths { run_root: "/run".into(), ..paths(&node) };
    let share = HeldKind::Share(HeldShare { memory_bytes: 1 << 30, compute_milli_percent: 0 });
    let mig = HeldMig {
        profile: "1g.10gb".to_owned(),
        profile_id: 19,
        start: 0,
        size: 1,
        is_dynamic: true,
        made: None,
    };
    let devices = [
        held("gpu-1", Some("s1"), share.clone()),
        held("gpu-1", Some("s2"), share),
        held("gpu-1", Some("s3"), HeldKind::Whole),
        held("gpu-1-mig-1g10gb-19-0", None, HeldKind::Mig(mig)),
    ];
    let gpu = gpu(1);
    let majors = majors(&paths);
    let cap = |majors: &Majors, minor| majors.cap_node(minor, 0o444).expect("has capabilities");
    let part = |held, caps| CdiDevice {
        held,
        gpu: &gpu,
        minor: gpu.minor,
        caps,
        backend: None,
        extra: ExtraNodes::default(),
    };
    let cdi_devices = [
        part(&devices[0], None),
        part(&devices[1], None),
        part(&devices[2], None),
        part(&devices[3], Some([66, 67].map(|minor| cap(&majors, minor)))),
    ];
    let spec = spec_for(&paths, &DriverFiles::default(), majors, UID, &cdi_devices);
    let names: Vec<_> = spec.devices.iter().map(|device| device.name.clone()).collect();
    let expected = ["gpu-1.s1", "gpu-1.s2", "gpu-1", "gpu-1-mig-1g10gb-19-0"];
    assert_eq!(names, expected.map(|name| format!("{UID}-{name}")));
    let mounts = |at: usize| {
        let mounts = spec.devices[at].container_edits.mounts.iter();
        mounts.map(|mount| (mount.host_path.clone(), mount.container_path.clone())).collect()
    };
    let folder = |share: &str| format!("/run/octavo/shares/{UID}_{share}");
    let first: Vec<(String, String)> = mounts(0);
    assert_eq!(first, [(folder("s1"), folder("s1"))]);
    assert_eq!(mounts(1), [(folder("s2"), folder("s2"))]);
    assert_eq!(mounts(2), []);
    let nodes = spec.devices[3].container_edits.device_nodes.iter();
    let nodes: Vec<_> = nodes.map(|node| node.path.as_str()).collect();
    let caps = ["/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67"];
    assert_eq!(nodes, caps);
    let cap = &spec.devices[3].container_edits.device_nodes[1];
    assert_eq!((cap.major, cap.minor, cap.file_mode), (236, 66, 0o444));

    // Without its record the spec still tells which GPU is in use.
    let folder = CdiFolder::open(&paths.cdi_root, DraDriver::GPU).expect("opens");
    folder.write(&record(), &spec).expect("writes");
    let text = fs::read_to_string(folder.path(UID)).expect("reads");
    let (_, body) = text.split_once('\n').expect("has lines");
    fs::write(folder.path(UID), body).expect("writes");
    let found = ["gpu-1", "gpu-1-mig-1g10gb-19-0"].map(str::to_owned).to_vec();
    assert_eq!(folder.read(UID), Some(SpecContent::Devices(found)));
}

#[test]
fn a_file_gives_back_its_record_and_is_yaml() {
    let node = node(&[]);
    let paths = paths(&node);
    let folder = CdiFolder::open(&paths.cdi_root, DraDriver::GPU).expect("opens");
    let spec = spec_of(&paths, &DriverFiles::default(), &gpu(1));
    folder.write(&record(), &spec).expect("writes");
    assert!(folder.is_intact(&record(), &spec));
    assert_eq!(folder.uids().expect("lists"), [UID]);
    assert_eq!(folder.read(UID), Some(SpecContent::Record(Box::new(record()))));
    let text = fs::read_to_string(folder.path(UID)).expect("reads");
    let read: Spec = serde_saphyr::from_str(&text).expect("is YAML");
    assert_eq!(read, spec);

    let first = text.lines().next().expect("has lines").to_owned();
    fs::write(folder.path(UID), text.replace(&first, "# else")).expect("writes");
    assert_eq!(folder.read(UID), Some(SpecContent::Devices(vec!["gpu-1".to_owned()])));
    fs::write(folder.path(UID), "devices: [{name: other-gpu-1}]").expect("writes");
    assert_eq!(folder.read(UID), Some(SpecContent::Damaged));
    folder.remove(UID).expect("removes");
    folder.remove(UID).expect("is gone already");
    assert_eq!(folder.read(UID), None);
}

#[test]
fn leftovers_of_a_crash_are_removed_and_other_files_stay() {
    let ours = format!("cdi/.k8s.gpu.nvidia.com-claim_{UID}.yaml.octavo-tmp");
    let node = node(&[&ours, "cdi/.other.yaml.octavo-tmp", "cdi/vendor.json"]);
    CdiFolder::open(&node.path().join("cdi"), DraDriver::GPU).expect("opens");
    assert!(!node.path().join(&ours).exists());
    assert!(node.path().join("cdi/.other.yaml.octavo-tmp").exists());
    assert!(node.path().join("cdi/vendor.json").exists());
}
