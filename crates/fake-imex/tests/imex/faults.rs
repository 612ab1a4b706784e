//! Drivers and networks that fail.

use std::fs;

use octavo_fake_imex::status::{ConnectionStatus, NodeStatus};
use octavo_fake_imex::{Config, Daemon};

use crate::{MACHINE, Rack, eventually};

#[tokio::test]
async fn a_driver_has_one_session() {
    let rack = Rack::new(2);
    let first = rack.start(0).await;
    let config = Config { address: Some(Rack::address(1)), ..rack.config(1) };
    let second = rack.environment(0);
    let error = Daemon::start(config.clone(), &second).await.err().unwrap();
    assert!(error.to_string().contains("has the session of this driver"), "{error:#}");
    first.shut_down().await;
    Daemon::start(config, &second).await.unwrap();
}

#[tokio::test]
async fn versions_must_be_equal() {
    let rack = Rack::new(2);
    rack.set_faults(0, r#"{"version": "1.2.3"}"#);
    let refusal = rack.refusal(rack.config(0), 0).await;
    assert!(refusal.contains("this service is of version 1.2.3"), "{refusal}");
    rack.set_faults(0, "{}");
    let version = MACHINE.lines().find(|line| line.trim().starts_with("version:")).unwrap();
    let older = MACHINE.replacen(version, "  version: 570.1.2", 1);
    fs::write(rack.machine(1).join("machine.yaml"), older).unwrap();
    let _both = [rack.start(0).await, rack.start(1).await];
    rack.wait_for_link(0, 1, ConnectionStatus::VersionMismatch).await;
    rack.wait_for_link(1, 0, ConnectionStatus::VersionMismatch).await;
}

#[tokio::test]
async fn a_service_that_is_stuck_goes_on_when_the_fault_ends() {
    let rack = Rack::new(1);
    rack.set_faults(0, r#"{"stuckIn": "INIT_GPU"}"#);
    let daemon = rack.start(0).await;
    eventually("it is stuck", async || daemon.status() == NodeStatus::InitGpu).await;
    rack.set_faults(0, "{}");
    rack.wait_until_ready(0).await;
}

#[tokio::test]
async fn a_cut_peer_is_lost_by_both_and_found_again() {
    let rack = Rack::new(3);
    let _all = [rack.start(0).await, rack.start(1).await, rack.start(2).await];
    for (from, to) in [(0, 1), (1, 0), (0, 2)] {
        rack.wait_for_link(from, to, ConnectionStatus::Connected).await;
    }
    rack.set_faults(0, r#"{"cutPeers": [1]}"#);
    rack.wait_for_link(0, 1, ConnectionStatus::Recovering).await;
    rack.wait_for_link(1, 0, ConnectionStatus::Recovering).await;
    assert_eq!(rack.link(0, 2).await, ConnectionStatus::Connected);
    assert_eq!(rack.report(0).await.status, NodeStatus::Ready, "readiness is the node's own");
    rack.set_faults(0, "{}");
    rack.wait_for_link(0, 1, ConnectionStatus::Connected).await;
    rack.wait_for_link(1, 0, ConnectionStatus::Connected).await;
}
