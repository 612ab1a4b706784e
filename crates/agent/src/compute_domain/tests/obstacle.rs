//! What keeps a node from serving domains.

use std::fs;

use octavo_api::names::{NO_IMEX_CHANNELS, NO_IMEX_CONTROL, NO_IMEX_SERVICE};

use super::fixtures::Node;
use crate::config::Imex;

#[tokio::test]
async fn a_node_without_nvidia_imex_says_so_until_it_is_installed() {
    let node = Node::new();
    let claims = node.open();
    assert_eq!(claims.obstacle().await, Some(NO_IMEX_SERVICE));
    node.install("usr/bin/nvidia-imex", "true");
    assert_eq!(claims.obstacle().await, None);
    fs::remove_file(node.path("driver/usr/bin/nvidia-imex")).unwrap();
    assert_eq!(claims.obstacle().await, Some(NO_IMEX_SERVICE));
}

#[tokio::test]
async fn a_host_with_its_own_service_needs_the_command_to_ask_it() {
    let node = Node::new();
    let claims = node.open_with(Imex::OfHost { socket: "/run/imex.sock".into() });
    assert_eq!(claims.obstacle().await, Some(NO_IMEX_CONTROL));
    node.install("usr/bin/nvidia-imex-ctl", "true");
    assert_eq!(claims.obstacle().await, None);
}

#[tokio::test]
async fn a_module_without_channels_is_an_obstacle_in_a_fabric_only() {
    let node = Node::new();
    node.install("usr/bin/nvidia-imex", "true");
    let devices = node.path("proc/devices");
    fs::write(&devices, "Character devices:\n195 nvidia\n236 nvidia-caps\n").unwrap();
    assert_eq!(node.open().obstacle().await, Some(NO_IMEX_CHANNELS));
    let without = Node::without_fabric();
    assert_eq!(without.open().obstacle().await, None);
}
