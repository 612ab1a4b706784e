use serde_json::{Value, json};

use super::*;

fn decoded(file: &Value) -> Decoded {
    decode(Some(file), &Overrides::default()).unwrap()
}

fn error(file: &Value) -> String {
    decode(Some(file), &Overrides::default()).unwrap_err().to_string()
}

fn overrides(flags: &[(&str, &str)], variables: &[(&str, &str)]) -> Overrides {
    let map = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    };
    Overrides { flags: map(flags), variables: map(variables) }
}

#[test]
fn nothing_set_means_the_defaults() {
    for file in [None, Some(Value::Null), Some(json!({})), Some(json!({"version": "v1"}))] {
        let found = decode(file.as_ref(), &Overrides::default()).unwrap();
        assert_eq!(found, Decoded { config: PluginConfig::default(), warnings: Vec::new() });
    }
    let config = PluginConfig::default();
    assert_eq!(config.device_lists, [DeviceList::CdiCri].into());
    assert_eq!(config.labels.rewrite, RewriteInterval::Every(Duration::from_mins(1)));
}

#[test]
fn every_field_is_read() {
    let found = decoded(&json!({
        "version": "v1",
        "flags": {
            "migStrategy": "mixed", "mpsRoot": "/mps", "gdrcopyEnabled": true, "gdsEnabled": true,
            "mofedEnabled": true, "useNodeFeatureAPI": false,
            "plugin": {
                "passDeviceSpecs": true, "deviceListStrategy": ["envvar", "volume-mounts"],
                "deviceIDStrategy": "index", "cdiAnnotationPrefix": "a/",
                "sharedDevicesAllocationPolicy": "packed",
            },
            "gfd": {
                "noTimestamp": true, "sleepInterval": "1m30s", "outputFile": "/out",
                "machineTypeFile": "/type",
            },
        },
        "sharing": {"timeSlicing": {
            "renameByDefault": true,
            "resources": [{"name": "nvidia.com/gpu", "replicas": 4}, {"name": "mig-1g.5gb", "replicas": 2}],
        }},
        "imex": {"channelIDs": [0], "required": true},
    }));
    assert_eq!(found.warnings, Vec::<String>::new());
    let wanted = PluginConfig {
        mig_strategy: MigStrategy::Mixed,
        device_lists: [DeviceList::Envvar, DeviceList::VolumeMounts].into(),
        device_ids: DeviceIds::Index,
        pass_device_specs: true,
        cdi_annotation_prefix: "a/".to_owned(),
        allocation_policy: AllocationPolicy::Packed,
        extra_nodes: [ExtraNodes::Gdrcopy, ExtraNodes::Gds, ExtraNodes::Mofed].into(),
        mps_root: "/mps".to_owned(),
        sharing: Some(SharingConfig {
            strategy: SharingStrategy::TimeSlicing,
            rename_by_default: true,
            fail_requests_greater_than_one: false,
            resources: vec![
                SharedResource { name: "nvidia.com/gpu".to_owned(), replicas: 4 },
                SharedResource { name: "nvidia.com/mig-1g.5gb".to_owned(), replicas: 2 },
            ],
        }),
        imex: ImexChannel::Required,
        labels: LabelSettings {
            use_node_feature_api: false,
            no_timestamp: true,
            rewrite: RewriteInterval::Every(Duration::from_secs(90)),
            output_file: "/out".to_owned(),
            machine_type_file: "/type".to_owned(),
        },
    };
    assert_eq!(found.config, wanted);
    let sharing = found.config.sharing.unwrap();
    assert_eq!(sharing.offered_name("nvidia.com/gpu"), "nvidia.com/gpu.shared");
    assert_eq!(sharing.offered_name("nvidia.com/mig-2g.10gb"), "nvidia.com/mig-2g.10gb");
}

#[test]
fn a_flag_comes_before_a_variable_and_that_before_the_file() {
    let file = json!({"flags": {"migStrategy": "none", "plugin": null}});
    let strategy =
        |overrides: &Overrides| decode(Some(&file), overrides).unwrap().config.mig_strategy;
    assert_eq!(strategy(&Overrides::default()), MigStrategy::None);
    let variable = [("MIG_STRATEGY", "single")];
    assert_eq!(strategy(&overrides(&[], &variable)), MigStrategy::Single);
    let flag = [("mig-strategy", "mixed")];
    assert_eq!(strategy(&overrides(&flag, &variable)), MigStrategy::Mixed);
    assert_eq!(strategy(&overrides(&[], &[("MIG_STRATEGY", "")])), MigStrategy::None);
}

#[test]
fn variables_have_the_types_of_their_fields() {
    let variables = [
        ("DEVICE_LIST_STRATEGY", "envvar, cdi-cri"),
        ("PASS_DEVICE_SPECS", "T"),
        ("IMEX_CHANNEL_IDS", "0"),
        ("GFD_SLEEP_INTERVAL", "infinite"),
    ];
    let config = decode(None, &overrides(&[], &variables)).unwrap().config;
    assert_eq!(config.device_lists, [DeviceList::Envvar, DeviceList::CdiCri].into());
    assert!(config.pass_device_specs);
    assert_eq!(config.imex, ImexChannel::IfPresent);
    assert_eq!(config.labels.rewrite, RewriteInterval::Never);
    for (name, text, part) in [
        ("PASS_DEVICE_SPECS", "yes", "PASS_DEVICE_SPECS: \"yes\" is not true or false"),
        ("IMEX_CHANNEL_IDS", "x", "IMEX_CHANNEL_IDS: \"x\" is not a whole number"),
        ("IMEX_CHANNEL_IDS", "1", "imex.channelIDs: must be [] or [0]"),
        ("MIG_STRATEGY", "some", "flags.migStrategy: \"some\" is not one of none, single, mixed"),
    ] {
        let error = decode(None, &overrides(&[], &[(name, text)])).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn each_setting_has_a_field_that_is_known() {
    for setting in SETTINGS {
        let text = match setting.kind {
            SettingKind::Bool => "true",
            SettingKind::Numbers => "0",
            SettingKind::List => "envvar",
            SettingKind::Text => match setting.field.rsplit('.').next().unwrap() {
                "migStrategy" => "single",
                "deviceIDStrategy" => "index",
                "sharedDevicesAllocationPolicy" => "packed",
                "sleepInterval" => "1s",
                _ => "/path",
            },
        };
        for flag in setting.flags {
            let found = decode(None, &overrides(&[(flag, text)], &[])).unwrap();
            assert!(
                !found.warnings.iter().any(|it| it.contains("unknown")),
                "{:?}",
                found.warnings
            );
        }
        for variable in setting.variables {
            let by_variable = decode(None, &overrides(&[], &[(variable, text)])).unwrap();
            let by_flag = decode(None, &overrides(&[(setting.flags[0], text)], &[])).unwrap();
            assert_eq!(by_variable, by_flag, "{variable}");
        }
    }
}

#[test]
fn what_has_no_effect_is_reported() {
    let found = decoded(&json!({
        "flags": {
            "failOnInitError": false, "speed": 1,
            "plugin": {"nvidiaCTKPath": "/x"}, "gfd": {"oneshot": true},
        },
        "resources": {"gpus": [{"pattern": "*", "name": "nvidia.com/a"}]},
        "sharing": {
            "timeSlicing": {"resources": [{"name": "gpu", "replicas": 2, "rename": "b", "devices": 1}]},
            "mps": {"resources": [{"name": "gpu", "replicas": 3}]},
        },
        "extra": {},
    }));
    let fields: Vec<&str> =
        found.warnings.iter().map(|it| it.split_whitespace().next().unwrap()).collect();
    let wanted = [
        "resources",
        "sharing.timeSlicing",
        "sharing.timeSlicing.resources[0].rename",
        "sharing.timeSlicing.resources[0].devices",
        "flags.failOnInitError",
        "flags.plugin.nvidiaCTKPath",
        "flags.gfd.oneshot",
        "flags.speed",
        "extra",
    ];
    assert_eq!(fields, wanted);
    let sharing = found.config.sharing.unwrap();
    assert_eq!((sharing.strategy, sharing.resources[0].replicas), (SharingStrategy::Mps, 3));
    assert!(sharing.fail_requests_greater_than_one);
}

#[test]
fn the_name_that_renaming_gives_is_no_surprise() {
    let entry = json!({"name": "gpu", "replicas": 2, "rename": "gpu.shared"});
    let renaming = json!({"renameByDefault": true, "resources": [entry]});
    assert_eq!(decoded(&json!({"sharing": {"timeSlicing": renaming}})).warnings.len(), 0);
    let plain = json!({"resources": [entry]});
    assert_eq!(decoded(&json!({"sharing": {"timeSlicing": plain}})).warnings.len(), 1);
}

#[test]
fn wrong_input_names_its_field() {
    let shared = |resource: &Value| json!({"sharing": {"mps": {"resources": [resource]}}});
    for (file, wanted) in [
        (json!([]), "(root): an object is expected"),
        (json!({"resources": [1]}), "resources: an object is expected"),
        (json!({"version": "v2"}), "version: \"v2\" is not v1"),
        (
            json!({"flags": {"plugin": {"deviceListStrategy": []}}}),
            "deviceListStrategy: is an empty",
        ),
        (
            json!({"flags": {"plugin": {"deviceListStrategy": "cdi"}}}),
            "flags.plugin.deviceListStrategy: \"cdi\" is not one of envvar",
        ),
        (json!({"flags": {"mpsRoot": "mps"}}), "flags.mpsRoot: \"mps\" is not an absolute path"),
        (json!({"flags": {"gfd": {"sleepInterval": "soon"}}}), "sleepInterval: is not a duration"),
        (json!({"sharing": {"mps": {}}}), "sharing.mps.resources: needs at least one resource"),
        (shared(&json!({"replicas": 2})), "sharing.mps.resources[0].name: is required"),
        (shared(&json!({"name": "gpu"})), "resources[0].replicas: is required"),
        (
            shared(&json!({"name": "gpu", "replicas": 1})),
            "replicas: must be a whole number, at least 2",
        ),
        (
            shared(&json!({"name": "GPU", "replicas": 2})),
            "resources[0].name: \"nvidia.com/GPU\" is not",
        ),
        (shared(&json!({"name": "a".repeat(60), "replicas": 2})), "longer than 63 characters"),
        (
            json!({"sharing": {"mps": {"resources": [
                {"name": "gpu", "replicas": 2}, {"name": "nvidia.com/gpu", "replicas": 3},
            ]}}}),
            "sharing.mps.resources[1]: nvidia.com/gpu is listed twice",
        ),
    ] {
        let error = error(&file);
        assert!(error.contains(wanted), "{error}");
    }
}
