//! Shares of GPUs: their devices, and conflicts between them.

use std::fs;
use std::time::Duration;

use octavo_api::names::SHARES_FOLDER;
use octavo_node::ClaimRef;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::fixtures::{Node, known, share_id};
use crate::claims::{DeviceKind, Fact, HeldCounts, KnownDevice};
use crate::config::GpuShares;

/// Longer than anything here takes.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The folder of a claim's share, beneath the node's.
fn folder(claim: &ClaimRef, index: usize) -> String {
    format!("run/octavo/shares/{}_{}", claim.uid, share_id(&claim.name, index))
}

fn limits(node: &Node, claim: &ClaimRef, index: usize) -> Value {
    let text = fs::read(node.path(&folder(claim, index)).join("limits.json")).expect("reads");
    serde_json::from_slice(&text).expect("is JSON")
}

#[tokio::test]
async fn a_share_has_its_limits_and_leaves_nothing() {
    let node = Node::new();
    let claims = node.start().await;
    let claim = node.allocate_shares("a", &[("gpu-1", "20Gi", "12.5")]);
    let devices = claims.prepare(&claim).await.expect("prepares");
    let [device] = devices.as_slice() else { panic!("{devices:?}") };
    assert_eq!(device.share_id.as_deref(), Some("a-share-0"));
    let id = format!("k8s.gpu.nvidia.com/claim={}-gpu-1.a-share-0", claim.uid);
    assert_eq!(device.cdi_ids, [id]);
    assert_eq!(
        limits(&node, &claim, 0),
        json!({
            "version": 1,
            "claim": {"namespace": "ns", "name": "a", "uid": claim.uid},
            "shareId": "a-share-0", "device": "gpu-1", "pool": "node-a",
            "gpu": {"uuid": "GPU-1", "minor": 1},
            "memoryBytes": 20_u64 << 30, "computeMilliPercent": 12_500,
        })
    );
    let spec = fs::read_to_string(node.path(&Node::cdi(&claim))).expect("reads");
    let seen = format!("{SHARES_FOLDER}/{}_a-share-0", claim.uid);
    assert!(spec.contains(&format!("\"containerPath\": \"{seen}\"")), "{spec}");
    assert!(matches!(node.facts(&claim).as_slice(), [Fact::Share { prepared_at: Some(_), .. }]));
    assert_eq!(claims.counts(), HeldCounts { shares: 1, ..HeldCounts::default() });

    assert_eq!(claims.prepare(&claim).await, Ok(devices), "again");
    claims.unprepare(&claim).await.expect("unprepares");
    assert_eq!(node.files(), [""; 0]);
    assert_eq!(node.facts(&claim), []);
}

#[tokio::test]
async fn holders_in_the_way_are_asked_for_eight_at_a_time_and_once_each() {
    let node = Node::new();
    let claims = node.start().await;
    let mut gates = Vec::new();
    for number in 0..20 {
        let claim = node.allocate_shares(&format!("claim-{number}"), &[("gpu-0", "4Gi", "5")]);
        claims.prepare(&claim).await.expect("prepares");
        gates.push(node.block_reads_of(&claim));
    }
    let before = node.reads();
    let claim = node.allocate_shares("one-too-many", &[("gpu-0", "4Gi", "5")]);
    let late = tokio::spawn(async move { claims.prepare(&claim).await });
    // Its own claim and the first eight. No answer arrives before all reads began.
    let asked = async {
        while node.reads() < before + 9 {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, asked).await.expect("they are asked for together");
    assert_eq!(node.reads(), before + 9);
    for gate in gates {
        gate.add_permits(100);
    }
    let refusal = late.await.expect("ends").expect_err("does not fit");
    assert_eq!(refusal.reason(), "ShareDoesNotFit");
    assert_eq!(node.reads(), before + 21);
}

#[tokio::test]
async fn eight_shares_fit_and_a_ninth_hears_who_has_what() {
    let node = Node::new();
    let claims = node.start().await;
    let names: Vec<_> = (0..8).map(|number| format!("claim-{number}")).collect();
    for name in &names {
        let claim = node.allocate_shares(name, &[("gpu-0", "10Gi", "12.5")]);
        claims.prepare(&claim).await.expect("fits");
    }
    let ninth = node.allocate_shares("ninth", &[("gpu-0", "1Mi", "0")]);
    let refusal = claims.prepare(&ninth).await.expect_err("is too much");
    assert_eq!(refusal.reason(), "ShareDoesNotFit");
    let text = refusal.to_string();
    assert!(text.contains("1Mi of device gpu-0"), "{text}");
    for name in &names {
        assert!(text.contains(&format!("ns/{name} ")), "{text}");
    }
    assert!(text.contains("has 10Gi and 12.5% of the time of gpu-0"), "{text}");
    let elsewhere = node.allocate_shares("elsewhere", &[("gpu-1", "1Mi", "0")]);
    claims.prepare(&elsewhere).await.expect("another GPU is free");
}

#[tokio::test]
async fn time_is_given_once_too() {
    let node = Node::new();
    let claims = node.start().await;
    let most = node.allocate_shares("most", &[("gpu-0", "1Gi", "75")]);
    claims.prepare(&most).await.expect("prepares");
    let more = node.allocate_shares("more", &[("gpu-0", "1Gi", "25.001")]);
    let refusal = claims.prepare(&more).await.expect_err("is more than all");
    assert!(refusal.to_string().contains("only 79Gi and 25% of the time"), "{refusal}");
    let rest = node.allocate_shares("rest", &[("gpu-0", "1Gi", "25")]);
    claims.prepare(&rest).await.expect("is the rest");
    let none = node.allocate_shares("none", &[("gpu-0", "1Gi", "0")]);
    claims.prepare(&none).await.expect("no guarantee needs nothing");
}

#[tokio::test]
async fn whole_and_shares_exclude_each_other() {
    let node = Node::new();
    let claims = node.start().await;
    let share = node.allocate_shares("share", &[("gpu-0", "1Gi", "0")]);
    let whole = node.allocate("whole", &["gpu-0"]);
    claims.prepare(&share).await.expect("prepares");
    let refusal = claims.prepare(&whole).await.expect_err("is shared");
    assert_eq!(refusal.reason(), "DeviceInUse");
    assert!(refusal.to_string().contains("has 1Gi of gpu-0"), "{refusal}");
    claims.unprepare(&share).await.expect("unprepares");
    claims.prepare(&whole).await.expect("prepares");
    assert_eq!(claims.prepare(&share).await.expect_err("is taken").reason(), "DeviceInUse");
}

#[tokio::test]
async fn who_has_all_memory_has_the_gpu() {
    let node = Node::new();
    let claims = node.start().await;
    let all = node.allocate_shares("all", &[("gpu-0", "80Gi", "0")]);
    let devices = claims.prepare(&all).await.expect("prepares");
    assert_eq!(devices[0].share_id.as_deref(), Some("all-share-0"), "is told all the same");
    assert_eq!(devices[0].cdi_ids, [format!("k8s.gpu.nvidia.com/claim={}-gpu-0", all.uid)]);
    assert_eq!(node.files(), [Node::checkpoint(&all), Node::cdi(&all)], "no limits");
    assert_eq!(node.facts(&all), []);
    let share = node.allocate_shares("share", &[("gpu-0", "1Mi", "0")]);
    assert_eq!(claims.prepare(&share).await.expect_err("is taken").reason(), "DeviceInUse");
    drop(claims);
    let claims = node.start().await;
    assert_eq!(claims.prepare(&all).await, Ok(devices), "after a restart");
}

#[tokio::test]
async fn a_claim_may_have_two_shares_of_one_gpu_and_no_more_than_it_has() {
    let node = Node::new();
    let claims = node.start().await;
    let two = node.allocate_shares("two", &[("gpu-0", "30Gi", "50"), ("gpu-0", "50Gi", "50")]);
    let devices = claims.prepare(&two).await.expect("fits");
    assert_ne!(devices[0].cdi_ids, devices[1].cdi_ids);
    assert_eq!(limits(&node, &two, 1)["memoryBytes"], 50_u64 << 30);
    claims.unprepare(&two).await.expect("unprepares");
    assert_eq!(node.files(), [""; 0]);
    let much = node.allocate_shares("much", &[("gpu-0", "30Gi", "0"), ("gpu-0", "51Gi", "0")]);
    let refusal = claims.prepare(&much).await.expect_err("is more than all");
    assert_eq!(refusal.reason(), "ShareDoesNotFit");
    assert_eq!(node.files(), [""; 0]);
}

#[tokio::test]
async fn what_cannot_be_a_share_is_refused_with_its_reason() {
    let share =
        |memory: &'static str, compute: &'static str| json!({"memory": memory, "compute": compute});
    let cases = [
        (share("0", "0"), "its memory is 0 "),
        (share("81Gi", "0"), "its memory is 81Gi "),
        (share("-1Gi", "0"), "its memory is -1Gi "),
        (share("1Gi", "100.001"), "its compute is 100001m "),
        (share("1Gi", "-1"), "its compute is -1 "),
        (share("much", "0"), "\"much\" is no quantity"),
        (json!({"compute": "5"}), "it gives no memory"),
        (json!({}), "does not say how much"),
        (json!({"memory": "1Gi", "slots": "1"}), "the capacity slots"),
        (json!({"memory": "1Gi", "gpu.nvidia.com/memory": "1Gi"}), "gives"),
    ];
    for (consumed, words) in cases {
        let node = Node::new();
        let claims = node.start().await;
        let claim = node.allocate_with("a", &["gpu-0"], |claim| {
            let result = &mut claim["status"]["allocation"]["devices"]["results"][0];
            result["shareID"] = "s".into();
            result["consumedCapacity"] = consumed.clone();
        });
        let refusal = claims.prepare(&claim).await.expect_err(words);
        assert_eq!(refusal.reason(), "InvalidShare", "{consumed}");
        assert!(refusal.to_string().contains(words), "{refusal}");
        assert_eq!((node.files(), claims.holdings()), (vec![], vec![]));
    }
}

#[tokio::test]
async fn a_share_s_id_leads_nowhere_else() {
    let node = Node::new();
    let claims = node.start().await;
    for id in ["..", "a/b", "", "a.b"] {
        let claim = node.allocate_with("a", &["gpu-0"], |claim| {
            let result = &mut claim["status"]["allocation"]["devices"]["results"][0];
            result["shareID"] = id.into();
            result["consumedCapacity"] = json!({"memory": "1Gi"});
        });
        assert_eq!(claims.prepare(&claim).await.expect_err(id).reason(), "InvalidShare");
    }
    assert_eq!(node.files(), [""; 0]);
}

#[tokio::test]
async fn a_restart_knows_shares_and_writes_lost_limits_again() {
    let node = Node::new();
    let claim = node.allocate_shares("a", &[("gpu-0", "60Gi", "50")]);
    let devices = node.start().await.prepare(&claim).await.expect("prepares");
    let before = limits(&node, &claim, 0);
    fs::remove_dir_all(node.path("run")).expect("removes");
    let leftover = node.path("run/octavo/shares/uid-of-nobody_s");
    fs::create_dir_all(&leftover).expect("makes");
    let claims = node.start().await;
    assert!(!leftover.exists());
    assert_eq!(limits(&node, &claim, 0), before);
    assert_eq!(node.facts(&claim).len(), 1, "is told again");
    let much = node.allocate_shares("much", &[("gpu-0", "21Gi", "0")]);
    assert_eq!(claims.prepare(&much).await.expect_err("is much").reason(), "ShareDoesNotFit");
    assert_eq!(claims.prepare(&claim).await, Ok(devices));
    fs::write(node.path(&folder(&claim, 0)).join("limits.json"), "{}").expect("writes");
    assert_eq!(claims.sweep().await.repaired, std::slice::from_ref(&claim));
    assert_eq!(limits(&node, &claim, 0), before);
}

#[tokio::test]
async fn a_damaged_record_of_a_share_protects_the_gpu() {
    let node = Node::new();
    let claim = node.allocate_shares("a", &[("gpu-0", "10Gi", "0")]);
    node.start().await.prepare(&claim).await.expect("prepares");
    fs::write(node.path(&Node::checkpoint(&claim)), "x").expect("writes");
    let spec = fs::read_to_string(node.path(&Node::cdi(&claim))).expect("reads");
    let (_, body) = spec.split_once('\n').expect("has lines");
    fs::write(node.path(&Node::cdi(&claim)), body).expect("writes");
    let claims = node.start().await;
    let other = node.allocate_shares("b", &[("gpu-0", "1Gi", "0")]);
    let refusal = claims.prepare(&other).await.expect_err("may be all of it");
    assert_eq!(refusal.reason(), "DeviceMayBeInUse");
    assert!(node.path(&folder(&claim, 0)).exists(), "its containers may need them");
    claims.prepare(&claim).await.expect("heals");
    claims.prepare(&other).await.expect("fits beside it");
    claims.unprepare(&claim).await.expect("unprepares");
    claims.unprepare(&other).await.expect("unprepares");
    assert_eq!(node.files(), [""; 0]);
}

#[tokio::test]
async fn shares_of_claims_that_are_gone_make_way() {
    let node = Node::new();
    let claims = node.start().await;
    let gone = node.allocate_shares("gone", &[("gpu-0", "40Gi", "0")]);
    let stays = node.allocate_shares("stays", &[("gpu-0", "30Gi", "0")]);
    for claim in [&gone, &stays] {
        claims.prepare(claim).await.expect("prepares");
    }
    node.delete(&gone);
    let new = node.allocate_shares("new", &[("gpu-0", "50Gi", "0")]);
    let refusal = claims.prepare(&new).await.expect_err("may still run");
    assert_eq!(refusal.reason(), "DeviceNotFreed");
    assert!(refusal.to_string().contains("ns/gone"), "{refusal}");
    super::sweep_later(&claims).await;
    claims.prepare(&new).await.expect("fits");
    assert_eq!(claims.counts().shares, 2);
}

#[tokio::test]
async fn an_administrator_s_share_is_a_look_at_the_gpu() {
    let node = Node::new();
    let claims = node.start().await;
    let user = node.allocate_shares("user", &[("gpu-0", "80Gi", "100")]);
    let admin = node.allocate_with("admin", &["gpu-0"], |claim| {
        let result = &mut claim["status"]["allocation"]["devices"]["results"][0];
        result["adminAccess"] = true.into();
        result["shareID"] = "s".into();
        result["consumedCapacity"] = json!({"memory": "80Gi", "compute": "0"});
    });
    claims.prepare(&user).await.expect("prepares");
    let devices = claims.prepare(&admin).await.expect("is not in the way");
    assert_eq!(devices[0].share_id.as_deref(), Some("s"));
}

#[tokio::test]
async fn claims_without_limit_share_a_gpu_and_all_of_its_memory() {
    let node = Node::new();
    let (claims, _) = node.open();
    let unlimited = |known: KnownDevice| KnownDevice {
        kind: DeviceKind::Gpu {
            memory_bytes: 80 << 30,
            reserved_bytes: 0,
            shares: GpuShares::Unlimited,
        },
        ..known
    };
    claims.set_devices("580.95.05", known().into_iter().map(unlimited).collect()).await;
    let many: Vec<_> = (0..20)
        .map(|number| node.allocate_shares(&format!("c{number}"), &[("gpu-0", "0", "0")]))
        .collect();
    for claim in &many {
        claims.prepare(claim).await.expect("prepares");
    }
    let spec = fs::read_to_string(node.path(&Node::cdi(&many[0]))).expect("reads");
    assert!(!spec.contains("/run/octavo/shares"), "{spec}");
    assert_eq!(node.files().len(), 2 * many.len(), "no limits");
    let whole = node.allocate("whole", &["gpu-0"]);
    assert_eq!(claims.prepare(&whole).await.expect_err("is shared").reason(), "DeviceInUse");
    for claim in &many {
        claims.unprepare(claim).await.expect("unprepares");
    }
    claims.prepare(&whole).await.expect("prepares");
}
