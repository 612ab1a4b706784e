use serde_json::{Value, json};

use super::{
    ComputePart, ConfigEntry, ConfigSource, DecodedConfig, DeviceNodesConfig, DeviceType,
    GpuConfig, GpuShareConfig, MpsConfig, OpaqueConfig, OverflowPolicy, ShareClass, Sharing,
    Strictness, SwapUnit, TimeSlice, decode, decode_entries, device_nodes_for, for_request,
    for_share,
};

/// A reader of bytes that is enough for these tests.
fn parse_bytes(text: &str) -> Result<i128, String> {
    let (number, unit) = match text.strip_suffix("Gi") {
        Some(number) => (number, 1 << 30),
        None => (text, 1),
    };
    let number: i128 = number.parse().map_err(|_| format!("{text:?} is not a quantity"))?;
    Ok(number * unit)
}

fn config(kind: &str, fields: &Value) -> Value {
    let mut config = json!({"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind});
    if let (Some(config), Some(fields)) = (config.as_object_mut(), fields.as_object()) {
        config.extend(fields.clone());
    }
    config
}

/// Decodes a config and expects an error at a path with certain words.
fn check_refused(config: &Value, path: &str, words: &str) {
    let error = decode(config, parse_bytes).expect_err(path);
    assert_eq!(error.path, path, "{error}");
    assert!(error.problem.contains(words), "{error}");
}

#[test]
fn a_full_mps_config_is_decoded() {
    let mps = json!({"sharing": {"strategy": "MPS", "mpsConfig": {
        "defaultActiveThreadPercentage": 50,
        "defaultPinnedDeviceMemoryLimit": "10Gi",
        "defaultPerDevicePinnedMemoryLimit": {"0": "5Gi", "GPU-1": 1_073_741_824},
        "multiUser": true,
    }}});
    let expected = MpsConfig {
        default_active_thread_percentage: Some(50),
        default_pinned_device_memory_limit: Some(10 << 30),
        default_per_device_pinned_memory_limit: [
            ("0".to_owned(), 5 << 30),
            ("GPU-1".to_owned(), 1 << 30),
        ]
        .into(),
        multi_user: true,
    };
    assert_eq!(
        decode(&config("GpuConfig", &mps), parse_bytes),
        Ok(OpaqueConfig::Gpu(GpuConfig { sharing: Some(Sharing::Mps(expected)) }))
    );
}

#[test]
fn defaults_are_those_of_the_api() {
    let time_slicing = json!({"sharing": {"strategy": "TimeSlicing"}});
    assert_eq!(
        decode(&config("GpuConfig", &time_slicing), parse_bytes),
        Ok(OpaqueConfig::Gpu(GpuConfig {
            sharing: Some(Sharing::TimeSlicing(TimeSlice::Default))
        }))
    );
    assert_eq!(
        decode(&config("GpuConfig", &json!({"sharing": null})), parse_bytes),
        Ok(OpaqueConfig::Gpu(GpuConfig { sharing: None }))
    );
    for (kind, fields) in [
        ("MigDeviceConfig", json!({"sharing": {"strategy": "MPS"}})),
        (
            "VfioDeviceConfig",
            json!({"iommu": {"backendPolicy": "PreferIommuFD", "enableAPIDevice": true}}),
        ),
        (
            "ComputeDomainChannelConfig",
            json!({"domainID": "0d3b9a2e-8a39-4a3c-9d0c-6d1f6b1a2c3d", "allocationMode": "All"}),
        ),
        ("ComputeDomainDaemonConfig", json!({"domainID": "0d3b9a2e-8a39-4a3c-9d0c-6d1f6b1a2c3d"})),
    ] {
        let decoded = decode(&config(kind, &fields), parse_bytes).expect(kind);
        assert_eq!(decoded.kind(), kind);
    }
}

#[test]
fn an_error_names_its_field() {
    let gpu = |fields| config("GpuConfig", &fields);
    let mps = |fields: Value| gpu(json!({"sharing": {"strategy": "MPS", "mpsConfig": fields}}));
    check_refused(&json!("GpuConfig"), "(root)", "object is expected");
    check_refused(&json!({"kind": "GpuConfig"}), "apiVersion", "required");
    check_refused(
        &json!({"apiVersion": "resource.nvidia.com/v1", "kind": "GpuConfig"}),
        "apiVersion",
        "is not resource.nvidia.com/v1beta1",
    );
    check_refused(&config("GPUConfig", &json!({})), "kind", "not one of GpuConfig");
    check_refused(&gpu(json!({"shaering": {}})), "shaering", "unknown; known here are");
    check_refused(&gpu(json!({"sharing": {}})), "sharing.strategy", "required");
    check_refused(&gpu(json!({"sharing": {"strategy": "mps"}})), "sharing.strategy", "not one of");
    check_refused(
        &gpu(json!({"sharing": {"strategy": "TimeSlicing", "mpsConfig": {}}})),
        "sharing.mpsConfig",
        "does not go with strategy TimeSlicing",
    );
    check_refused(
        &gpu(
            json!({"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "long"}}}),
        ),
        "sharing.timeSlicingConfig.interval",
        "not one of Default, Short, Medium, Long",
    );
    check_refused(
        &config(
            "MigDeviceConfig",
            &json!({"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {}}}),
        ),
        "sharing.timeSlicingConfig",
        "unknown",
    );
    for percentage in [json!(0), json!(101), json!(-1), json!(1.5)] {
        check_refused(
            &mps(json!({"defaultActiveThreadPercentage": percentage})),
            "sharing.mpsConfig.defaultActiveThreadPercentage",
            "from 1 to 100",
        );
    }
    check_refused(
        &mps(json!({"defaultActiveThreadPercentage": "50"})),
        "sharing.mpsConfig.defaultActiveThreadPercentage",
        "it is text",
    );
    check_refused(
        &mps(json!({"defaultPinnedDeviceMemoryLimit": "10GB"})),
        "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit",
        "not a quantity",
    );
    check_refused(
        &mps(json!({"defaultPinnedDeviceMemoryLimit": "1000"})),
        "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit",
        "less than 1Mi",
    );
    check_refused(
        &mps(json!({"defaultPerDevicePinnedMemoryLimit": {"first": "1Gi"}})),
        "sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit.first",
        "neither a GPU UUID nor an index",
    );
    check_refused(
        &mps(json!({"multiUser": "yes"})),
        "sharing.mpsConfig.multiUser",
        "true or false",
    );
    check_refused(
        &config("ComputeDomainDaemonConfig", &json!({"domainID": "my-domain"})),
        "domainID",
        "not a UID",
    );
    check_refused(
        &config("VfioDeviceConfig", &json!({"iommu": {"backendPolicy": "Any"}})),
        "iommu.backendPolicy",
        "not one of LegacyOnly, PreferIommuFD",
    );
}

fn entry(source: ConfigSource, requests: &[&str], driver: &str, parameters: Value) -> ConfigEntry {
    let requests = requests.iter().map(|&request| request.to_owned()).collect();
    ConfigEntry { source, requests, driver: driver.to_owned(), parameters }
}

fn interval(interval: &str) -> Value {
    let sharing = json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}});
    config("GpuConfig", &json!({"sharing": sharing}))
}

fn chosen(configs: &[DecodedConfig], request: &str) -> Option<TimeSlice> {
    let config = for_request(configs, request, DeviceType::Gpu).expect("the config fits");
    match config {
        Some(OpaqueConfig::Gpu(GpuConfig { sharing: Some(Sharing::TimeSlicing(slice)) })) => {
            Some(*slice)
        }
        _ => None,
    }
}

#[test]
fn a_claim_wins_over_its_class_and_later_over_earlier() {
    use ConfigSource::{Claim, Class};
    let entries = [
        entry(Claim, &["a"], "gpu.nvidia.com", interval("Short")),
        entry(Claim, &["a"], "gpu.nvidia.com", interval("Medium")),
        entry(Class, &[], "gpu.nvidia.com", interval("Long")),
        entry(Class, &["b"], "gpu.nvidia.com", interval("Default")),
    ];
    let configs = decode_entries(&entries, "gpu.nvidia.com", parse_bytes).expect("valid");
    assert_eq!(chosen(&configs, "a"), Some(TimeSlice::Medium));
    assert_eq!(chosen(&configs, "a/sub"), Some(TimeSlice::Medium));
    assert_eq!(chosen(&configs, "b"), Some(TimeSlice::Default));
    assert_eq!(chosen(&configs, "c"), Some(TimeSlice::Long));
    assert_eq!(chosen(&[], "a"), None);
}

#[test]
fn a_config_for_a_subrequest_is_for_no_other() {
    let entries = [entry(ConfigSource::Claim, &["a/one"], "gpu.nvidia.com", interval("Short"))];
    let configs = decode_entries(&entries, "gpu.nvidia.com", parse_bytes).expect("valid");
    assert_eq!(chosen(&configs, "a/one"), Some(TimeSlice::Short));
    assert_eq!(chosen(&configs, "a/two"), None);
    assert_eq!(chosen(&configs, "a"), None);
}

#[test]
fn configs_of_other_drivers_are_not_looked_at() {
    let entries = [entry(ConfigSource::Claim, &[], "net.example.com", json!({"anything": true}))];
    assert_eq!(decode_entries(&entries, "gpu.nvidia.com", parse_bytes), Ok(Vec::new()));
}

#[test]
fn a_wrong_config_says_who_gave_it() {
    let entries = [entry(ConfigSource::Class, &[], "gpu.nvidia.com", json!({}))];
    let (source, error) =
        decode_entries(&entries, "gpu.nvidia.com", parse_bytes).expect_err("no apiVersion");
    assert_eq!((source.object(), error.path.as_str()), ("DeviceClass", "apiVersion"));
}

#[test]
fn a_config_of_another_type_is_an_error_only_where_it_names_the_request() {
    let mig = config("MigDeviceConfig", &json!({}));
    let named = [entry(ConfigSource::Claim, &["a"], "gpu.nvidia.com", mig.clone())];
    let configs = decode_entries(&named, "gpu.nvidia.com", parse_bytes).expect("valid");
    let mismatch = for_request(&configs, "a", DeviceType::Gpu).expect_err("a MIG config");
    assert_eq!((mismatch.kind, mismatch.device_type), ("MigDeviceConfig", "gpu"));

    let for_all = [
        entry(ConfigSource::Class, &[], "gpu.nvidia.com", interval("Long")),
        entry(ConfigSource::Claim, &[], "gpu.nvidia.com", mig),
    ];
    let configs = decode_entries(&for_all, "gpu.nvidia.com", parse_bytes).expect("valid");
    assert_eq!(chosen(&configs, "a"), Some(TimeSlice::Long));

    // No device type of this driver accepts it, so skipping it for all requests would drop it silently.
    let domain = json!({"domainID": "0d3b9a2e-8a39-4a3c-9d0c-6d1f6b1a2c3d"});
    let channel = config("ComputeDomainChannelConfig", &domain);
    let for_all = [entry(ConfigSource::Claim, &[], "gpu.nvidia.com", channel)];
    let configs = decode_entries(&for_all, "gpu.nvidia.com", parse_bytes).expect("valid");
    let mismatch = for_request(&configs, "a", DeviceType::Gpu).expect_err("a channel's config");
    assert_eq!(mismatch.kind, "ComputeDomainChannelConfig");
}

fn share(fields: &Value) -> Value {
    let mut share = json!({"apiVersion": "octavo.dev/v1alpha1", "kind": "GpuShareConfig"});
    if let (Some(share), Some(fields)) = (share.as_object_mut(), fields.as_object()) {
        share.extend(fields.clone());
    }
    share
}

#[test]
fn a_share_s_config_has_defaults_and_every_word() {
    let decoded = |fields| decode(&share(&fields), parse_bytes).expect("is valid");
    assert_eq!(decoded(json!({})), OpaqueConfig::GpuShare(GpuShareConfig::default()));
    let full = json!({
        "overflowPolicy": "Freeze", "strictness": "Strict", "class": "BestEffort", "computeLimit": "12.5%",
        "memoryLimit": "40Gi", "swapUnit": "Pages",
    });
    let expected = GpuShareConfig {
        overflow_policy: Some(OverflowPolicy::Freeze),
        strictness: Some(Strictness::Strict),
        class: Some(ShareClass::BestEffort),
        compute_limit: Some(ComputePart(12_500)),
        memory_limit: Some(40 << 30),
        swap_unit: Some(SwapUnit::Pages),
    };
    assert_eq!(decoded(full), OpaqueConfig::GpuShare(expected));
    for policy in OverflowPolicy::ALL {
        let expected = GpuShareConfig { overflow_policy: Some(policy), ..Default::default() };
        let words = json!({"overflowPolicy": policy.as_str()});
        assert_eq!(decoded(words), OpaqueConfig::GpuShare(expected));
    }
}

#[test]
fn a_share_s_config_says_what_is_allowed() {
    let refused = |fields: Value, path, words| check_refused(&share(&fields), path, words);
    refused(json!({"overflowPolicy": "Pause"}), "overflowPolicy", "Report, Hold, Freeze, Kill");
    refused(json!({"overflowPolicy": "kill"}), "overflowPolicy", "Report, Hold, Freeze, Kill");
    refused(json!({"strictness": true}), "strictness", "text is expected");
    refused(json!({"class": "Gold"}), "class", "LatencyCritical, Normal, BestEffort");
    refused(json!({"computeLimit": "130%"}), "computeLimit", "a percentage up to 100");
    refused(json!({"computeLimit": "0%"}), "computeLimit", "would ever launch");
    refused(json!({"computeLimit": 50}), "computeLimit", "text is expected");
    refused(json!({"swapUnit": "Allocations"}), "swapUnit", "Processes, Pages");
    refused(json!({"memoryLimit": "much"}), "memoryLimit", "much");
    refused(json!({"memoryLimit": "0"}), "memoryLimit", "no amount of memory");
    refused(json!({"memoryLimit": true}), "memoryLimit", "a quantity is expected");
    refused(json!({"memory": "1Gi"}), "memory", "overflowPolicy, strictness, class");
    check_refused(&config("GpuShareConfig", &json!({})), "kind", "is of octavo.dev/v1alpha1");
    let other = json!({"apiVersion": "octavo.dev/v1alpha1", "kind": "GpuConfig"});
    check_refused(&other, "kind", "is not one of GpuShareConfig, DeviceNodesConfig");
    let other = json!({"apiVersion": "octavo.dev/v1", "kind": "GpuShareConfig"});
    check_refused(&other, "apiVersion", "octavo.dev/v1alpha1");
}

#[test]
fn a_class_s_config_of_shares_takes_precedence_over_a_claim_s() {
    use ConfigSource::{Claim, Class};
    let config = |source, policy| {
        entry(source, &[], "gpu.nvidia.com", share(&json!({"overflowPolicy": policy})))
    };
    for entries in [
        [config(Class, "Kill"), config(Claim, "Report")],
        [config(Claim, "Report"), config(Class, "Kill")],
    ] {
        let configs = decode_entries(&entries, "gpu.nvidia.com", parse_bytes).expect("valid");
        let chosen = for_share(&configs, "a").expect("fits");
        assert_eq!(chosen.overflow_policy, Some(OverflowPolicy::Kill));
    }
}

#[test]
fn a_share_has_a_config_of_its_own_beside_that_of_its_gpu() {
    use ConfigSource::{Claim, Class};
    let hold = share(&json!({"overflowPolicy": "Hold"}));
    let entries = [
        entry(Class, &[], "gpu.nvidia.com", share(&json!({"class": "BestEffort"}))),
        entry(Claim, &["a"], "gpu.nvidia.com", hold.clone()),
        entry(Claim, &["a"], "gpu.nvidia.com", interval("Short")),
    ];
    let configs = decode_entries(&entries, "gpu.nvidia.com", parse_bytes).expect("valid");
    let chosen = for_share(&configs, "a").expect("fits");
    assert_eq!(chosen.overflow_policy, Some(OverflowPolicy::Hold), "the class leaves it open");
    assert_eq!(chosen.class, Some(ShareClass::BestEffort));
    assert_eq!(chosen.strictness, None);
    let chosen = for_share(&configs, "b").expect("fits");
    assert_eq!(chosen.class, Some(ShareClass::BestEffort));
    let beside = for_request(&configs, "a", DeviceType::Share).expect("fits");
    assert!(matches!(beside, Some(OpaqueConfig::Gpu(_))));
    assert_eq!(for_request(&configs, "b", DeviceType::Share), Ok(None));
    assert_eq!(for_share(&[], "a"), Ok(GpuShareConfig::default()));

    // A whole GPU and a MIG device have no use for one.
    let named = [entry(Claim, &["a"], "gpu.nvidia.com", hold)];
    let configs = decode_entries(&named, "gpu.nvidia.com", parse_bytes).expect("valid");
    for device in [DeviceType::Gpu, DeviceType::Mig] {
        let mismatch = for_request(&configs, "a", device).expect_err("no share");
        assert_eq!(mismatch.kind, "GpuShareConfig");
    }
    let named = [entry(Claim, &["a"], "gpu.nvidia.com", config("MigDeviceConfig", &json!({})))];
    let configs = decode_entries(&named, "gpu.nvidia.com", parse_bytes).expect("valid");
    let mismatch = for_share(&configs, "a").expect_err("no MIG");
    assert_eq!((mismatch.kind, mismatch.device_type), ("MigDeviceConfig", "gpu in shares"));
}

/// A config of device nodes.
fn nodes(fields: &Value) -> Value {
    let mut nodes = json!({"apiVersion": "octavo.dev/v1alpha1", "kind": "DeviceNodesConfig"});
    if let (Some(nodes), Some(fields)) = (nodes.as_object_mut(), fields.as_object()) {
        nodes.extend(fields.clone());
    }
    nodes
}

#[test]
fn a_class_s_device_nodes_are_those_of_all_its_configs() {
    use ConfigSource::Class;
    let entries = [
        entry(Class, &["a"], "gpu.nvidia.com", nodes(&json!({"gds": true}))),
        entry(Class, &[], "gpu.nvidia.com", nodes(&json!({"infiniband": true, "gds": false}))),
        entry(Class, &["b"], "gpu.nvidia.com", interval("Short")),
    ];
    let configs = decode_entries(&entries, "gpu.nvidia.com", parse_bytes).expect("valid");
    let of_all = DeviceNodesConfig { infiniband: true, ..DeviceNodesConfig::default() };
    assert_eq!(device_nodes_for(&configs, "a/first"), DeviceNodesConfig { gds: true, ..of_all });
    assert_eq!(device_nodes_for(&configs, "b"), of_all);
    assert_eq!(device_nodes_for(&[], "b"), DeviceNodesConfig::default());
    for device in [DeviceType::Gpu, DeviceType::Share, DeviceType::Mig] {
        assert_eq!(
            for_request(&configs, "a", device),
            Ok(None),
            "they are no config of the device"
        );
    }
    assert!(for_request(&configs, "b", DeviceType::Gpu).expect("fits").is_some());
}

#[test]
fn a_claim_may_not_ask_for_device_nodes() {
    let entries =
        [entry(ConfigSource::Claim, &[], "gpu.nvidia.com", nodes(&json!({"nvswitch": true})))];
    let refused = decode_entries(&entries, "gpu.nvidia.com", parse_bytes);
    let (source, error) = refused.expect_err("is the administrator's");
    assert_eq!((source, error.path.as_str()), (ConfigSource::Claim, "kind"));
    assert!(error.problem.contains("for a DeviceClass only"), "{error}");
    check_refused(&nodes(&json!({})), "kind", "set one of gds");
    check_refused(&nodes(&json!({"gds": "yes"})), "gds", "true or false is expected");
    check_refused(&nodes(&json!({"mofed": true})), "mofed", "unknown");
    check_refused(&config("DeviceNodesConfig", &json!({})), "kind", "is of octavo.dev/v1alpha1");
}
