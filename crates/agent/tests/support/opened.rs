//! Opens a node's claims as soon as their lock is free.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use octavo_agent::claims::{ClaimReader, Claims, SilentReporter};
use octavo_node::NodePaths;

/// `/proc/devices` of a node with all modules of the driver.
pub(crate) const PROC_DEVICES: &str =
    "Character devices:\n195 nvidia\n236 nvidia-caps\n508 nvidia-uvm\n";

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
        cdi_root: at("cdi"),
        run_root: at("run"),
        hook_path: "/octavo".into(),
        share_tmpfs: false,
        mounts: Vec::new(),
    }
}
