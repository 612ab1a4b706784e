mod channels;
mod fixtures;
mod host;
mod obstacle;

use std::fs;
use std::time::Duration;

use octavo_api::Refusal;
use octavo_testkit::eventually;
use serde_json::json;
use tokio::time::timeout;

use super::record::DomainCounts;
use fixtures::{CLIQUE, DOMAIN, Node, claim, prepare};

/// Time in which a call must end that must not wait for a domain. A prepare that waits takes 38 s.
const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_channel_comes_when_the_domain_is_ready() {
    let node = Node::new();
    let claims = node.open();
    let asked = claim(node.channel("c", "Single"));
    node.domain(&[("node", false), ("other", false)], false);
    let call = tokio::spawn({
        let (claims, asked) = (claims.clone(), asked.clone());
        async move { prepare(&claims, &asked).await }
    });
    node.watched().await;
    // The daemon of the same domain is prepared meanwhile: nothing is locked.
    let daemon = claim(node.daemon("d"));
    timeout(SOON, prepare(&claims, &daemon)).await.unwrap().unwrap();
    node.domain(&[("node", true), ("other", false)], false);
    node.domain(&[("node", true), ("other", true)], true);
    let devices = timeout(SOON, call).await.unwrap().unwrap().unwrap();
    let [channel] = devices.as_slice() else { panic!("{devices:?}") };
    assert_eq!(
        (channel.device.as_str(), channel.requests.as_slice()),
        ("channel-0", &["channel".to_owned()][..])
    );
    let spec = node.spec("c");
    assert_eq!(channel.cdi_ids, ["k8s.compute-domain.nvidia.com/claim=uid-of-c-channel-0"]);
    assert_eq!(spec["kind"], "k8s.compute-domain.nvidia.com/claim");
    assert_eq!(
        spec["devices"][0]["containerEdits"]["deviceNodes"],
        json!([{
            "path": "/dev/nvidia-caps-imex-channels/channel0",
            "type": "c", "major": 237, "minor": 0, "fileMode": 0o666, "permissions": "rw",
        }])
    );
    assert_eq!(claims.counts(), DomainCounts { channels: 1, daemons: 1 });
    // The kubelet asks again after its restart; the domain is not asked.
    node.domain(&[], false);
    assert_eq!(prepare(&claims, &asked).await.unwrap(), devices);
    claims.unprepare(&asked).await.unwrap();
    claims.unprepare(&daemon).await.unwrap();
    assert!(!node.has_spec("c") && !node.has_spec("d") && node.checkpoints().is_empty());
}

#[tokio::test]
async fn all_channels_are_those_of_the_driver() {
    let node = Node::new();
    node.domain(&[("node", true)], true);
    let claims = node.open();
    prepare(&claims, &claim(node.channel("c", "All"))).await.unwrap();
    let spec = node.spec("c");
    let nodes = spec["devices"][0]["containerEdits"]["deviceNodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 16, "as the driver's parameters say");
    assert_eq!(nodes[15]["path"], "/dev/nvidia-caps-imex-channels/channel15");
}

#[tokio::test]
async fn a_daemon_gets_its_domain_the_driver_and_the_capability() {
    let node = Node::new();
    let claims = node.open();
    prepare(&claims, &claim(node.daemon("d"))).await.unwrap();
    let edits = node.spec("d")["devices"][0]["containerEdits"].clone();
    let env = edits["env"].as_array().unwrap();
    for variable in [
        format!("CLIQUE_ID={CLIQUE}"),
        format!("COMPUTE_DOMAIN_UUID={DOMAIN}"),
        "COMPUTE_DOMAIN_NAME=domain".to_owned(),
        "COMPUTE_DOMAIN_NAMESPACE=team".to_owned(),
    ] {
        assert!(env.contains(&json!(variable)), "{variable} in {env:?}");
    }
    let nodes = edits["deviceNodes"].as_array().unwrap();
    let paths: Vec<_> = nodes.iter().map(|node| node["path"].as_str().unwrap()).collect();
    for path in
        ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap4323"]
    {
        assert!(paths.contains(&path), "{path} in {paths:?}");
    }
}

#[tokio::test]
async fn without_a_fabric_claims_succeed_without_devices() {
    let node = Node::without_fabric();
    let claims = node.open();
    // No domain is read: there is none.
    let devices = timeout(SOON, prepare(&claims, &claim(node.channel("c", "Single")))).await;
    let devices = devices.unwrap().unwrap();
    assert_eq!(devices[0].cdi_ids, [""; 0]);
    assert!(!node.has_spec("c"));
    prepare(&claims, &claim(node.daemon("d"))).await.unwrap();
    let edits = node.spec("d")["devices"][0]["containerEdits"].clone();
    assert_eq!(edits["deviceNodes"], json!(null));
    assert!(edits["env"].as_array().unwrap().contains(&json!("CLIQUE_ID=")));
}

#[tokio::test]
async fn an_unprepare_ends_a_waiting_prepare() {
    let node = Node::new();
    node.domain(&[], false);
    let claims = node.open();
    let asked = claim(node.channel("c", "Single"));
    let call = tokio::spawn({
        let (claims, asked) = (claims.clone(), asked.clone());
        async move { prepare(&claims, &asked).await }
    });
    node.watched().await;
    claims.unprepare(&asked).await.unwrap();
    let refusal = timeout(SOON, call).await.unwrap().unwrap().unwrap_err();
    assert_eq!(refusal.reason(), "Interrupted");
    assert!(node.checkpoints().is_empty());
}

#[tokio::test]
async fn another_agent_ends_a_waiting_prepare() {
    let node = Node::new();
    node.domain(&[], false);
    let claims = node.open();
    let asked = claim(node.channel("c", "Single"));
    let call = tokio::spawn({
        let (claims, asked) = (claims.clone(), asked.clone());
        async move { prepare(&claims, &asked).await }
    });
    node.watched().await;
    timeout(SOON, claims.close()).await.unwrap();
    let refusal = timeout(SOON, call).await.unwrap().unwrap().unwrap_err();
    assert_eq!(refusal.reason(), "HandedOver");
    assert_eq!(claims.unprepare(&asked).await.unwrap_err().reason(), "HandedOver");
}

#[tokio::test(start_paused = true)]
async fn after_its_time_a_prepare_takes_what_is_there() {
    let node = Node::new();
    let claims = node.open();
    node.domain(&[("node", true), ("other", false)], false);
    prepare(&claims, &claim(node.channel("c", "Single"))).await.unwrap();
    eventually("the event is there", || node.has_event("MembersMissing")).await;
    let event = node.event("MembersMissing");
    assert!(event["note"].as_str().unwrap().contains("other"), "{event}");
    claims.unprepare(&claim("c")).await.unwrap();
    node.domain(&[("node", false)], false);
    let refusal = prepare(&claims, &claim("c")).await.unwrap_err();
    assert_eq!(refusal.reason(), "ComputeDomainNotReady");
    assert!(refusal.to_string().contains("team/domain"), "{refusal}");
}

#[tokio::test]
async fn a_claim_of_another_domain_or_namespace_is_refused() {
    let node = Node::new();
    let claims = node.open();
    let refused = async |name: &str| {
        let refusal = timeout(SOON, prepare(&claims, &claim(name))).await.unwrap().unwrap_err();
        assert_eq!(refusal.reason(), "NotInComputeDomain", "{refusal}");
        refusal.to_string()
    };
    assert!(refused(node.channel("c", "Single")).await.contains("no ComputeDomain domain"));
    node.domain_with_uid("11111111-2222-3333-4444-555555555555");
    assert!(refused("c").await.contains("no ComputeDomain domain"));
    node.domain(&[("node", true)], true);
    node.annotate("c", Some("other/domain"));
    assert!(refused("c").await.contains("another namespace"));
    node.annotate("c", None);
    assert!(refused("c").await.contains("octavo.dev/compute-domain"));
    assert!(refused(node.daemon("e")).await.contains("octavo-system"));
}

#[tokio::test]
async fn a_channel_is_given_once() {
    let node = Node::new();
    node.domain(&[("node", true)], true);
    let claims = node.open();
    prepare(&claims, &claim(node.channel("first", "Single"))).await.unwrap();
    let second = claim(node.channel("second", "Single"));
    let refusal = timeout(SOON, prepare(&claims, &second)).await.unwrap().unwrap_err();
    assert!(
        matches!(&refusal, Refusal::DeviceInUse { holder, .. } if holder.contains("first")),
        "{refusal}"
    );
    claims.unprepare(&claim("first")).await.unwrap();
    prepare(&claims, &second).await.unwrap();
}

#[tokio::test]
async fn claims_survive_the_agent_but_not_the_boot() {
    let node = Node::new();
    node.domain(&[("node", true)], true);
    let asked = claim(node.channel("c", "Single"));
    let devices = {
        let claims = node.open();
        let devices = prepare(&claims, &asked).await.unwrap();
        claims.close().await;
        devices
    };
    let spec = node.spec("c");
    fs::remove_file(node.spec_path("c")).unwrap();
    let claims = node.open();
    assert_eq!(prepare(&claims, &asked).await.unwrap(), devices);
    assert_eq!(node.spec("c"), spec, "is rewritten");
    claims.close().await;
    node.boot("boot-2");
    let claims = node.open();
    assert_eq!(claims.counts(), DomainCounts::default());
    assert!(!node.has_spec("c") && node.checkpoints().is_empty());
}

#[tokio::test]
async fn a_damaged_checkpoint_keeps_others_from_the_channel() {
    let node = Node::new();
    node.domain(&[("node", true)], true);
    let asked = claim(node.channel("c", "Single"));
    let claims = node.open();
    prepare(&claims, &asked).await.unwrap();
    claims.close().await;
    let file = node.checkpoint_path("c");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, &text[..text.len() / 2]).unwrap();
    let claims = node.open();
    // Its spec names the channel; the place of the daemon is free.
    prepare(&claims, &claim(node.daemon("d"))).await.unwrap();
    let other = claim(node.channel("other", "Single"));
    assert_eq!(prepare(&claims, &other).await.unwrap_err().reason(), "DeviceInUse");
    // The same claim is planned again, and is certain then.
    prepare(&claims, &asked).await.unwrap();
    claims.unprepare(&asked).await.unwrap();
    prepare(&claims, &other).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_an_object_is_released_after_a_while() {
    let node = Node::new();
    node.domain(&[("node", true)], true);
    let claims = node.open();
    let asked = claim(node.channel("c", "Single"));
    prepare(&claims, &asked).await.unwrap();
    assert_eq!(claims.sweep().await, []);
    node.delete_claim("c");
    assert_eq!(claims.sweep().await, [], "its containers may still run");
    tokio::time::advance(Duration::from_secs(29)).await;
    assert_eq!(claims.sweep().await, []);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(claims.sweep().await, [asked]);
    assert!(!node.has_spec("c"));
}

#[tokio::test]
async fn a_domain_that_appears_late_and_an_api_that_fails_are_waited_for() {
    let node = Node::new();
    let claims = node.open();
    let asked = claim(node.channel("c", "Single"));
    node.domain(&[("node", false)], false);
    let call = tokio::spawn({
        let (claims, asked) = (claims.clone(), asked.clone());
        async move { prepare(&claims, &asked).await }
    });
    node.watched().await;
    node.end_watches();
    node.domain(&[("node", true)], true);
    timeout(SOON, call).await.unwrap().unwrap().unwrap();
    eventually("the spec is there", || node.has_spec("c")).await;
}

#[tokio::test]
async fn a_fabric_that_is_not_up_is_waited_for() {
    let node = Node::with_fabric_in_progress();
    let claims = node.open();
    let refusal = prepare(&claims, &claim(node.channel("c", "Single"))).await.unwrap_err();
    assert_eq!(refusal.reason(), "FabricNotReady");
}

#[tokio::test]
async fn two_damaged_checkpoints_do_not_block_each_other() {
    let node = Node::new();
    node.domain(&[("node", true)], true);
    let asked = [claim(node.channel("c", "Single")), claim(node.daemon("d"))];
    let claims = node.open();
    for asked in &asked {
        prepare(&claims, asked).await.unwrap();
    }
    claims.close().await;
    for name in ["c", "d"] {
        fs::write(node.checkpoint_path(name), "{").unwrap();
    }
    let claims = node.open();
    for asked in &asked {
        prepare(&claims, asked).await.unwrap();
        claims.unprepare(asked).await.unwrap();
    }
    // Without its spec it may hold everything.
    prepare(&claims, &asked[0]).await.unwrap();
    claims.close().await;
    fs::write(node.checkpoint_path("c"), "{").unwrap();
    fs::remove_file(node.spec_path("c")).unwrap();
    let claims = node.open();
    assert_eq!(prepare(&claims, &asked[1]).await.unwrap_err().reason(), "DeviceInUse");
}

#[tokio::test]
async fn administrators_access_is_refused() {
    let node = Node::new();
    node.domain(&[("node", true)], true);
    let claims = node.open();
    let asked = claim(node.channel("c", "Single"));
    node.with_admin_access("c");
    let refusal = prepare(&claims, &asked).await.unwrap_err();
    assert_eq!(refusal.reason(), "NotYetSupported");
}
