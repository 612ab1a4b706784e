use std::fs;

use octavo_api::plugin_config::MigStrategy;
use tempfile::TempDir;

use super::*;

/// A folder with files, as a mounted `ConfigMap`.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("..2026_01_01")).unwrap();
    fs::write(folder.path().join("..data"), "").unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn settings(folder: &TempDir) -> DevicePluginSettings {
    DevicePluginSettings {
        config_folder: Some(folder.path().to_owned()),
        ..DevicePluginSettings::default()
    }
}

fn strategy(
    settings: &DevicePluginSettings,
    label: Option<&str>,
) -> Result<MigStrategy, ConfigProblem> {
    read(settings, label, BTreeMap::new()).map(|decoded| decoded.config.mig_strategy)
}

const SINGLE: &str = "version: v1\nflags: {migStrategy: single}";
const MIXED: &str = "version: v1\nflags: {migStrategy: mixed}";

#[test]
fn the_label_names_a_file_then_the_default_then_a_fallback() {
    let both = folder(&[("default", SINGLE), ("other", MIXED)]);
    let mut of_both = settings(&both);
    assert_eq!(strategy(&of_both, Some("other")).unwrap(), MigStrategy::Mixed);
    assert_eq!(strategy(&of_both, None).unwrap(), MigStrategy::Single);
    assert_eq!(strategy(&of_both, Some("")).unwrap(), MigStrategy::Single);
    of_both.default_config = Some("other".to_owned());
    assert_eq!(strategy(&of_both, None).unwrap(), MigStrategy::Mixed);

    let one = folder(&[("a", MIXED)]);
    assert_eq!(strategy(&settings(&one), None).unwrap(), MigStrategy::Mixed);
    let two = folder(&[("a", MIXED), ("b", SINGLE)]);
    assert_eq!(strategy(&settings(&two), None).unwrap(), MigStrategy::None, "no file");
    let strict = DevicePluginSettings { fallback: vec![Fallback::Named], ..settings(&two) };
    let error = strategy(&strict, None).unwrap_err().to_string();
    assert!(error.contains("no config is chosen") && error.contains("a, b"), "{error}");
    let none = DevicePluginSettings::default();
    assert_eq!(strategy(&none, None).unwrap(), MigStrategy::None);
    let error = strategy(&none, Some("a")).unwrap_err().to_string();
    assert!(error.contains("the agent has no config files"), "{error}");
}

#[test]
fn flags_come_before_variables_and_those_before_the_file() {
    let one = folder(&[("a", MIXED)]);
    let mut settings = settings(&one);
    let variables = BTreeMap::from([("MIG_STRATEGY".to_owned(), "single".to_owned())]);
    let found = read(&settings, None, variables.clone()).unwrap();
    assert_eq!(found.config.mig_strategy, MigStrategy::Single);
    settings.flags.insert("mig-strategy".to_owned(), "none".to_owned());
    let found = read(&settings, None, variables).unwrap();
    assert_eq!(found.config.mig_strategy, MigStrategy::None);
}

#[test]
fn what_cannot_be_used_has_a_reason() {
    let files = folder(&[
        ("version", "version: v9"),
        ("broken", "version: ["),
        ("empty", "# nothing\n"),
        ("replicas", "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 1}]}}"),
    ]);
    let of = settings(&files);
    for (label, part) in [
        ("version", "version: \"v9\" is not v1"),
        ("broken", "/broken: "),
        ("replicas", "replicas: must be a whole number, at least 2"),
        (
            "none",
            "\"none\" that the node's label nvidia.com/device-plugin.config names is not there",
        ),
    ] {
        let error = strategy(&of, Some(label)).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(strategy(&of, Some("empty")).unwrap(), MigStrategy::None);
    let gone = DevicePluginSettings {
        config_folder: Some(files.path().join("gone")),
        ..DevicePluginSettings::default()
    };
    assert!(strategy(&gone, None).unwrap_err().to_string().contains("cannot read"));
}
