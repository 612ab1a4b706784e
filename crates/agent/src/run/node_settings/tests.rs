use super::*;
use crate::config::GpuName;
use crate::config::NodeFile;

fn config(dynamic: DynamicMig, owner: &str) -> NodeConfig {
    let file = NodeFile {
        node_name: Some("node".to_owned()),
        dynamic_mig: Some(dynamic),
        owner: Some(owner.parse().unwrap()),
        ..NodeFile::default()
    };
    file.complete().unwrap()
}

fn labelled(labels: &[(&str, &str)]) -> ObjectMeta {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ObjectMeta { labels: Some(labels.collect()), ..ObjectMeta::default() }
}

#[test]
fn the_label_goes_before_the_agent_s_own_setting() {
    let own = DynamicMig::Gpus([1].map(GpuName::Minor).into());
    let config = config(own.clone(), "");
    let of = |label: &str| NodeSettings::of(&config, &labelled(&[(LABEL_DYNAMIC_MIG, label)]));
    let plain = NodeSettings { dynamic: own, is_read: true, ..NodeSettings::default() };
    assert_eq!(NodeSettings::of(&config, &ObjectMeta::default()), plain);
    assert_eq!(of("none").dynamic, DynamicMig::None);
    assert_eq!(of("all").dynamic, DynamicMig::All);
    assert_eq!(of("0_3").dynamic, DynamicMig::Gpus([0, 3].map(GpuName::Minor).into()));
}

#[test]
fn owner_label_names_the_scheduler_and_empty_means_any() {
    let of = |own: &str, labels: &[(&str, &str)]| {
        let setting = NodeSettings::of(&config(DynamicMig::None, own), &labelled(labels));
        assert!(setting.problems.is_empty(), "{:?}", setting.problems);
        setting.owner.scheduler().map(str::to_owned)
    };
    assert_eq!(of("", &[]), None);
    assert_eq!(of("", &[("octavo.dev/scheduler", "octavo")]).as_deref(), Some("octavo"));
    assert_eq!(of("octavo", &[]).as_deref(), Some("octavo"));
    assert_eq!(of("octavo", &[(LABEL_OWNER, "other")]).as_deref(), Some("other"));
    assert_eq!(of("octavo", &[(LABEL_OWNER, "")]), None);
}

#[test]
fn mode_label_goes_before_the_agent_s_own_setting() {
    let of = |labels: &[(&str, &str)]| {
        NodeSettings::of(&config(DynamicMig::None, ""), &labelled(labels))
    };
    assert_eq!((of(&[]).mode, of(&[]).plugin_config), (Mode::Dra, None));
    let both =
        of(&[("octavo.dev/mode", "device-plugin"), ("nvidia.com/device-plugin.config", "a")]);
    assert_eq!((both.mode, both.plugin_config.as_deref()), (Mode::DevicePlugin, Some("a")));
    let wrong = of(&[(LABEL_MODE, "both")]);
    assert_eq!((wrong.mode, wrong.problems[0].reason), (Mode::Dra, "ModeLabelInvalid"));
}

#[test]
fn invalid_label_is_reported_and_ignored() {
    let config = config(DynamicMig::All, "octavo");
    let setting =
        NodeSettings::of(&config, &labelled(&[(LABEL_DYNAMIC_MIG, "yes"), (LABEL_OWNER, "a b")]));
    assert_eq!(setting.dynamic, DynamicMig::All);
    assert_eq!(setting.owner.scheduler(), Some("octavo"));
    let [cut, owner] = &setting.problems[..] else { panic!("{:?}", setting.problems) };
    assert_eq!(cut.reason, "DynamicMigLabelInvalid");
    assert!(cut.text.contains("octavo.dev/dynamic-mig"), "{}", cut.text);
    assert!(cut.text.contains("yes") && cut.text.contains("0_3"), "{}", cut.text);
    assert_eq!(owner.reason, "SchedulerLabelInvalid");
    assert!(
        owner.text.contains("octavo.dev/scheduler") && owner.text.contains("a b"),
        "{}",
        owner.text
    );
}

#[test]
fn the_driver_is_released_by_our_label_and_by_the_operator_s() {
    let config = config(DynamicMig::None, "");
    let of = |labels: &[(&str, &str)]| NodeSettings::of(&config, &labelled(labels));
    for (label, value, is_released) in [
        (LABEL_DRIVER_RELEASED, "true", true),
        (LABEL_DRIVER_RELEASED, "false", false),
        ("nvidia.com/gpu.deploy.device-plugin", "true", false),
        ("nvidia.com/gpu.deploy.device-plugin", "paused-for-driver-upgrade", true),
        ("nvidia.com/gpu.deploy.dra-driver", "paused-for-mig-change", true),
        // Components that were configured otherwise keep their value in front.
        ("nvidia.com/gpu.deploy.dcgm", "yes_paused-for-driver-upgrade", true),
        ("nvidia.com/gpu.deploy.device-plugin", "false", false),
        ("example.com/gpu.deploy.dcgm", "paused-for-driver-upgrade", false),
    ] {
        let settings = of(&[(label, value)]);
        assert_eq!(settings.is_released, is_released, "{label}={value}");
        assert!(settings.problems.is_empty());
    }
    let settings = of(&[(LABEL_DRIVER_RELEASED, "now")]);
    assert!(!settings.is_released && settings.problems[0].text.contains("\"now\""));
}
