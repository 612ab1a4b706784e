//! Nodes that come, go and move.

use std::fs;
use std::time::Duration;

use octavo_fake_gpu::imex::ServiceReport;
use octavo_fake_imex::Config;
use octavo_fake_imex::config::Quorum;
use octavo_fake_imex::status::{ConnectionStatus, DomainStatus, NodeStatus};
use serde_json::{Value, json};

use crate::{Rack, eventually};

#[tokio::test]
async fn three_nodes_are_up_once_all_are_connected() {
    let rack = Rack::new(3);
    let first = rack.start(0).await;
    rack.wait_until_ready(0).await;
    assert_eq!(first.status(), NodeStatus::Ready, "readiness is the node's own");
    let alone = rack.domain().await;
    assert_eq!(alone.status, DomainStatus::Degraded);
    assert_eq!(alone.nodes[&1].status, NodeStatus::Unavailable);
    let _others = [rack.start(1).await, rack.start(2).await];
    eventually("the domain is up", async || rack.domain().await.status == DomainStatus::Up).await;

    let text = serde_json::to_value(rack.domain().await).unwrap();
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(keys(&text), ["nodes", "status", "timestamp"]);
    let node = &text["nodes"]["2"];
    assert_eq!(keys(node), ["changed", "connections", "host", "hostName", "status", "version"]);
    assert_eq!((&node["host"], &node["status"]), (&json!("node-2"), &json!("READY")));
    let link = json!({"host": "node-0", "status": "CONNECTED", "changed": false});
    assert_eq!(node["connections"]["0"], link);
}

#[tokio::test]
async fn a_lost_node_is_seen_at_once_and_given_up_after_its_time() {
    let rack = Rack::new(2);
    let config = Config { grace_time: Some(Duration::from_secs(2)), ..rack.config(0) };
    let _first = rack.start_with(config, 0).await;
    let second = rack.start(1).await;
    rack.wait_for_link(0, 1, ConnectionStatus::Connected).await;
    second.shut_down().await;
    rack.wait_for_link(0, 1, ConnectionStatus::Recovering).await;
    rack.wait_for_link(0, 1, ConnectionStatus::Disconnected).await;
    let _again = rack.start(1).await;
    rack.wait_for_link(0, 1, ConnectionStatus::Connected).await;
}

#[tokio::test]
async fn names_are_looked_up_again_on_a_signal_and_not_twice_in_five_seconds() {
    let rack = Rack::new(3);
    rack.write_hosts([0, 1]);
    let first = rack.start(0).await;
    let _second = rack.start(1).await;
    rack.wait_for_link(0, 1, ConnectionStatus::Connected).await;
    rack.write_hosts([0, 1, 2]);
    let _third = rack.start(2).await;
    rack.wait_for_link(2, 0, ConnectionStatus::Connected).await;
    assert_eq!(rack.link(0, 2).await, ConnectionStatus::NeverConnected, "its name was unknown");
    assert!(first.reload());
    rack.wait_for_link(0, 2, ConnectionStatus::Connected).await;
    assert_eq!(rack.link(0, 1).await, ConnectionStatus::Connected, "survivors keep theirs");
    assert!(!first.reload(), "a second signal is ignored");
    let log = fs::read_to_string(rack.path("log")).unwrap();
    assert!(!log.contains("node 1 (node-1): Recovering"), "{log}");
    assert!(log.contains("SIGUSR1 is ignored"), "{log}");
}

#[tokio::test]
async fn a_node_that_moves_is_found_after_a_signal() {
    let rack = Rack::new(2);
    let first = rack.start(0).await;
    let second = rack.start(1).await;
    rack.wait_for_link(0, 1, ConnectionStatus::Connected).await;
    second.shut_down().await;
    let hosts = format!("{} node-0\n127.0.0.99 node-1\n", Rack::address(0));
    fs::write(rack.path("hosts"), hosts).unwrap();
    let moved = Config { address: "127.0.0.99".parse().ok(), ..rack.config(1) };
    let _second = rack.start_with(moved, 1).await;
    assert!(first.reload());
    rack.wait_for_link(0, 1, ConnectionStatus::Connected).await;
}

#[tokio::test]
async fn different_lists_do_not_connect() {
    let rack = Rack::new(2);
    let other = rack.path("other.cfg");
    fs::write(&other, "node-0\nnode-1\nnode-2\n").unwrap();
    let _first = rack.start(0).await;
    let _second = rack.start_with(Config { nodes_file: other, ..rack.config(1) }, 1).await;
    rack.wait_for_link(0, 1, ConnectionStatus::NodeMapMismatch).await;
    rack.wait_for_link(1, 0, ConnectionStatus::NodeMapMismatch).await;
}

#[tokio::test]
async fn a_full_quorum_waits_for_all_nodes() {
    let rack = Rack::new(2);
    let config = Config { quorum: Quorum::Full, ..rack.config(0) };
    let first = rack.start_with(config, 0).await;
    eventually("it waits", async || first.status() == NodeStatus::WaitingForPeers).await;
    let _second = rack.start(1).await;
    rack.wait_until_ready(0).await;
}

#[tokio::test]
async fn a_node_that_is_not_in_the_list_does_not_start() {
    let rack = Rack::new(2);
    let config = Config { address: "127.0.0.200".parse().ok(), ..rack.config(0) };
    let refusal = rack.refusal(config, 0).await;
    assert!(refusal.contains("has an address of this host"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rack_of_eighteen_runs_in_one_process_and_its_nodes_restart_at_once() {
    let rack = Rack::new(18);
    let mut all = Vec::new();
    for node in 0..18 {
        all.push(rack.start(node).await);
    }
    eventually("the domain is up", async || rack.domain().await.status == DomainStatus::Up).await;
    for _ in 0..5 {
        all.pop().unwrap().shut_down().await;
        all.push(rack.start(17).await);
    }
    eventually("it is up again", async || rack.domain().await.status == DomainStatus::Up).await;
}

#[tokio::test]
async fn programs_learn_with_which_nodes_the_service_is_connected() {
    let rack = Rack::new(2);
    let config = Config { grace_time: Some(Duration::from_secs(1)), ..rack.config(0) };
    let reaches = |to: u8| {
        let report = ServiceReport::read(&rack.machine(0));
        (report.reaches(rack.fabric_node(to)), report.lost.contains(&rack.fabric_node(to)))
    };
    assert_eq!(reaches(0), (false, false), "there is no service");
    let first = rack.start_with(config, 0).await;
    rack.wait_until_ready(0).await;
    assert_eq!((reaches(0), reaches(1)), ((true, false), (false, false)));
    let second = rack.start(1).await;
    rack.wait_for_link(0, 1, ConnectionStatus::Connected).await;
    assert_eq!(reaches(1), (true, false), "at once");
    second.shut_down().await;
    rack.wait_for_link(0, 1, ConnectionStatus::Disconnected).await;
    assert_eq!(reaches(1), (false, true));
    first.shut_down().await;
    assert_eq!((reaches(0), reaches(1)), ((false, false), (false, false)));
}
