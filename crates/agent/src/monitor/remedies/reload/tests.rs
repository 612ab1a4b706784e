use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

/// The list of a node with a display. The newest module is first.
const LIST: &str = "\
nvidia_drm 1 0 - Live 0x0
nvidia_modeset 1 1 nvidia_drm, Live 0x0
nvidia_uvm 1 0 - Live 0x0
snd 1 0 - Live 0x0
nvidia 1 2 nvidia_uvm,nvidia_modeset, Live 0x0
";

/// What a reload without services does.
const RELOAD: [&str; 8] = [
    "rmmod nvidia_drm",
    "rmmod nvidia_modeset",
    "rmmod nvidia_uvm",
    "rmmod nvidia",
    "modprobe nvidia",
    "modprobe nvidia_uvm",
    "modprobe nvidia_modeset",
    "modprobe nvidia_drm",
];

/// A node whose programs write what they do into a log. A file `stuck-NAME` keeps a module or service from its end, `broken-NAME` from
/// its start, and `missing-NAME` is for a module that the driver's root does not have.
struct Node {
    folder: tempfile::TempDir,
    reloader: Reloader,
    stop: CancellationToken,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("proc")).unwrap();
        fs::write(root.join("proc/modules"), LIST).unwrap();
        fs::write(root.join("log"), "").unwrap();
        let program = |folder: &str, name: &str, script: &str| {
            let folder = root.join(folder).join("usr/sbin");
            fs::create_dir_all(&folder).unwrap();
            let text = format!("#!/bin/sh\nset -e\ncd {}\n{script}\n", root.display());
            fs::write(folder.join(name), text).unwrap();
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(folder.join(name), mode).unwrap();
        };
        program(
            "driver",
            "rmmod",
            "echo rmmod $1 >> log
            while [ -e hold ]; do sleep 0.01; done
            if [ -e stuck-$1 ]; then echo Module $1 is in use >&2; exit 1; fi
            sed -i \"/^$1 /d\" proc/modules",
        );
        program(
            "driver",
            "modprobe",
            "if [ $1 = --show-depends ]; then test ! -e missing-$2; exit; fi
            echo modprobe $1 >> log
            if [ -e broken-$1 ]; then echo could not insert $1 >&2; exit 1; fi
            grep -q \"^$1 \" proc/modules || echo $1 1 0 - Live 0x0 >> proc/modules",
        );
        program(
            "host",
            "systemctl",
            "case $1 in
            show) cat shown; exit ;;
            is-active) grep -qx $3 active; exit ;;
            esac
            echo $1 $2 >> log
            if [ $1 = stop ]; then test ! -e stuck-$2; else test ! -e broken-$2; fi",
        );
        fs::write(root.join("shown"), "").unwrap();
        fs::write(root.join("active"), "").unwrap();
        let reloader = Reloader {
            proc_root: root.join("proc"),
            note: root.join("run/octavo/driver-reload.json"),
            host_root: root.join("host"),
            ..Reloader::default()
        };
        Self { reloader, folder, stop: CancellationToken::new() }
    }

    fn set(&self, file: &str, text: &str) {
        fs::write(self.folder.path().join(file), text).unwrap();
    }

    /// A process with a file open.
    fn process(&self, pid: u32, name: &str, cgroup: &str, file: &str) {
        let folder = self.reloader.proc_root.join(pid.to_string());
        fs::create_dir_all(folder.join("fd")).unwrap();
        fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
        fs::write(folder.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        symlink("/dev/null", folder.join("fd/0")).unwrap();
        symlink(file, folder.join("fd/3")).unwrap();
    }

    fn driver_root(&self) -> PathBuf {
        self.folder.path().join("driver")
    }

    fn reload(&self) -> Result<(), String> {
        let reloaded = self.reloader.reload(&self.driver_root(), &self.stop);
        reloaded.map_err(|error| error.to_string())
    }

    fn restore(&self) -> Result<bool, String> {
        self.reloader.restore(&self.driver_root()).map_err(|error| error.to_string())
    }

    /// What was done since the last call.
    fn done(&self) -> Vec<String> {
        let log = self.folder.path().join("log");
        let text = fs::read_to_string(&log).unwrap();
        fs::write(log, "").unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn assert_all_loaded(&self) {
        let list = modules::loaded(&self.reloader.proc_root).unwrap();
        let names: Vec<_> = list.iter().map(|module| module.name).collect();
        assert_eq!(names, ["nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia"]);
    }
}

#[test]
fn modules_are_unloaded_leaves_first_and_loaded_in_the_reverse_order() {
    let node = Node::new();
    node.reload().unwrap();
    assert_eq!(node.done(), RELOAD);
    node.assert_all_loaded();
    assert_eq!(node.restore(), Ok(false), "nothing is left to be brought back");
    assert!(node.done().is_empty());
}

#[test]
fn what_could_not_be_brought_back_is_not_touched() {
    let node = Node::new();
    node.set("missing-nvidia_drm", "");
    let error = node.reload().unwrap_err();
    assert!(error.contains("nvidia_drm is not unloaded, since it could not"), "{error}");
    let list = LIST.replace("nvidia_modeset, Live", "nvidia_modeset,nvidia_fs, Live");
    node.set("proc/modules", &list);
    let error = node.reload().unwrap_err();
    assert!(error.starts_with("the module nvidia_fs needs nvidia"), "{error}");
    node.set("proc/modules", "snd 1 0 - Live 0x0\n");
    let error = node.reload().unwrap_err();
    assert!(error.contains("no module nvidia loaded"), "{error}");
    assert!(node.done().is_empty());
}

#[test]
fn a_process_that_is_no_service_of_the_host_is_named_and_nothing_is_touched() {
    let node = Node::new();
    let slice = "/../../../system.slice/nvidia-persistenced.service";
    node.process(7, "nvidia-persiste", slice, "/dev/nvidia0");
    node.process(12, "python3", "/user.slice/session-1.scope", "/var/log/nvidia/dev.log");
    node.process(30, "nv-hostengine", "/kubepods/pod1/c1", "/dev/nvidiactl");
    node.process(31, "Xorg", "/system.slice/gdm.service", "/dev/dri/card0");
    let error = node.reload().unwrap_err();
    assert!(error.starts_with("the driver is open in nv-hostengine (30). End them"), "{error}");
    assert!(node.done().is_empty());
}

#[test]
fn services_of_nvidia_stop_before_and_start_after_it() {
    let node = Node::new();
    let of = |unit: &str| format!("/system.slice/{unit}");
    node.process(7, "nvidia-persiste", &of("nvidia-persistenced.service"), "/dev/nvidia0");
    node.process(8, "nv-fabricmanage", &of("nvidia-fabricmanager.service"), "/dev/nvidiactl");
    node.set("shown", "RequiredBy=multi-user.target old.service\nBoundBy=\n");
    node.reload().unwrap();
    let mut expected =
        vec!["stop nvidia-fabricmanager.service", "stop nvidia-persistenced.service"];
    expected.extend(RELOAD);
    expected.extend(["start nvidia-persistenced.service", "start nvidia-fabricmanager.service"]);
    assert_eq!(node.done(), expected);

    // Another one that would stop with them, and would not start again.
    node.set("active", "old.service\n");
    let error = node.reload().unwrap_err();
    assert!(error.starts_with("the service old.service runs and needs nvidia-fabric"), "{error}");
    assert!(node.done().is_empty());

    node.set("active", "");
    node.set("broken-nvidia-fabricmanager.service", "");
    let error = node.reload().unwrap_err();
    assert!(error.contains("cannot start the service nvidia-fabricmanager.service"), "{error}");
    node.assert_all_loaded();
    assert_eq!(node.restore(), Ok(false), "systemd knows why, and tries again as its unit says");
}

#[test]
fn a_module_that_is_in_use_has_the_others_loaded_again() {
    let node = Node::new();
    node.process(31, "Xorg", "/system.slice/gdm.service", "/dev/dri/card0");
    node.set("stuck-nvidia_modeset", "");
    let error = node.reload().unwrap_err();
    assert!(error.starts_with("nvidia_modeset cannot be unloaded: rmmod failed"), "{error}");
    assert!(error.ends_with("What may use it: Xorg (31)"), "{error}");
    let done = node.done();
    let attempts = done.iter().filter(|line| *line == "rmmod nvidia_modeset").count();
    assert_eq!(attempts, 5, "it may be in use for a moment");
    assert!(!done.contains(&"rmmod nvidia".to_owned()), "{done:?}");
    node.assert_all_loaded();
}

#[test]
fn a_service_that_does_not_stop_leaves_the_modules_alone() {
    let node = Node::new();
    node.process(9, "nv-hostengine", "/system.slice/nvidia-dcgm.service", "/dev/nvidia1");
    node.set("stuck-nvidia-dcgm.service", "");
    let error = node.reload().unwrap_err();
    assert!(error.starts_with("cannot stop the service nvidia-dcgm.service"), "{error}");
    assert!(!node.done().iter().any(|line| line.starts_with("rmmod")));
}

#[test]
fn an_agent_that_ends_loads_the_driver_before() {
    let node = Node::new();
    node.stop.cancel();
    assert!(node.reload().unwrap_err().starts_with("the agent ends"));
    let loads: Vec<_> = RELOAD.into_iter().skip(4).collect();
    assert_eq!(node.done(), loads);
}

#[test]
fn a_process_that_ends_waits_for_its_reload() {
    let node = Node::new();
    node.set("hold", "");
    node.reloader.tasks.close();
    let log = node.folder.path().join("log");
    thread::scope(|scope| {
        let reload = scope.spawn(|| node.reload());
        while !fs::read_to_string(&log).unwrap().contains("rmmod") {
            thread::yield_now();
        }
        assert!(!node.reloader.tasks.is_empty());
        fs::remove_file(node.folder.path().join("hold")).unwrap();
        reload.join().unwrap().unwrap();
    });
    assert!(node.reloader.tasks.is_empty());
}

#[test]
fn what_a_dead_agent_took_away_is_brought_back_by_the_next() {
    let node = Node::new();
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let taken = Taken {
        services: owned(&["nvidia-persistenced.service"]),
        modules: owned(&["nvidia_uvm", "nvidia"]),
    };
    drop(Note::begin(&node.reloader.note, taken).unwrap());
    node.set("proc/modules", "");
    node.set("broken-nvidia_uvm", "");
    let error = node.restore().unwrap_err();
    assert!(error.starts_with("nvidia_uvm cannot be loaded again"), "{error}");
    let expected = ["modprobe nvidia", "modprobe nvidia_uvm", "start nvidia-persistenced.service"];
    assert_eq!(node.done(), expected, "the service needs no other module");
    let error = node.reload().unwrap_err();
    assert!(error.starts_with("nvidia_uvm cannot be loaded again"), "{error}");
    assert_eq!(node.done(), expected, "nothing is taken away while a note is left");
    fs::remove_file(node.folder.path().join("broken-nvidia_uvm")).unwrap();
    assert_eq!(node.restore(), Ok(true), "the note stayed");
    assert_eq!(node.done(), expected);
    assert_eq!(node.restore(), Ok(false));
}

#[test]
fn a_driver_that_does_not_load_is_loaded_later() {
    let node = Node::new();
    node.set("broken-nvidia", "");
    let error = node.reload().unwrap_err();
    assert!(error.starts_with("nvidia cannot be loaded again"), "{error}");
    fs::remove_file(node.folder.path().join("broken-nvidia")).unwrap();
    assert_eq!(node.restore(), Ok(true));
    node.assert_all_loaded();
}
