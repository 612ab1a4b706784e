use std::fs;

use octavo_api::config::{OverflowPolicy, ShareClass, Strictness, SwapUnit};
use octavo_enforcement::backend::BackendKind;
use octavo_node::ClaimRef;

use super::{
    Damage, HeldDevice, HeldKind, HeldMig, HeldMps, HeldShare, HeldSharing, HeldTerms, MadeMig,
    Record, RecordState, Store, decode, encode,
};

fn record(uid: &str, boot_id: &str) -> Record {
    Record {
        claim: ClaimRef { namespace: "ns".to_owned(), name: "c".to_owned(), uid: uid.to_owned() },
        boot_id: boot_id.to_owned(),
        state: RecordState::Prepared,
        prepared_at: None,
        devices: vec![HeldDevice {
            requests: vec!["gpu".to_owned()],
            pool: "node".to_owned(),
            device: "gpu-0".to_owned(),
            uuid: "GPU-0".to_owned(),
            cdi_ids: vec!["k8s.gpu.nvidia.com/claim=u-gpu-0".to_owned()],
            ..HeldDevice::default()
        }],
    }
}

#[test]
fn a_record_reads_back_as_written() {
    let record = record("u", "boot");
    assert_eq!(decode(encode(&record).as_bytes(), "u"), Ok(record));
}

const FIRST_SUM: &str = "04a8918d18d86543c38e98cb1eb110a0eb175eeb6e1ee4d5d4656b5cb0b473ec";
/// As an agent of before shares and MIG wrote it.
const FIRST_FORM: &str = r#"{"version":1,"sha256":"SUM","record":{"claim":{"namespace":"ns","name":"c","uid":"u"},"bootId":"boot","state":"Prepared","devices":[{"requests":["gpu"],"pool":"node","device":"gpu-0","uuid":"GPU-0","adminAccess":false,"cdiIds":["k8s.gpu.nvidia.com/claim=u-gpu-0"]}]}}"#;

#[test]
fn what_the_first_version_can_say_is_read_and_written_in_it() {
    let text = FIRST_FORM.replace("SUM", FIRST_SUM);
    assert_eq!(decode(text.as_bytes(), "u"), Ok(record("u", "boot")));
    assert_eq!(encode(&record("u", "boot")), text);
}

#[test]
fn a_share_or_an_instance_needs_the_second_version() {
    let share = HeldShare { memory_bytes: 20 << 30, compute_milli_percent: 12_500 };
    let mig = HeldMig {
        profile: "1g.10gb".to_owned(),
        profile_id: 19,
        start: 4,
        size: 1,
        is_dynamic: true,
        made: Some(MadeMig { gpu_instance: 7, compute_instance: 0, uuid: "MIG-1".to_owned() }),
    };
    let not_made = HeldMig { made: None, ..mig.clone() };
    let with = |change: fn(&mut Record), kind: HeldKind| {
        let mut record = record("u", "boot");
        record.devices[0].kind = kind;
        change(&mut record);
        record
    };
    let records = [
        with(|_| {}, HeldKind::Share(share)),
        with(|_| {}, HeldKind::Mig(mig)),
        with(|record| record.state = RecordState::Preparing, HeldKind::Mig(not_made)),
        with(|record| record.devices[0].share_id = Some("s".to_owned()), HeldKind::Whole),
        with(|record| record.prepared_at = Some(1), HeldKind::Whole),
    ];
    for record in records {
        let text = encode(&record);
        assert!(text.starts_with("{\"version\":2,"), "{text}");
        assert_eq!(decode(text.as_bytes(), "u"), Ok(record));
        let older = text.replacen("\"version\":2", "\"version\":1", 1);
        assert_eq!(decode::<Record>(older.as_bytes(), "u"), Err(Damage::Changed));
    }
}

const THIRD_SUM: &str = "54495bbfd1654165280b1513bb260ebf7c942253a67ec54289c5a29d12d64cc5";
/// The format of an agent whose settings still called the backend `wall`.
const THIRD_FORM: &str = r#"{"version":3,"sha256":"SUM","record":{"claim":{"namespace":"ns","name":"c","uid":"u"},"bootId":"boot","state":"Prepared","devices":[{"requests":["gpu"],"pool":"node","device":"gpu-0","uuid":"GPU-0","adminAccess":false,"cdiIds":["k8s.gpu.nvidia.com/claim=u-gpu-0"],"kind":{"share":{"memoryBytes":21474836480,"computeMilliPercent":0}},"terms":{"wall":"Guard","overflow":"Freeze","strictness":"Strict","class":"BestEffort","generation":18446744073709551615}}]}}"#;

#[test]
fn a_share_that_something_holds_needs_the_third_version() {
    let share = HeldShare { memory_bytes: 20 << 30, compute_milli_percent: 0 };
    let mut held = record("u", "boot");
    held.devices[0].kind = HeldKind::Share(share);
    held.devices[0].terms = Some(HeldTerms {
        backend: BackendKind::Guard,
        overflow: OverflowPolicy::Freeze,
        strictness: Strictness::Strict,
        class: ShareClass::BestEffort,
        compute_limit: None,
        memory_limit: None,
        swap_unit: SwapUnit::Processes,
        quantum_ms: None,
        is_exempt: false,
        generation: u64::MAX,
    });
    let text = encode(&held);
    assert!(text.starts_with("{\"version\":3,"), "{text}");
    assert_eq!(decode(text.as_bytes(), "u"), Ok(held));
    assert_eq!(text, THIRD_FORM.replace("SUM", THIRD_SUM), "the backend is written as `wall`");
    let older = text.replacen("\"version\":3", "\"version\":2", 1);
    assert_eq!(decode::<Record>(older.as_bytes(), "u"), Err(Damage::Changed));
}

#[test]
fn nodes_of_a_class_need_the_fourth_version() {
    let mut held = record("u", "boot");
    held.devices[0].extra_nodes.gdrcopy = true;
    held.devices[0].extra_nodes.infiniband = true;
    let text = encode(&held);
    assert!(text.starts_with("{\"version\":4,"), "{text}");
    let part = r#""extraNodes":{"gdrcopy":true,"infiniband":true}}]}}"#;
    assert!(text.ends_with(part), "its form is fixed for version 4: {text}");
    assert_eq!(decode(text.as_bytes(), "u"), Ok(held));
    let older = text.replacen("\"version\":4", "\"version\":3", 1);
    assert_eq!(decode::<Record>(older.as_bytes(), "u"), Err(Damage::Changed));
}

#[test]
fn a_limit_of_time_needs_the_sixth_version_and_one_of_memory_the_seventh() {
    let share = HeldShare { memory_bytes: 20 << 30, compute_milli_percent: 25_000 };
    let mut held = record("u", "boot");
    held.devices[0].kind = HeldKind::Share(share);
    held.devices[0].terms = Some(HeldTerms {
        backend: BackendKind::Guard,
        overflow: OverflowPolicy::Kill,
        strictness: Strictness::Lenient,
        class: ShareClass::Normal,
        compute_limit: Some(50_000),
        memory_limit: None,
        swap_unit: SwapUnit::Processes,
        quantum_ms: None,
        is_exempt: false,
        generation: 1,
    });
    let text = encode(&held);
    assert!(text.starts_with("{\"version\":6,"), "{text}");
    assert!(text.contains("\"computeLimit\":50000"), "{text}");
    assert_eq!(decode(text.as_bytes(), "u"), Ok(held.clone()));

    let terms = held.devices[0].terms.as_mut().expect("has some");
    (terms.compute_limit, terms.memory_limit) = (None, Some(40 << 30));
    let text = encode(&held);
    assert!(text.starts_with("{\"version\":7,"), "{text}");
    assert!(text.contains("\"memoryLimit\":42949672960"), "{text}");
    assert!(!text.contains("swapUnit"), "an older agent reads it: {text}");
    assert_eq!(decode(text.as_bytes(), "u"), Ok(held.clone()));
    held.devices[0].terms.as_mut().expect("has some").swap_unit = SwapUnit::Pages;
    let text = encode(&held);
    assert!(text.contains("\"swapUnit\":\"Pages\""), "{text}");
    assert_eq!(decode(text.as_bytes(), "u"), Ok(held.clone()));
    let terms = held.devices[0].terms.as_mut().expect("has some");
    (terms.memory_limit, terms.quantum_ms) = (None, Some(5));
    terms.swap_unit = SwapUnit::Processes;
    let text = encode(&held);
    assert!(text.starts_with("{\"version\":7,") && text.contains("\"quantumMs\":5"), "{text}");
    assert_eq!(decode(text.as_bytes(), "u"), Ok(held.clone()));
    let terms = held.devices[0].terms.as_mut().expect("has some");
    (terms.quantum_ms, terms.is_exempt) = (None, true);
    let text = encode(&held);
    assert!(text.starts_with("{\"version\":7,") && text.contains("\"isExempt\":true"), "{text}");
    assert_eq!(decode(text.as_bytes(), "u"), Ok(held));
}

#[test]
fn time_slices_and_mps_need_the_fifth_version() {
    let mut held = record("u", "boot");
    held.devices[0].sharing = Some(HeldSharing::TimeSlice(3));
    let text = encode(&held);
    assert!(text.starts_with("{\"version\":5,"), "{text}");
    let part = r#""sharing":{"timeSlice":3}}]}}"#;
    assert!(text.ends_with(part), "its form is fixed for version 5: {text}");
    assert_eq!(decode(text.as_bytes(), "u"), Ok(held.clone()));
    held.devices[0].sharing = Some(HeldSharing::Mps(HeldMps {
        daemon: "c-u-0".to_owned(),
        active_thread_percentage: Some(40),
        memory_limit_mib: Some(2048),
        multi_user: true,
    }));
    let text = encode(&held);
    let part = r#""sharing":{"mps":{"daemon":"c-u-0","activeThreadPercentage":40,"memoryLimitMib":2048,"multiUser":true}}}]}}"#;
    assert!(text.ends_with(part), "its form is fixed for version 5: {text}");
    assert_eq!(decode(text.as_bytes(), "u"), Ok(held));
    let older = text.replacen("\"version\":5", "\"version\":4", 1);
    assert_eq!(decode::<Record>(older.as_bytes(), "u"), Err(Damage::Changed));
}

#[test]
fn no_change_of_one_byte_goes_unseen() {
    let text = encode(&record("u", "boot"));
    for at in 0..text.len() {
        let mut changed = text.clone().into_bytes();
        changed[at] ^= 1;
        if let Ok(read) = decode::<Record>(&changed, "u") {
            panic!("byte {at} was changed and read as {read:?}");
        }
        assert!(decode::<Record>(&text.as_bytes()[..at], "u").is_err(), "cut at {at}");
    }
    assert_eq!(
        decode::<Record>(text.as_bytes(), "other"),
        Err(Damage::Changed),
        "under another name"
    );
    let future = text.replace("\"version\":1", "\"version\":8");
    assert_eq!(decode::<Record>(future.as_bytes(), "u"), Err(Damage::FutureVersion));
}

#[test]
fn records_are_sorted_by_boot_and_damage_at_start() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::<Record>::open(folder.path(), "boot-2").expect("opens");
    store.write(&record("now", "boot-2")).expect("writes");
    store.write(&record("before", "boot-1")).expect("writes");
    store.write(&record("cut", "boot-2")).expect("writes");
    store.write(&record("changed", "boot-2")).expect("writes");
    fs::write(store.path("cut"), "{\"version\":1,").expect("damages");
    let text = fs::read_to_string(store.path("changed")).expect("reads");
    fs::write(store.path("changed"), text.replace("gpu-0", "gpu-1")).expect("damages");
    fs::create_dir(store.path("folder")).expect("damages");

    let loaded = store.load().expect("loads");
    assert_eq!(loaded.records.keys().collect::<Vec<_>>(), ["now"]);
    assert_eq!(loaded.forgotten, ["before"]);
    let damage = |uid: &str| loaded.damaged.get(uid).map(|damaged| damaged.damage);
    assert_eq!(damage("cut"), Some(Damage::Truncated));
    assert_eq!(damage("changed"), Some(Damage::Changed));
    assert_eq!(damage("folder"), Some(Damage::Unreadable));
    let claim = loaded.damaged["changed"].claim.as_ref().expect("the claim is legible");
    assert_eq!((claim.namespace.as_str(), claim.name.as_str()), ("ns", "c"));

    let aside = store.quarantine("cut", Damage::Truncated, Some(&record("cut", "boot-2")));
    assert_eq!(fs::read_to_string(aside.expect("kept")).expect("reads"), "{\"version\":1,");
    let aside = store.quarantine("folder", Damage::Unreadable, Some(&record("folder", "boot-2")));
    assert!(aside.expect("kept").is_dir());
    assert!(store.is_intact(&record("cut", "boot-2")));
    assert!(store.is_intact(&record("folder", "boot-2")));
}

#[test]
fn only_one_agent_uses_a_folder() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let first = Store::<Record>::open(folder.path(), "boot").expect("opens");
    let error = Store::<Record>::open(folder.path(), "boot").expect_err("is locked").to_string();
    assert!(error.contains("another agent"), "{error}");
    drop(first);
    Store::<Record>::open(folder.path(), "boot").expect("opens again");
}

#[test]
fn leftovers_of_a_crash_are_removed_and_a_new_boot_is_seen() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::<Record>::open(folder.path(), "boot-1").expect("opens");
    assert!(!store.is_new_boot());
    store.mark_boot().expect("marks");
    drop(store);
    let leftover = folder.path().join(".u.json.octavo-tmp");
    fs::write(&leftover, "half").expect("writes");
    assert!(!Store::<Record>::open(folder.path(), "boot-1").expect("opens").is_new_boot());
    assert!(!leftover.exists());
    assert!(Store::<Record>::open(folder.path(), "boot-2").expect("opens").is_new_boot());
}

#[test]
fn a_deleted_folder_is_made_again() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let folder = parent.path().join("checkpoint");
    let store = Store::<Record>::open(&folder, "boot").expect("opens");
    fs::remove_dir_all(&folder).expect("removes");
    store.write(&record("u", "boot")).expect("writes");
    assert!(store.is_intact(&record("u", "boot")));
}
