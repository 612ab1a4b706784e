//! Damaged, lost and foreign files at start and while running.

use std::fs;
use std::path::Path;

use octavo_node::ClaimRef;

use super::fixtures::{Node, share_id};
use crate::checkpoint::{HeldDevice, Record, RecordState, encode};

/// A way to damage a file, with the words that the message must have.
type Way = (&'static str, fn(&Path));

/// Ways to damage a checkpoint.
const DAMAGES: [Way; 5] = [
    ("cut short", |path| {
        let text = fs::read(path).expect("reads");
        fs::write(path, &text[..text.len() / 2]).expect("writes");
    }),
    ("cut short", |path| fs::write(path, "").expect("writes")),
    ("was changed", |path| {
        let text = fs::read_to_string(path).expect("reads");
        fs::write(path, text.replace("gpu-0", "gpu-7")).expect("writes");
    }),
    ("newer version", |path| {
        let text = fs::read_to_string(path).expect("reads");
        fs::write(path, text.replace("\"version\":1", "\"version\":9")).expect("writes");
    }),
    ("cannot be read", |path| {
        fs::remove_file(path).expect("removes");
        fs::create_dir(path).expect("makes");
    }),
];

/// A node with a prepared claim on `gpu-0`, stopped, and another claim for the same GPU.
async fn stopped() -> (Node, ClaimRef, ClaimRef) {
    let node = Node::new();
    let claim = node.allocate("a", &["gpu-0"]);
    let other = node.allocate("b", &["gpu-0"]);
    node.start().await.prepare(&claim).await.expect("prepares");
    (node, claim, other)
}

#[tokio::test]
async fn a_damaged_checkpoint_is_restored_from_the_spec() {
    for (words, damage) in DAMAGES {
        let (node, claim, other) = stopped().await;
        damage(&node.path(&Node::checkpoint(&claim)));
        let (claims, opened) = node.start_and_report().await;
        let [message] = opened.damage.as_slice() else { panic!("{:?}", opened.damage) };
        assert!(message.contains(words) && message.contains("holds gpu-0"), "{message}");
        assert_eq!(node.kept().len(), 1, "{words}");
        assert_eq!(claims.prepare(&other).await.expect_err(words).reason(), "DeviceInUse");
        let free = node.allocate("c", &["gpu-1"]);
        claims.prepare(&free).await.expect("other claims are served");
        claims.prepare(&claim).await.expect("is prepared already");
        claims.unprepare(&claim).await.expect("unprepares");
        claims.prepare(&other).await.expect("the GPU is free again");
        for claim in [&free, &other] {
            claims.unprepare(claim).await.expect("unprepares");
        }
        assert_eq!(node.files(), [""; 0], "{words}");
        drop(claims);
        assert_eq!(node.start_and_report().await.1.damage, [""; 0], "is not told twice");
    }
}

#[tokio::test]
async fn with_the_spec_lost_as_well_no_gpu_is_given_twice() {
    for (words, damage) in DAMAGES {
        let (node, claim, other) = stopped().await;
        damage(&node.path(&Node::checkpoint(&claim)));
        fs::remove_file(node.path(&Node::cdi(&claim))).expect("removes");
        // An unresolved claim stays unresolved over a second restart.
        drop(node.start().await);
        let (claims, _) = node.start_and_report().await;
        let refusal = claims.prepare(&other).await.expect_err(words);
        assert!(
            refusal.reason().starts_with("DeviceM") || refusal.reason() == "DeviceInUse",
            "{refusal}"
        );
        claims.prepare(&claim).await.expect("preparing it again heals");
        let free = node.allocate("c", &["gpu-1"]);
        claims.prepare(&free).await.expect("other GPUs are free again");
        assert!(claims.prepare(&other).await.is_err());
        claims.unprepare(&claim).await.expect("unprepares");
        claims.prepare(&other).await.expect("the GPU is free again");
    }
}

#[tokio::test]
async fn what_is_still_legible_narrows_what_is_refused() {
    let (node, claim, other) = stopped().await;
    let path = node.path(&Node::checkpoint(&claim));
    let text = fs::read_to_string(&path).expect("reads");
    fs::write(&path, text.replace("gpu-0", "gpu-7")).expect("writes");
    fs::remove_file(node.path(&Node::cdi(&claim))).expect("removes");
    let claims = node.start().await;
    let free = node.allocate("c", &["gpu-1"]);
    claims.prepare(&free).await.expect("the API server says what the claim holds");
    assert_eq!(claims.prepare(&other).await.expect_err("is held").reason(), "DeviceMayBeInUse");
    node.delete(&claim);
    claims.prepare(&other).await.expect_err("the holder's containers may still run");
    super::sweep_later(&claims).await;
    claims.prepare(&other).await.expect("the holder is gone");
}

#[tokio::test]
async fn an_unresolved_claim_is_resolved_by_unpreparing_it() {
    let (node, claim, other) = stopped().await;
    fs::write(node.path(&Node::checkpoint(&claim)), "x").expect("writes");
    fs::remove_file(node.path(&Node::cdi(&claim))).expect("removes");
    let claims = node.start().await;
    let refusal = claims.prepare(&other).await.expect_err("is protected");
    assert_eq!(refusal.reason(), "DeviceMayBeInUse");
    assert!(refusal.to_string().contains(&claim.uid), "{refusal}");
    claims.unprepare(&claim).await.expect("unprepares");
    claims.prepare(&other).await.expect("is free");
}

#[tokio::test]
async fn refusal_names_every_blocking_file() {
    let (node, claim, other) = stopped().await;
    for file in [Node::checkpoint(&claim), Node::cdi(&claim)] {
        fs::write(node.path(&file), "x").expect("writes");
    }
    let claims = node.start().await;
    let text = claims.prepare(&other).await.expect_err("is protected").to_string();
    drop(claims);
    for file in [Node::checkpoint(&claim), Node::cdi(&claim)] {
        assert!(text.contains(&node.path(&file).display().to_string()), "{text}");
        fs::remove_file(node.path(&file)).expect("removes");
    }
    node.start().await.prepare(&other).await.expect("what it said helps");
}

#[tokio::test]
async fn a_deleted_checkpoint_is_restored_from_the_spec() {
    let (node, claim, other) = stopped().await;
    let folder = node.path(&Node::checkpoint(&claim));
    fs::remove_dir_all(folder.parent().expect("has a parent")).expect("removes");
    let (claims, opened) = node.start_and_report().await;
    assert_eq!((opened.held, opened.damage.len()), (1, 1));
    assert_eq!(claims.prepare(&other).await.expect_err("is held").reason(), "DeviceInUse");
    assert_eq!(node.files(), [Node::checkpoint(&claim), Node::cdi(&claim)]);
    claims.unprepare(&claim).await.expect("unprepares");
    assert_eq!(node.files(), [""; 0]);
}

#[tokio::test]
async fn a_spec_of_an_earlier_boot_is_not_left_behind() {
    let (node, claim, other) = stopped().await;
    let folder = node.path(&Node::checkpoint(&claim));
    fs::remove_dir_all(folder.parent().expect("has a parent")).expect("removes");
    node.reboot();
    let claims = node.start().await;
    assert_eq!(node.files(), [""; 0]);
    claims.prepare(&other).await.expect("is free");
}

#[tokio::test]
async fn damage_of_an_earlier_boot_protects_nothing() {
    let (node, claim, other) = stopped().await;
    fs::write(node.path(&Node::checkpoint(&claim)), "x").expect("writes");
    node.reboot();
    let claims = node.start().await;
    assert_eq!((node.files().len(), node.kept().len()), (0, 1));
    claims.prepare(&other).await.expect("is free");
}

#[tokio::test]
async fn a_running_claim_of_nvidias_driver_is_protected() {
    let node = Node::new();
    let foreign = node.allocate("foreign", &["gpu-0"]);
    let uid = &foreign.uid;
    let spec = format!(
        "---\ncdiVersion: 0.5.0\nkind: k8s.gpu.nvidia.com/claim\ndevices:\n- name: {uid}-gpu-0\n  containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia0\n"
    );
    fs::write(node.path(&Node::cdi(&foreign)), spec).expect("writes");
    let claims = node.start().await;
    let (other, free) = (node.allocate("b", &["gpu-0"]), node.allocate("c", &["gpu-1"]));
    assert_eq!(claims.prepare(&other).await.expect_err("is held").reason(), "DeviceMayBeInUse");
    claims.prepare(&free).await.expect("is free");
    claims.prepare(&foreign).await.expect("is taken over");
    claims.unprepare(&foreign).await.expect("unprepares");
    claims.prepare(&other).await.expect("is free");
}

#[tokio::test]
async fn a_share_that_an_agent_of_before_took_for_a_device_protects_its_gpu() {
    let node = Node::new();
    let claim = node.allocate_shares("a", &[("gpu-0", "20Gi", "50")]);
    let record = Record {
        claim: ClaimRef { name: String::new(), ..claim.clone() },
        boot_id: "boot-1".to_owned(),
        state: RecordState::Unresolved,
        prepared_at: None,
        devices: vec![HeldDevice {
            device: format!("gpu-0.{}", share_id("a", 0)),
            ..HeldDevice::default()
        }],
    };
    let path = node.path(&Node::checkpoint(&claim));
    fs::create_dir_all(path.parent().expect("has one")).expect("makes");
    fs::write(&path, encode(&record)).expect("writes");
    let claims = node.start().await;
    let (other, free) = (node.allocate("b", &["gpu-0"]), node.allocate("c", &["gpu-1"]));
    assert_eq!(claims.prepare(&other).await.expect_err("is held").reason(), "DeviceMayBeInUse");
    claims.prepare(&free).await.expect("is free");
    assert_eq!(super::sweep_later(&claims).await.released, []);
    claims.prepare(&claim).await.expect("heals");
    claims.unprepare(&claim).await.expect("unprepares");
    claims.prepare(&other).await.expect("is free");
}

#[tokio::test]
async fn files_of_others_are_left_alone() {
    let node = Node::new();
    let foreign =
        ["cdi/nvidia.yaml", "cdi/k8s.compute-domain.nvidia.com-claim_x.yaml", "cdi/.x.tmp"];
    for path in foreign {
        fs::write(node.path(path), "not ours").expect("writes");
    }
    let claims = node.start().await;
    claims.sweep().await;
    for path in foreign {
        assert_eq!(fs::read_to_string(node.path(path)).expect("is there"), "not ours");
    }
}

#[tokio::test]
async fn files_lost_while_running_come_back() {
    let (node, claim, other) = stopped().await;
    let claims = node.start().await;
    let files = [Node::checkpoint(&claim), Node::cdi(&claim)];
    for damage in [
        (|path: &Path| fs::remove_file(path).expect("removes")) as fn(&Path),
        |path| fs::write(path, "x").expect("writes"),
        |path| fs::remove_dir_all(path.parent().expect("has one")).expect("removes"),
    ] {
        for file in &files {
            damage(&node.path(file));
        }
        assert_eq!(claims.prepare(&other).await.expect_err("is held").reason(), "DeviceInUse");
        claims.prepare(&claim).await.expect("prepares again");
        assert_eq!(node.files(), files);
    }
    drop(claims);
    let (claims, opened) = node.start_and_report().await;
    assert_eq!(opened.damage, [""; 0]);
    fs::remove_file(node.path(&files[0])).expect("removes");
    claims.unprepare(&claim).await.expect("unprepares");
    assert_eq!(node.files(), [""; 0]);
}

#[tokio::test]
async fn an_interrupted_unprepare_is_finished() {
    let (node, claim, other) = stopped().await;
    fs::remove_file(node.path(&Node::cdi(&claim))).expect("removes");
    let claims = node.start().await;
    assert!(claims.prepare(&other).await.is_err());
    claims.unprepare(&claim).await.expect("the kubelet retries");
    claims.prepare(&other).await.expect("is free");
    assert_eq!(node.files(), [Node::checkpoint(&other), Node::cdi(&other)]);
}
