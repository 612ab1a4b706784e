//! `imex.isolation: channel`.

use octavo_api::Refusal;
use octavo_api::names::SHARED_IMEX_DOMAIN;
use serde_json::json;
use tokio::time::timeout;

use super::SOON;
use super::fixtures::{Node, claim, prepare, share_of};
use crate::compute_domain::DomainClaims;
use crate::config::Imex;

const A: &str = "aaaaaaaa-8a39-4a3c-9d0c-6d1f6b1a2c3d";
const B: &str = "bbbbbbbb-8a39-4a3c-9d0c-6d1f6b1a2c3d";

/// The path of the channel in a claim's spec.
fn channel_of(node: &Node, name: &str) -> String {
    let nodes = node.spec(name)["devices"][0]["containerEdits"]["deviceNodes"].clone();
    assert_eq!(nodes.as_array().unwrap().len(), 1, "{nodes}");
    let path = nodes[0]["path"].as_str().unwrap();
    path.strip_prefix("/dev/nvidia-caps-imex-channels/").unwrap().to_owned()
}

async fn prepare_soon(claims: &DomainClaims, name: &str) -> Result<(), Refusal> {
    timeout(SOON, prepare(claims, &claim(name))).await.unwrap().map(drop)
}

#[tokio::test]
async fn claims_of_several_domains_hold_the_channel_device_at_once() {
    let node = Node::new();
    let claims = node.open_with(Imex::PerClique);
    node.domain_with_channel(A, Some(3));
    node.domain_with_channel(B, Some(0));
    for (name, domain) in [("one", A), ("two", A), ("other", B)] {
        prepare_soon(&claims, node.shared_channel(name, domain)).await.unwrap();
    }
    assert_eq!(
        ["one", "two", "other"].map(|name| channel_of(&node, name)),
        ["channel3", "channel3", "channel0"]
    );
    let devices = prepare(&claims, &claim("one")).await.unwrap();
    assert_eq!(devices[0].share_id, Some(share_of("one")));
    let name = format!("uid-of-one-channel-0.{}", share_of("one"));
    assert_eq!(devices[0].cdi_ids, [format!("k8s.compute-domain.nvidia.com/claim={name}")]);
    assert_eq!(node.spec("one")["devices"][0]["name"], name);
    claims.close().await;
    // Another agent knows shares and channels.
    let claims = node.open_with(Imex::PerClique);
    node.domain_with_channel(A, None);
    assert_eq!(prepare(&claims, &claim("one")).await.unwrap(), devices);
    assert_eq!(claims.counts().channels, 3);
    for name in ["one", "two", "other"] {
        claims.unprepare(&claim(name)).await.unwrap();
    }
    assert!(node.checkpoints().is_empty());
}

#[tokio::test]
async fn a_channel_is_waited_for() {
    let node = Node::new();
    let claims = node.open_with(Imex::PerClique);
    node.domain_with_channel(A, None);
    let asked = claim(node.shared_channel("c", A));
    let call = tokio::spawn({
        let claims = claims.clone();
        async move { prepare(&claims, &asked).await }
    });
    node.watched().await;
    node.domain_with_channel(A, Some(2));
    timeout(SOON, call).await.unwrap().unwrap().unwrap();
    assert_eq!(channel_of(&node, "c"), "channel2");
}

#[tokio::test]
async fn two_domains_never_have_one_channel_and_one_domain_never_two() {
    let node = Node::new();
    let claims = node.open_with(Imex::PerClique);
    node.domain_with_channel(A, Some(1));
    prepare_soon(&claims, node.shared_channel("first", A)).await.unwrap();
    node.domain_with_channel(B, Some(1));
    let refusal = prepare_soon(&claims, node.shared_channel("second", B)).await.unwrap_err();
    assert!(
        matches!(&refusal, Refusal::DeviceInUse { device, .. } if device == "channel 1"),
        "{refusal}"
    );
    node.domain_with_channel(A, Some(2));
    let refusal = prepare_soon(&claims, node.shared_channel("third", A)).await.unwrap_err();
    assert_eq!(refusal.reason(), "ComputeDomainNotReady");
    assert!(refusal.to_string().contains("team/first has channel 1"), "{refusal}");
    claims.unprepare(&claim("first")).await.unwrap();
    prepare_soon(&claims, "third").await.unwrap();
    prepare_soon(&claims, "second").await.unwrap();
    assert_eq!(channel_of(&node, "second"), "channel1");
}

#[tokio::test]
async fn a_claim_on_the_whole_device_excludes_shares() {
    let node = Node::new();
    let claims = node.open_with(Imex::PerClique);
    node.domain_with_channel(A, Some(1));
    // An allocation from before the setting, or of a server that drops the field.
    node.shared_channel("whole", A);
    node.drop_share("whole");
    prepare_soon(&claims, "whole").await.unwrap();
    let refusal = prepare_soon(&claims, node.shared_channel("share", A)).await.unwrap_err();
    assert_eq!(refusal.reason(), "DeviceInUse");
}

#[tokio::test]
async fn all_channels_and_channels_that_the_driver_lacks_are_refused() {
    let node = Node::new();
    let claims = node.open_with(Imex::PerClique);
    let refusal = prepare(&claims, &claim(node.channel("all", "All"))).await.unwrap_err();
    assert!(refusal.to_string().contains("imex.isolation: channel"), "{refusal}");
    // The driver of the tests has 16.
    node.domain_with_channel(A, Some(16));
    let refusal = prepare_soon(&claims, node.shared_channel("c", A)).await.unwrap_err();
    assert!(refusal.to_string().contains("NVreg_ImexChannelCount"), "{refusal}");
    assert!(node.checkpoints().is_empty());
}

#[tokio::test]
async fn the_daemon_is_that_of_the_clique() {
    let node = Node::new();
    let claims = node.open_with(Imex::PerClique);
    node.daemon("d");
    let refusal = prepare(&claims, &claim("d")).await.unwrap_err();
    assert!(refusal.to_string().contains("other settings"), "{refusal}");
    node.set_domain_id("d", SHARED_IMEX_DOMAIN);
    node.annotate("d", None);
    prepare(&claims, &claim("d")).await.unwrap();
    let env = node.spec("d")["devices"][0]["containerEdits"]["env"].clone();
    let uid = format!("COMPUTE_DOMAIN_UUID={SHARED_IMEX_DOMAIN}");
    assert!(env.as_array().unwrap().contains(&json!(uid)), "{env}");
}

#[tokio::test]
async fn a_node_without_a_fabric_needs_no_channel() {
    let node = Node::without_fabric();
    let claims = node.open_with(Imex::PerClique);
    for name in ["one", "two"] {
        prepare_soon(&claims, node.shared_channel(name, A)).await.unwrap();
        assert!(!node.has_spec(name));
    }
}
