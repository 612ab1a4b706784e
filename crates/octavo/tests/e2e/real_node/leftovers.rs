//! What a lab with real nodes could leave on the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use octavo_lab::Lab;

use crate::testbed::eventually;

/// Settings of the whole machine that an unrestricted kubelet changes.
const KERNEL_SETTINGS: [&str; 6] = [
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];

/// Folders of the machine that unrestricted programs of a node would create.
const MACHINE_DIRS: [&str; 8] = [
    "/etc/cni/net.d",
    "/opt/cni",
    "/opt/containerd",
    "/run/cdi",
    "/run/containerd",
    "/usr/libexec/kubernetes",
    "/var/lib/containerd",
    "/var/lib/kubelet",
];

/// Parts of the machine that a lab could change.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Footprint {
    settings: BTreeMap<&'static str, String>,
    folders: BTreeMap<&'static str, bool>,
}

impl Footprint {
    pub(super) fn take() -> Self {
        let setting = |name: &'static str| {
            (name, fs::read_to_string(Path::new("/proc/sys").join(name)).unwrap_or_default())
        };
        Self {
            settings: KERNEL_SETTINGS.into_iter().map(setting).collect(),
            folders: MACHINE_DIRS
                .into_iter()
                .map(|path| (path, Path::new(path).exists()))
                .collect(),
        }
    }
}

/// Identifiers of the real nodes' objects on the machine.
pub(super) struct Traces {
    state: PathBuf,
    /// The eight digits in the names of links and cgroups.
    id: String,
    namespaces: BTreeSet<PathBuf>,
}

impl Traces {
    pub(super) fn of(lab: &Lab) -> Self {
        let gateway = lab.settings().real.as_ref().unwrap().gateway().to_string();
        let bridge = ip(&["-oneline", "-4", "address", "show", "to", &gateway]);
        let bridge = bridge.split_whitespace().nth(1).unwrap();
        let namespaces = lab.real_nodes().iter().flat_map(|node| {
            let root = lab.real_root(&node.name).unwrap();
            let namespace =
                |kind: &str| fs::read_link(root.with_file_name("ns").join(kind)).unwrap();
            ["net", "pid", "mnt"].map(namespace)
        });
        let own = |kind: &str| fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        let namespaces: BTreeSet<PathBuf> = namespaces.collect();
        assert_eq!(namespaces.len(), 3 * lab.real_nodes().len());
        assert!(["net", "pid", "mnt"].iter().all(|kind| !namespaces.contains(&own(kind))));
        Self {
            state: lab.state_dir().to_owned(),
            id: bridge.strip_prefix("octavo-").unwrap().to_owned(),
            namespaces,
        }
    }

    pub(super) async fn wait_until_gone(&self) {
        assert!(!self.state.exists());
        assert!(!ip(&["link"]).contains(&self.id), "links are left");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(self.state.to_str().unwrap()) && !mounts.contains(&self.id));
        for hierarchy in mounts.lines().filter(|line| line.contains(" - cgroup")) {
            let mount_point = Path::new(hierarchy.split(' ').nth(4).unwrap());
            let left = mount_point.join(format!("octavo-{}", self.id));
            assert!(!left.exists(), "{} is left", left.display());
        }
        // The last process in them may still be ending.
        eventually("no process is in a namespace of the nodes", || async {
            (self.processes_in_namespaces() == 0).then_some(())
        })
        .await;
        let routes = ip(&["route", "show", "table", "all"]);
        assert!(!routes.contains(&self.id), "{routes}");
    }

    fn processes_in_namespaces(&self) -> usize {
        let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        processes
            .filter(|process| {
                let in_one = |kind: &str| {
                    let namespace = fs::read_link(process.join("ns").join(kind));
                    namespace.is_ok_and(|namespace| self.namespaces.contains(&namespace))
                };
                ["net", "pid", "mnt"].into_iter().any(in_one)
            })
            .count()
    }
}

fn ip(args: &[&str]) -> String {
    let output = Command::new("ip").args(args).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}
