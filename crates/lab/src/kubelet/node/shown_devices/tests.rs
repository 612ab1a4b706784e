use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::kubelet::device_manager::fake_device_plugin::{FakeDevicePlugin, device};
use crate::kubelet::device_manager::sockets;
use crate::kubelet::fake_api::FakeApi;
use crate::kubelet::node::heartbeat;
use crate::kubelet::pod_addresses::PodAddresses;
use crate::kubelet::pods::processes::ProcessHost;
use crate::kubelet::settings::Settings;

const NODE: &str = "/api/v1/nodes/node";

#[tokio::test]
async fn numbers_of_devices_are_written_once_when_they_change() {
    let (folder, api) = (tempfile::tempdir().unwrap(), FakeApi::default());
    let host = Arc::new(ProcessHost::new(folder.path()).unwrap());
    let (addresses, shutdown) = (Arc::new(PodAddresses::default()), CancellationToken::new());
    let path = folder.path().join("node");
    let node = Node::open(path.clone(), 0, api.client(), (addresses, host), shutdown).unwrap();
    let node = Arc::new(node);
    sockets::serve(&node, &TaskTracker::new()).unwrap();
    api.put(NODE, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}));
    tokio::spawn({
        let node = Arc::clone(&node);
        async move {
            let permits = tokio::sync::Semaphore::new(1);
            heartbeat::run(
                &node,
                &Settings { lease_seconds: 600, ..Settings::default() },
                &permits,
            )
            .await;
        }
    });
    let status = |node: Option<&Value>, field: &str| {
        node.and_then(|node| node["status"][field].get("example.com/gpu").cloned())
    };
    let is_registered = |node: Option<&Value>| node.unwrap()["status"]["capacity"]["cpu"] == "16";
    api.wait_until(NODE, is_registered).await;
    let at_first = api.patches();

    api.fail_with_conflicts(1);
    let folder = path.join("kubelet/device-plugins");
    let devices = vec![device("0", true, None), device("1", false, None)];
    let plugin = FakeDevicePlugin::start(&folder, "example.com/gpu", devices.clone(), false).await;
    let shows = |node: Option<&Value>, capacity: &str, allocatable: &str| {
        status(node, "capacity") == Some(json!(capacity))
            && status(node, "allocatable") == Some(json!(allocatable))
    };
    api.wait_until(NODE, |node| shows(node, "2", "1")).await;
    assert_eq!(api.patches(), at_first + 1);
    // An equal list, and then another.
    plugin.list(devices);
    plugin.list(vec![device("0", true, None)]);
    api.wait_until(NODE, |node| shows(node, "1", "1")).await;
    assert_eq!(api.patches(), at_first + 2);
    drop(plugin);
    api.wait_until(NODE, |node| shows(node, "1", "0")).await;
    assert_eq!(api.patches(), at_first + 3);
}
