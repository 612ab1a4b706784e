use octavo_machine::Machine;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::testing::simulated_library;

const MACHINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/dgx-h100.yaml");

/// A host with the simulated driver and one container's process.
struct Host {
    folder: TempDir,
    gpus: Vec<String>,
}

impl Host {
    /// A host with a driver of a version.
    fn new(driver: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |path: &str| folder.path().join(path);
        for path in ["driver/usr/lib64", "proc/77", "sys/fs/cgroup/pods.slice/c.scope"] {
            fs::create_dir_all(at(path)).expect("makes");
        }
        let library = at("driver/usr/lib64/libnvidia-ml.so.1");
        fs::copy(simulated_library(), library).expect("copies");
        let mut machine = Machine::read(Path::new(MACHINE)).expect("reads");
        driver.clone_into(&mut machine.driver.version);
        machine.instantiate("host");
        let text = machine.to_yaml().expect("is YAML");
        fs::write(at("driver/usr/lib64/machine.yaml"), text).expect("writes");
        let gpus = machine.gpus.iter().filter_map(|gpu| gpu.uuid.clone()).collect();
        fs::write(at("proc/77/cgroup"), "0::/pods.slice/c.scope\n").expect("writes");
        Self { folder, gpus }
    }

    fn set(&self, shares: &[(usize, u64)], which: usize) -> anyhow::Result<()> {
        let hooks = shares.iter().map(|(gpu, bytes)| {
            let args = ["octavo", "cdi-hook", "memory-limits", "--gpu", &self.gpus[*gpu]];
            let mut args: Vec<_> = args.map(str::to_owned).to_vec();
            args.extend(["--memory-bytes".to_owned(), bytes.to_string()]);
            args
        });
        let container = Container {
            root: "/nowhere".into(),
            pid: Some(77),
            cwd: "/".into(),
            env: Vec::new(),
            hooks: hooks.collect(),
        };
        let (gpu, memory_bytes) = shares[which];
        let args = Args {
            gpu: self.gpus[gpu].clone(),
            memory_bytes,
            driver_root: self.folder.path().join("driver"),
            proc_root: self.folder.path().join("proc"),
            sys_root: self.folder.path().join("sys"),
        };
        set(&container, &args)
    }

    fn limits(&self) -> Value {
        let path = self.folder.path().join("driver/usr/lib64/memory_limits.json");
        serde_json::from_str(&fs::read_to_string(path).expect("reads")).expect("is JSON")
    }

    fn cgroup(&self) -> String {
        self.folder.path().join("sys/fs/cgroup/pods.slice/c.scope").display().to_string()
    }
}

#[test]
fn the_driver_holds_the_container_s_cgroup_to_the_share() {
    let host = Host::new("615.10.01");
    host.set(&[(0, 20 << 30)], 0).expect("sets");
    let limits = json!({"softBytes": 0, "hardBytes": 20_u64 << 30});
    assert_eq!(host.limits(), json!({&host.gpus[0]: {host.cgroup(): limits}}));
}

#[test]
fn shares_of_one_gpu_in_one_container_add_up_whichever_hook_runs_last() {
    let shares = [(0, 10 << 30), (1, 5 << 30), (0, 7 << 30)];
    let host = Host::new("615.10.01");
    for which in [0, 1, 2, 0] {
        host.set(&shares, which).expect("sets");
    }
    let limits = |gpu: usize| host.limits()[&host.gpus[gpu]][host.cgroup()]["hardBytes"].clone();
    assert_eq!((limits(0), limits(1)), (json!(17_u64 << 30), json!(5_u64 << 30)));
}

#[test]
fn a_driver_says_by_its_version_whether_it_can() {
    for (version, can) in [("580.95.05", false), ("614.99", false), ("615.10.01", true)] {
        let host = Host::new(version);
        let library = find_library(&host.folder.path().join("driver")).expect("is there");
        let driver = Nvml::open(&library, &host.folder.path().join("sys")).expect("opens");
        assert_eq!(driver.has_memory_limits(), can, "{version}");
    }
}

#[test]
fn what_cannot_be_limited_does_not_start() {
    let refusal = |host: &Host| format!("{:#}", host.set(&[(0, 1 << 30)], 0).expect_err("fails"));
    let old = Host::new("580.95.05");
    assert!(refusal(&old).contains("not supported"), "{}", refusal(&old));
    let host = Host::new("615.10.01");
    let cgroup = |text: &str| fs::write(host.folder.path().join("proc/77/cgroup"), text);
    for (text, words) in [
        ("12:memory:/pods/c\n", "no cgroup of version 2"),
        ("0::/\n", "not the container's own"),
        ("0::/../other\n", "not the container's own"),
        ("0::/pods.slice/gone\n", "is not there"),
    ] {
        cgroup(text).expect("writes");
        assert!(refusal(&host).contains(words), "{}", refusal(&host));
    }
    fs::remove_dir_all(host.folder.path().join("proc/77")).expect("removes");
    assert!(refusal(&host).contains("process 77"), "{}", refusal(&host));
}
