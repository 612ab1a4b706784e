//! The program of CDI hooks as a container runtime runs it, against an agent with the simulated driver.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use octavo_gpu::Driver;
use octavo_gpu::nvml::{Nvml, find_library};
use octavo_machine::Machine;
use serde_json::{Value, json};

use super::fixtures::Node;
use crate::claims::Claims;
use crate::run::hook_socket;

const MACHINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/dgx-h100.yaml");

/// A node with a driver of a version, whose agent answers hooks.
struct Host {
    node: Node,
    gpu: String,
    claims: Claims,
    /// Keeps the driver open.
    driver: Arc<dyn Driver>,
}

impl Host {
    async fn new(version: &str) -> Self {
        let node = Node::new();
        node.install_driver();
        let folder = node.path("driver/usr/lib64");
        let library = folder.join("libnvidia-ml.so.1");
        fs::copy(folder.join("libnvidia-ml.so.580.95.05"), &library).expect("copies");
        let mut machine = Machine::read(Path::new(MACHINE)).expect("reads");
        version.clone_into(&mut machine.driver.version);
        machine.instantiate("host");
        fs::write(folder.join("machine.yaml"), machine.to_yaml().expect("is YAML"))
            .expect("writes");
        fs::create_dir_all(node.path("sys/fs/cgroup/pods.slice/c.scope")).expect("makes");
        fs::create_dir_all(node.path("proc/77")).expect("makes");
        fs::write(node.path("proc/77/cgroup"), "0::/pods.slice/c.scope\n").expect("writes");
        let gpu = machine.gpus[0].uuid.clone().expect("has one");
        let (claims, _) = node.open();
        let library = find_library(&node.path("driver")).expect("is there");
        let driver: Arc<dyn Driver> =
            Arc::new(Nvml::open(&library, &node.path("sys")).expect("opens"));
        claims.set_driver(Some(&driver)).await;
        tokio::spawn(hook_socket::serve(hook_socket::path(&node.path("run")), claims.clone()));
        Self { node, gpu, claims, driver }
    }

    /// Runs the embedded program for a container with one share. Returns its messages if it fails.
    async fn run(&self, bytes: u64) -> Result<(), String> {
        let program = self.node.path("octavo-cdi-hook");
        if !program.exists() {
            fs::write(&program, octavo_embedded::HOOK).expect("writes");
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("sets");
        }
        let bundle = self.node.path("bundle");
        fs::create_dir_all(bundle.join("rootfs")).expect("makes");
        fs::write(bundle.join("config.json"), json!({"root": {"path": "rootfs"}}).to_string())
            .expect("writes");
        let state = json!({"bundle": bundle, "pid": 77}).to_string();
        let socket = hook_socket::path(&self.node.path("run"));
        while !socket.exists() {
            tokio::task::yield_now().await;
        }
        let mut command = Command::new(program);
        command.args(["cdi-hook", "memory-limits", "--gpu", &self.gpu, "--memory-bytes"]);
        command.arg(bytes.to_string()).arg("--socket").arg(socket);
        command.arg("--proc-root").arg(self.node.path("proc"));
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let run = move || {
            // Another test's child may hold the descriptor by which the program was written.
            let mut child = loop {
                match command.spawn() {
                    Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {}
                    child => break child.expect("starts"),
                }
            };
            child.stdin.take().expect("is piped").write_all(state.as_bytes()).expect("writes");
            child.wait_with_output().expect("ends")
        };
        let output = tokio::task::spawn_blocking(run).await.expect("ends");
        let is_ok = output.status.success();
        is_ok.then_some(()).ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn limits(&self) -> Value {
        let path = self.node.path("driver/usr/lib64/memory_limits.json");
        serde_json::from_str(&fs::read_to_string(path).expect("reads")).expect("is JSON")
    }
}

#[tokio::test]
async fn the_driver_holds_the_container_s_cgroup_to_the_share() {
    let host = Host::new("615.10.01").await;
    assert!(host.driver.has_memory_limits());
    host.run(20 << 30).await.expect("sets");
    let cgroup = host.node.path("sys/fs/cgroup/pods.slice/c.scope").display().to_string();
    let limits = json!({"softBytes": 0, "hardBytes": 20_u64 << 30});
    assert_eq!(host.limits(), json!({&host.gpu: {cgroup: limits}}));
    let mode = fs::metadata(hook_socket::path(&host.node.path("run"))).expect("is there");
    assert_eq!(mode.permissions().mode() & 0o777, 0o600, "only root may connect");
}

#[tokio::test]
async fn what_cannot_be_limited_does_not_start() {
    let old = Host::new("580.95.05").await;
    assert!(!old.driver.has_memory_limits());
    let text = old.run(1 << 30).await.expect_err("it cannot");
    assert!(text.contains("not supported"), "{text}");

    let host = Host::new("615.10.01").await;
    fs::remove_dir(host.node.path("sys/fs/cgroup/pods.slice/c.scope")).expect("removes");
    let text = host.run(1 << 30).await.expect_err("it cannot");
    assert!(text.contains("is not there"), "{text}");
    host.claims.set_driver(None).await;
    fs::create_dir(host.node.path("sys/fs/cgroup/pods.slice/c.scope")).expect("makes");
    let text = host.run(1 << 30).await.expect_err("it cannot");
    assert!(text.contains("driver is not open"), "{text}");
}

#[tokio::test]
async fn without_a_program_for_hooks_no_claim_is_prepared() {
    let node = Node::new();
    let claims = node.start().await;
    let claim = node.allocate("a", &["gpu-0"]);
    claims.set_hook_problem(Some("/opt is read-only".to_owned()));
    let refusal = claims.prepare(&claim).await.expect_err("its hooks cannot run");
    assert_eq!(refusal.reason(), "HookNotReady");
    assert!(refusal.to_string().contains("/opt is read-only"), "{refusal}");
    claims.set_hook_problem(None);
    claims.prepare(&claim).await.expect("prepares");
    claims.set_hook_problem(Some("/opt is read-only".to_owned()));
    claims.unprepare(&claim).await.expect("needs no hook");
}
