//! Enforcement backends of shares: guard, driver and off.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use octavo_api::config::{OverflowPolicy, ShareClass, Strictness};
use octavo_api::names;
use octavo_enforcement::backend::BackendKind;
use octavo_enforcement::backend::MemoryEnforcement;
use octavo_enforcement::share::{ShareFinding, ShareReports as _, Status};
use octavo_gpu::{Driver, DriverError, DriverVersions, EventStream, Gpu, GpuHealth, UnreadableGpu};
use octavo_guard_abi::limits::{STRICT, Terms};
use octavo_node::ClaimRef;
use serde_json::{Value, json};

use super::fixtures::{Node, known, share_id};
use crate::checkpoint::{Record, decode, encode};
use crate::claims::{Claims, Fact};

/// A driver that only reports whether it supports limits.
pub(super) struct WithLimits(pub(super) bool);

impl Driver for WithLimits {
    fn versions(&self) -> Result<DriverVersions, DriverError> {
        Err(DriverError::NotSupported { call: "nvmlSystemGetDriverVersion" })
    }

    fn gpus(&self) -> Result<Vec<Result<Gpu, UnreadableGpu>>, DriverError> {
        Ok(Vec::new())
    }

    fn health(&self, _: &str) -> Result<GpuHealth, DriverError> {
        Ok(GpuHealth::default())
    }

    fn events(&self) -> Result<Box<dyn EventStream>, DriverError> {
        Err(DriverError::NotSupported { call: "nvmlEventSetCreate" })
    }

    fn has_memory_limits(&self) -> bool {
        self.0
    }
}

/// The claims of a node with a memory enforcement setting.
pub(super) async fn start(node: &Node, setting: MemoryEnforcement) -> Claims {
    let (claims, _) = node.open();
    claims.set_memory_enforcement(setting);
    claims.set_devices("580.95.05", known()).await;
    claims
}

pub(super) fn share(node: &Node, name: &str) -> ClaimRef {
    node.allocate_shares(name, &[("gpu-1", "20Gi", "12.5")])
}

pub(super) fn folder(node: &Node, claim: &ClaimRef) -> PathBuf {
    let name = format!("{}_{}", claim.uid, share_id(&claim.name, 0));
    node.path("run/octavo/shares").join(name)
}

pub(super) fn terms(node: &Node, claim: &ClaimRef) -> Terms {
    let file = fs::read(folder(node, claim).join("limits")).expect("reads");
    Terms::decode(&file).expect("is whole")
}

/// Container edits of a claim with one share.
fn edits(node: &Node, claim: &ClaimRef) -> Value {
    let text = fs::read_to_string(node.path(&Node::cdi(claim))).expect("reads");
    let (_, body) = text.split_once('\n').expect("has lines");
    let spec: Value = serde_json::from_str(body).expect("is JSON");
    spec["devices"][0]["containerEdits"].clone()
}

/// Hooks of a container, as type and action.
fn hooks(edits: &Value) -> Vec<String> {
    let hooks = edits["hooks"].as_array().into_iter().flatten();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    hooks.map(|hook| format!("{} {}", word(&hook["hookName"]), word(&hook["args"][2]))).collect()
}

fn backends(node: &Node, claim: &ClaimRef) -> Vec<Option<BackendKind>> {
    let facts = node.facts(claim).into_iter();
    let backends = facts.filter_map(|fact| match fact {
        Fact::Share { backend, .. } => Some(backend),
        _ => None,
    });
    backends.collect()
}

#[tokio::test]
async fn a_guarded_share_has_its_files_its_mounts_and_its_hook() {
    let node = Node::new();
    node.install_driver();
    let claims = start(&node, MemoryEnforcement::Guard).await;
    let claim = share(&node, "a");
    claims.prepare(&claim).await.expect("prepares");
    let terms = terms(&node, &claim);
    assert_eq!((terms.memory_bytes, terms.compute_milli_percent), (20 << 30, 12_500));
    assert_eq!(terms.flags, 0);
    assert_ne!(terms.generation, 0);
    assert_eq!(backends(&node, &claim), [Some(BackendKind::Guard)]);

    let edits = edits(&node, &claim);
    assert_eq!(hooks(&edits), ["createContainer guard"]);
    let share = folder(&node, &claim);
    let share = share.to_str().expect("text");
    let seen = format!("/run/octavo/shares/{}_a-share-0", claim.uid);
    let mounts: Vec<_> = edits["mounts"].as_array().expect("a list").iter().collect();
    let find = |path: &str| {
        let found = mounts.iter().find(|mount| mount["containerPath"] == path);
        let found = found.unwrap_or_else(|| panic!("no {path} in {mounts:?}"));
        let host = found["hostPath"].as_str().expect("text").to_owned();
        (host, found["options"][0].as_str().expect("text").to_owned())
    };
    let read_only = |host: &str| (host.to_owned(), "ro".to_owned());
    assert_eq!(find(&seen), read_only(share));
    assert_eq!(find(&format!("{seen}/state")), (format!("{share}/state"), "rw".to_owned()));
    for library in ["libcuda.so.580.95.05", "libnvidia-ml.so.580.95.05"] {
        let host = format!("/driver/usr/lib64/{library}");
        assert_eq!(find(&format!("/run/octavo/real/{library}")), read_only(&host));
    }
    let (guard, option) = find("/run/octavo/guard");
    assert_eq!(option, "ro");
    for (file, is_library) in [
        ("liboctavo_guard.so", true),
        ("libcuda.so.1", true),
        ("libnvidia-ml.so.1", true),
        ("x", false),
    ] {
        let content = fs::read(format!("{guard}/{file}"));
        assert_eq!(content.is_ok_and(|c| c.starts_with(b"\x7fELF")), is_library, "{file}");
    }
    let args = edits["hooks"][0]["args"].as_array().expect("a list");
    let value = |option: &str| {
        let at = args.iter().position(|arg| arg == option).expect("is given");
        args[at + 1].as_str().expect("text").to_owned()
    };
    assert_eq!((value("--guard"), value("--share")), (guard, share.to_owned()));
    assert_eq!(value("--folder"), "/usr/lib64");

    claims.unprepare(&claim).await.expect("unprepares");
    assert_eq!(node.files(), [""; 0]);
    claims.prepare(&claim).await.expect("prepares");
    let again = self::terms(&node, &claim);
    assert_ne!(again.generation, terms.generation, "it is another writing");
}

const FREEZE: OverflowPolicy = OverflowPolicy::Freeze;

#[tokio::test]
async fn what_a_claim_says_of_its_share_is_kept() {
    let node = Node::new();
    node.install_driver();
    let claims = start(&node, MemoryEnforcement::Guard).await;
    let config = json!({
        "apiVersion": names::OCTAVO_API_VERSION, "kind": "GpuShareConfig",
        "overflowPolicy": "Freeze", "strictness": "Strict", "class": "BestEffort",
    });
    let configure = |object: &mut Value| {
        object["status"]["allocation"]["devices"]["config"] = json!([{
            "source": "FromClaim", "requests": ["request-0"],
            "opaque": {"driver": "gpu.nvidia.com", "parameters": config},
        }]);
    };
    let claim = share(&node, "a");
    let mut object = node.delete(&claim);
    configure(&mut object);
    node.restore(&claim, object);
    claims.prepare(&claim).await.expect("prepares");
    assert_eq!(terms(&node, &claim).flags, STRICT);
    drop(claims);
    let claims = start(&node, MemoryEnforcement::Guard).await;
    let live = claims.active_shares();
    let [share] = live.borrow().to_vec().try_into().expect("one share");
    assert_eq!(share.overflow, OverflowPolicy::Kill, "the node permits no weaker one");
    let reported = || match node.facts(&claim).as_slice() {
        [Fact::Share { overflow, .. }] => *overflow,
        facts => panic!("{facts:?}"),
    };
    assert_eq!(reported(), Some(OverflowPolicy::Kill));
    // A setting that permits more applies to shares prepared from then on, a stricter one at once.
    claims.set_min_overflow(OverflowPolicy::Hold);
    assert_eq!(live.borrow()[0].overflow, OverflowPolicy::Kill);
    claims.unprepare(&claim).await.expect("unprepares");
    claims.prepare(&claim).await.expect("prepares");
    assert_eq!((reported(), live.borrow()[0].overflow), (Some(FREEZE), FREEZE));
    claims.set_min_overflow(OverflowPolicy::Kill);
    assert_eq!(live.borrow()[0].overflow, OverflowPolicy::Kill);
    assert_eq!(reported(), Some(OverflowPolicy::Kill), "the condition names what applies");
    assert_eq!((share.strictness, share.class), (Strictness::Strict, ShareClass::BestEffort));
    assert_eq!((share.backend, share.gpu_uuid.as_str()), (Some(BackendKind::Guard), "GPU-1"));
    assert_eq!(share.folder, folder(&node, &claim));

    // The setting has no effect on a whole GPU.
    let whole = node.allocate_with("whole", &["gpu-2"], configure);
    assert_eq!(claims.prepare(&whole).await.expect_err("no share").reason(), "ConfigMismatch");
    // A share of a whole GPU needs no enforcement and is not refused.
    let all = node.allocate_shares("all", &[("gpu-3", "80Gi", "0")]);
    let mut object = node.delete(&all);
    configure(&mut object);
    node.restore(&all, object);
    claims.prepare(&all).await.expect("prepares");
}

#[tokio::test]
async fn a_share_that_nothing_could_hold_is_refused_until_something_can() {
    let node = Node::new();
    let claims = start(&node, MemoryEnforcement::Guard).await;
    let claim = share(&node, "a");
    let whole = node.allocate("whole", &["gpu-0"]);
    claims.prepare(&whole).await.expect("a whole GPU needs no enforcement");
    let refusal = claims.prepare(&claim).await.expect_err("the driver's library is empty");
    assert_eq!(refusal.reason(), "EnforcementNotReady");
    assert!(refusal.to_string().contains("libcuda.so.580.95.05"), "{refusal}");
    assert_eq!(node.files(), [Node::checkpoint(&whole), Node::cdi(&whole)]);
    node.install_driver();
    claims.prepare(&claim).await.expect("looks again");
    assert_eq!(node.cleared().len() + node.facts(&claim).len(), 1, "the refusal is taken back");
}

#[tokio::test]
async fn a_restart_keeps_the_files_that_containers_have_mapped() {
    let node = Node::new();
    node.install_driver();
    let claim = share(&node, "a");
    start(&node, MemoryEnforcement::Guard).await.prepare(&claim).await.expect("prepares");
    let files = ["limits", "state"].map(|file| folder(&node, &claim).join(file));
    let inodes = || files.clone().map(|file| fs::metadata(file).expect("is there").ino());
    let (before, whole) = (inodes(), terms(&node, &claim));
    fs::write(&files[1], "noise of a container").expect("writes");
    let claims = start(&node, MemoryEnforcement::Guard).await;
    assert_eq!((inodes(), terms(&node, &claim)), (before, whole));
    fs::write(&files[0], "damage").expect("writes");
    assert_eq!(claims.sweep().await.repaired, std::slice::from_ref(&claim));
    assert_eq!((inodes(), terms(&node, &claim)), (before, whole));
    assert_eq!(fs::read(&files[1]).expect("reads"), b"noise of a container");

    // Even where the record was damaged, and containers may run.
    fs::write(node.path(&Node::checkpoint(&claim)), "x").expect("writes");
    fs::remove_file(node.path(&Node::cdi(&claim))).expect("removes");
    drop(claims);
    let claims = start(&node, MemoryEnforcement::Guard).await;
    claims.prepare(&claim).await.expect("heals");
    assert_eq!((inodes(), terms(&node, &claim)), (before, whole));
}

#[tokio::test]
async fn backend_is_chosen_by_driver_capability() {
    let node = Node::new();
    node.install_driver();
    let (claims, _) = node.open();
    claims.set_memory_enforcement(MemoryEnforcement::Auto);
    claims.set_devices("580.95.05", known()).await;
    let claim = share(&node, "a");
    let refusal = claims.prepare(&claim).await.expect_err("nobody knows yet");
    assert!(refusal.to_string().contains("does not answer"), "{refusal}");

    let prepare = async |name: &str, has_limits: bool| {
        let driver: Arc<dyn Driver> = Arc::new(WithLimits(has_limits));
        claims.set_driver(Some(&driver)).await;
        let claim = node.allocate_shares(name, &[("gpu-1", "1Gi", "0")]);
        claims.prepare(&claim).await.expect("prepares");
        (backends(&node, &claim), hooks(&edits(&node, &claim)))
    };
    let guard = (vec![Some(BackendKind::Guard)], vec!["createContainer guard".to_owned()]);
    assert_eq!(prepare("old", false).await, guard);
    assert_eq!(prepare("no-cgroups", true).await, guard);
    fs::create_dir_all(node.path("sys/fs/cgroup")).expect("makes");
    fs::write(node.path("sys/fs/cgroup/cgroup.controllers"), "cpu misc").expect("writes");
    let driver = (vec![Some(BackendKind::Driver)], vec!["createRuntime memory-limits".to_owned()]);
    assert_eq!(prepare("new", true).await, driver);

    // With the setting `driver` there is no other backend.
    claims.set_memory_enforcement(MemoryEnforcement::Driver);
    let old: Arc<dyn Driver> = Arc::new(WithLimits(false));
    claims.set_driver(Some(&old)).await;
    let refusal = claims.prepare(&claim).await.expect_err("it has none");
    assert!(refusal.to_string().contains("r615"), "{refusal}");
}

#[tokio::test]
async fn what_was_decided_stays_whatever_the_setting_says_later() {
    let node = Node::new();
    let claim = share(&node, "a");
    start(&node, MemoryEnforcement::Off).await.prepare(&claim).await.expect("prepares");
    assert_eq!(backends(&node, &claim), [Some(BackendKind::Off)]);
    assert_eq!(hooks(&edits(&node, &claim)), [""; 0]);
    node.install_driver();
    let claims = start(&node, MemoryEnforcement::Guard).await;
    claims.sweep().await;
    assert_eq!(backends(&node, &claim), [Some(BackendKind::Off)]);
    assert_eq!(hooks(&edits(&node, &claim)), [""; 0], "its containers run without");
    claims.unprepare(&claim).await.expect("unprepares");
    claims.prepare(&claim).await.expect("prepares");
    assert_eq!(backends(&node, &claim), [Some(BackendKind::Guard)]);
}

#[tokio::test]
async fn share_from_before_enforcement_is_reported_as_unenforced() {
    let node = Node::new();
    let claim = share(&node, "a");
    start(&node, MemoryEnforcement::Off).await.prepare(&claim).await.expect("prepares");
    let path = node.path(&Node::checkpoint(&claim));
    let mut record: Record =
        decode(&fs::read(&path).expect("reads"), &claim.uid).expect("is whole");
    record.devices[0].terms = None;
    fs::write(&path, encode(&record)).expect("writes");
    let claims = start(&node, MemoryEnforcement::Guard).await;
    claims.prepare(&claim).await.expect("is prepared already");
    assert_eq!(backends(&node, &claim), [None]);
    assert_eq!(claims.active_shares().borrow()[0].backend, None);
}

#[tokio::test]
async fn what_is_frozen_of_a_share_goes_on_before_its_folder_goes() {
    let node = Node::new();
    let claims = start(&node, MemoryEnforcement::Off).await;
    let claim = share(&node, "a");
    claims.prepare(&claim).await.expect("prepares");
    let control = node.path("sys/fs/cgroup/pods/a/cgroup.freeze");
    fs::create_dir_all(control.parent().expect("has one")).expect("makes");
    fs::write(&control, "1").expect("writes");
    fs::write(folder(&node, &claim).join("frozen"), format!("{}\n", control.display()))
        .expect("writes");
    claims.unprepare(&claim).await.expect("unprepares");
    assert_eq!(fs::read_to_string(&control).expect("reads"), "0");
    assert!(!folder(&node, &claim).exists());
}

#[tokio::test]
async fn orphaned_share_is_thawed_before_its_folder_is_removed() {
    let node = Node::new();
    let leftover = node.path("run/octavo/shares/uid-of-nobody_s");
    let control = node.path("sys/fs/cgroup/pods/a/cgroup.freeze");
    for folder in [&leftover, control.parent().expect("has one")] {
        fs::create_dir_all(folder).expect("makes");
    }
    fs::write(&control, "1").expect("writes");
    fs::write(leftover.join("frozen"), format!("{}\n", control.display())).expect("writes");
    start(&node, MemoryEnforcement::Off).await;
    assert_eq!(fs::read_to_string(&control).expect("reads"), "0");
    assert!(!leftover.exists());
}

#[tokio::test]
async fn active_shares_and_findings_are_published() {
    let node = Node::new();
    let claims = start(&node, MemoryEnforcement::Off).await;
    let mut live = claims.active_shares();
    let claim = share(&node, "a");
    claims.prepare(&claim).await.expect("prepares");
    live.changed().await.expect("is told");
    let shares = live.borrow_and_update().clone();
    let (uid, id) = (claim.uid.as_str(), shares[0].share_id.as_str());
    assert_eq!((shares.len(), &shares[0].claim, shares[0].memory_bytes), (1, &claim, 20 << 30));
    claims.prepare(&claim).await.expect("prepares again");
    assert!(!live.has_changed().expect("is open"), "nothing came");

    let news =
        |reason, condition| ShareFinding { reason, message: "has 21Gi".to_owned(), condition };
    claims.report_share(uid, "other", news("MemoryOverflow", None), true);
    claims.report_share("other", id, news("MemoryOverflow", None), true);
    assert_eq!(node.found(), []);
    let overflow = |status| Some((names::CONDITION_OVERFLOW, status));
    let enforced = |status| Some((names::CONDITION_ENFORCED, status));
    claims.report_share(uid, id, news("Killed", overflow(Status::True)), true);
    assert_eq!(node.found(), [("a".to_owned(), "Killed")]);
    let reported = || {
        let facts = node.facts(&claim);
        let [Fact::Share { findings, .. }] = facts.as_slice() else { panic!("{facts:?}") };
        findings.iter().map(|(found, _)| (found.reason, found.condition)).collect::<Vec<_>>()
    };
    assert_eq!(reported(), [("Killed", overflow(Status::True))]);
    claims.report_share(uid, id, news("Killed", overflow(Status::True)), false);
    assert_eq!(node.found().len(), 1, "there were enough events");
    let within = ("Below", overflow(Status::False));
    claims.report_share(uid, id, news(within.0, within.1), true);
    let blind = ("NotWatched", enforced(Status::Unknown));
    claims.report_share(uid, id, news(blind.0, blind.1), true);
    assert_eq!(reported(), [within, blind]);
    claims.report_share(uid, id, news("Watched", enforced(Status::True)), true);
    assert_eq!(reported(), [within], "what holds it says so");
    let tampered = ("Tampered", enforced(Status::False));
    for news_of in [tampered, blind, ("Watched", enforced(Status::True))] {
        claims.report_share(uid, id, news(news_of.0, news_of.1), true);
    }
    assert_eq!(reported(), [within, tampered], "books that were changed stay so");

    // What was moved is an event, but no warning. The condition shows that all is well again.
    let warnings = node.found();
    claims.report_share(uid, id, news(names::REASON_SWAPPED_OUT, None), true);
    let swap = |status| Some((names::CONDITION_MEMORY_SWAP, status));
    claims.report_share(uid, id, news(names::REASON_SWAPPABLE, swap(Status::True)), true);
    let moved = ("a".to_owned(), names::REASON_SWAPPED_OUT);
    assert_eq!((node.found(), node.news()), (warnings, vec![moved]));
    claims.report_share(uid, id, news(names::REASON_SWAP_FAILED, swap(Status::False)), true);
    let failed = (names::REASON_SWAP_FAILED, swap(Status::False));
    assert_eq!(reported(), [within, tampered, failed]);
    claims.report_share(uid, id, news(names::REASON_SWAPPABLE, swap(Status::True)), true);
    assert_eq!(reported(), [within, tampered]);

    claims.unprepare(&claim).await.expect("unprepares");
    live.changed().await.expect("is told");
    assert!(live.borrow().is_empty());
    claims.prepare(&claim).await.expect("prepares");
    assert_eq!(reported(), [], "what was before is not said of what is now");
}
