//! Opens a node's claims as soon as their lock is free.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use octavo_agent::claims::{ClaimReader, Claims, SilentReporter};
use octavo_node::NodePaths;

/// `/proc/devices` of a node with all modules of the driver.
pub(crate) const PROC_DEVICES: &str =
    "Character devices:\n195 nvidia\n236 nvidia-caps\n508 nvidia-uvm\n";

/// Environment variable of a process in a mount namespace of its own, in which shares have file systems of their own.
const IN_NAMESPACE: &str = "OCTAVO_TEST_IN_MOUNT_NAMESPACE";

/// The claims of a node's folder, with a new reader per attempt. A forked child of another test has a copy of the lock
/// until it calls exec.
pub(crate) async fn opened<R: ClaimReader + 'static>(
    node: &Path,
    reader: impl Fn() -> R,
) -> Claims {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let reporter = Arc::new(SilentReporter);
        match Claims::open(paths(node), "node".to_owned(), Arc::new(reader()), reporter) {
            Ok((claims, _)) => break claims,
            Err(error) if Instant::now() < deadline && error.to_string().contains("lock") => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Whether this process has a mount namespace of its own. If not, runs the test again in one.
#[allow(dead_code, reason = "one of two test programs has such a test")]
pub(crate) fn is_in_namespace(test: &str) -> bool {
    if std::env::var_os(IN_NAMESPACE).is_some() {
        return true;
    }
    let output = std::process::Command::new("unshare")
        .args(["--map-root-user", "--mount"])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(IN_NAMESPACE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
    false
}

/// The parts of a node in a folder of its own.
fn paths(node: &Path) -> NodePaths {
    let at = |path: &str| node.join(path);
    NodePaths {
        driver_root: "/".into(),
        driver_root_seen: at("driver"),
        proc_root: at("proc"),
        sys_root: at("sys"),
        cgroup_root: at("sys/fs/cgroup"),
        kubelet_root: at("kubelet"),
        device_plugin_root: at("kubelet/device-plugins"),
        cdi_root: at("cdi"),
        run_root: at("run"),
        hook_path: "/octavo".into(),
        share_tmpfs: std::env::var_os(IN_NAMESPACE).is_some(),
        mounts: Vec::new(),
    }
}
