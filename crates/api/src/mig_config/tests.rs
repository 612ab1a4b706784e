use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn one(entry: Value) -> Result<LayoutEntry, String> {
    let file = json!({"version": "v1", "mig-configs": {"a": vec![entry]}});
    let layouts = decode(&file).map_err(|error| error.to_string())?;
    Ok(layouts["a"].entries[0].clone())
}

#[test]
fn a_layout_names_its_gpus_and_their_devices() {
    let entry = one(json!({
        "device-filter": ["0x233010DE", "0x20b010de"], "devices": [0, 3], "mig-enabled": true,
        "mig-devices": {"1g.10gb": 2, "1g.10gb+me": 1, "2g.20gb": 0, "4g.96gb+gfx": 1, "1g.24gb-me": 1},
    }));
    let devices = [("1g.10gb", 2), ("1g.10gb+me", 1), ("1g.24gb-me", 1), ("4g.96gb+gfx", 1)];
    let wanted = LayoutEntry {
        device_ids: vec![0x2330_10de, 0x20b0_10de],
        gpus: Some(vec![0, 3]),
        devices: Some(devices.map(|(name, count)| (name.to_owned(), count)).into()),
    };
    assert_eq!(entry, Ok(wanted));
    let all = |devices| LayoutEntry { device_ids: Vec::new(), gpus: None, devices };
    let off = json!({"devices": "all", "mig-enabled": false, "device-filter": ""});
    assert_eq!(one(off), Ok(all(None)));
    let off = json!({"devices": "all", "mig-enabled": false, "mig-devices": {}});
    assert_eq!(one(off), Ok(all(None)));
    let on = json!({"devices": "all", "mig-enabled": true, "mig-devices": {}});
    assert_eq!(one(on), Ok(all(Some(BTreeMap::new()))));
}

#[test]
fn the_last_entry_that_means_a_gpu_counts() {
    let file = json!({"version": "v1", "mig-configs": {"a": [
        {"devices": "all", "mig-enabled": false},
        {"devices": [1], "device-filter": "0x233010DE", "mig-enabled": true, "mig-devices": {"1g.10gb": 7}},
    ], "b": [{"devices": [0], "mig-enabled": false}]}});
    let layouts = decode(&file).unwrap();
    let is_off = |index, id| layouts["a"].entry(index, id).unwrap().devices.is_none();
    assert!(is_off(0, 0x2330_10de) && is_off(1, 0x20b0_10de) && !is_off(1, 0x2330_10de));
    assert_eq!(layouts["b"].entry(1, 0), None, "it stays as it is");
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    for (file, wanted) in [
        (json!([]), "(root): object is expected"),
        (json!({"mig-configs": {}}), "version: is required"),
        (json!({"version": "v2", "mig-configs": {}}), "version: \"v2\" is not v1"),
        (json!({"version": "v1"}), "mig-configs: needs at least one layout"),
        (
            json!({"version": "v1", "mig-configs": {"a": []}}),
            "mig-configs.a: needs at least one entry",
        ),
        (json!({"version": "v1", "mig-configs": {"a": [{}]}, "x": 1}), "x: is unknown"),
    ] {
        let error = decode(&file).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    for (entry, wanted) in [
        (json!({"mig-enabled": false}), "mig-configs.a[0].devices: is required"),
        (json!({"devices": "some", "mig-enabled": false}), "neither all nor a list"),
        (json!({"devices": [-1], "mig-enabled": false}), "-1 is not a number from 0 on"),
        (json!({"devices": "all"}), "mig-enabled: is required"),
        (json!({"devices": "all", "mig-enabled": true}), "mig-devices: is required where"),
        (
            json!({"devices": "all", "mig-enabled": false, "mig-devices": {"1g.5gb": 1}}),
            "must be absent or empty",
        ),
        (
            json!({"devices": "all", "mig-enabled": true, "mig-devices": {"1g": 1}}),
            "mig-devices.1g: is no MIG profile",
        ),
        (
            json!({"devices": "all", "mig-enabled": true, "mig-devices": {"1c.2g.10gb": 1}}),
            "is a part of an instance",
        ),
        (
            json!({"devices": "all", "mig-enabled": true, "mig-devices": {"1g.5gb": -1}}),
            "-1 is not a number",
        ),
        (
            json!({"devices": "all", "mig-enabled": true, "mig-devices": {"1g.5gb": 0}}),
            "all counts are 0",
        ),
        (
            json!({"devices": "all", "mig-enabled": false, "device-filter": "H100"}),
            "device-filter: \"H100\" is no PCI device",
        ),
        (json!({"devices": "all", "mig-enabled": false, "mode": 1}), "mode: is unknown"),
    ] {
        let error = one(entry).unwrap_err();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn names_without_a_file_are_those_of_nvidia_s_manager() {
    for (text, layout) in [
        ("all-disabled", BuiltinLayout::Disabled),
        ("all-enabled", BuiltinLayout::Enabled),
        ("all-balanced", BuiltinLayout::Balanced),
        ("all-1g.10gb.me", BuiltinLayout::Profile("1g.10gb.me".to_owned())),
    ] {
        assert_eq!(text.parse(), Ok(layout));
    }
    for text in ["", "all", "all-", "balanced", "all-big"] {
        assert!(text.parse::<BuiltinLayout>().is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn any_file_is_read_without_a_panic(text in "[-{}\\[\\]:,\"0-9a-z. +]{0,80}") {
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            drop(decode(&value));
        }
        drop(one(json!({"devices": "all", "mig-enabled": true, "mig-devices": {text: 1}})));
    }
}
