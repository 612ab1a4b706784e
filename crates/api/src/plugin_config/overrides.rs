//! Environment variables and flags that stand for fields of the file.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::config::ConfigError;

/// What a text of a variable or flag means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// The text itself.
    Text,
    /// A boolean, as Go's `strconv.ParseBool` reads it.
    Bool,
    /// Texts, separated by commas.
    List,
    /// Whole numbers, separated by commas.
    Numbers,
}

/// A setting that has a flag and environment variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its field in the file.
    pub field: &'static str,
    /// Names of its flag, without dashes.
    pub flags: &'static [&'static str],
    /// Names of its variables. The first one that is set counts.
    pub variables: &'static [&'static str],
    /// What its text means.
    pub kind: SettingKind,
}

/// Flags and variables that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Texts of flags, by name without dashes.
    pub flags: BTreeMap<String, String>,
    /// Texts of environment variables, by name. Others than those of [`SETTINGS`] do not matter.
    pub variables: BTreeMap<String, String>,
}

const fn setting(
    field: &'static str,
    flags: &'static [&'static str],
    variables: &'static [&'static str],
    kind: SettingKind,
) -> Setting {
    Setting { field, flags, variables, kind }
}

/// The settings of the device plugin, and those of GPU feature discovery.
#[rustfmt::skip]
pub const SETTINGS: &[Setting] = &[
    setting("flags.migStrategy", &["mig-strategy"], &["MIG_STRATEGY", "GFD_MIG_STRATEGY"], SettingKind::Text),
    setting("flags.failOnInitError", &["fail-on-init-error"], &["FAIL_ON_INIT_ERROR", "GFD_FAIL_ON_INIT_ERROR"], SettingKind::Bool),
    setting("flags.mpsRoot", &["mps-root"], &["MPS_ROOT"], SettingKind::Text),
    setting("flags.nvidiaDriverRoot", &["driver-root", "nvidia-driver-root"], &["NVIDIA_DRIVER_ROOT"], SettingKind::Text),
    setting("flags.nvidiaDevRoot", &["dev-root", "nvidia-dev-root"], &["NVIDIA_DEV_ROOT"], SettingKind::Text),
    setting("flags.gdrcopyEnabled", &["gdrcopy-enabled"], &["GDRCOPY_ENABLED"], SettingKind::Bool),
    setting("flags.gdsEnabled", &["gds-enabled"], &["GDS_ENABLED"], SettingKind::Bool),
    setting("flags.mofedEnabled", &["mofed-enabled"], &["MOFED_ENABLED"], SettingKind::Bool),
    setting("flags.useNodeFeatureAPI", &["use-node-feature-api"], &["GFD_USE_NODE_FEATURE_API", "USE_NODE_FEATURE_API"], SettingKind::Bool),
    setting("flags.deviceDiscoveryStrategy", &["device-discovery-strategy"], &["DEVICE_DISCOVERY_STRATEGY"], SettingKind::Text),
    setting("flags.plugin.passDeviceSpecs", &["pass-device-specs"], &["PASS_DEVICE_SPECS"], SettingKind::Bool),
    setting("flags.plugin.deviceListStrategy", &["device-list-strategy"], &["DEVICE_LIST_STRATEGY"], SettingKind::List),
    setting("flags.plugin.deviceIDStrategy", &["device-id-strategy"], &["DEVICE_ID_STRATEGY"], SettingKind::Text),
    setting("flags.plugin.cdiAnnotationPrefix", &["cdi-annotation-prefix"], &["CDI_ANNOTATION_PREFIX"], SettingKind::Text),
    setting("flags.plugin.nvidiaCTKPath", &["nvidia-cdi-hook-path", "nvidia-ctk-path"], &["NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"], SettingKind::Text),
    setting("flags.plugin.containerDriverRoot", &["driver-root-ctr-path", "container-driver-root"], &["DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"], SettingKind::Text),
    setting("flags.plugin.sharedDevicesAllocationPolicy", &["shared-devices-allocation-policy"], &["SHARED_DEVICES_ALLOCATION_POLICY"], SettingKind::Text),
    setting("flags.gfd.oneshot", &["oneshot"], &["GFD_ONESHOT"], SettingKind::Bool),
    setting("flags.gfd.noTimestamp", &["no-timestamp"], &["GFD_NO_TIMESTAMP"], SettingKind::Bool),
    setting("flags.gfd.sleepInterval", &["sleep-interval"], &["GFD_SLEEP_INTERVAL"], SettingKind::Text),
    setting("flags.gfd.outputFile", &["output-file", "output"], &["GFD_OUTPUT_FILE"], SettingKind::Text),
    setting("flags.gfd.machineTypeFile", &["machine-type-file"], &["GFD_MACHINE_TYPE_FILE"], SettingKind::Text),
    setting("imex.channelIDs", &["imex-channel-ids"], &["IMEX_CHANNEL_IDS"], SettingKind::Numbers),
    setting("imex.required", &["imex-required"], &["IMEX_REQUIRED"], SettingKind::Bool),
];

impl Overrides {
    /// Writes what is set into the file's content, which is an object.
    pub(super) fn apply(&self, file: &mut Map<String, Value>) -> Result<(), ConfigError> {
        for setting in SETTINGS {
            let Some((origin, text)) = self.text(setting) else { continue };
            let value = parsed(setting.kind, text)
                .map_err(|problem| ConfigError { path: origin, problem })?;
            put(file, setting.field, value)?;
        }
        Ok(())
    }

    /// The text for a setting, and where it comes from. An empty variable counts as absent, as in NVIDIA's programs.
    fn text(&self, setting: &Setting) -> Option<(String, &str)> {
        let flag = |name: &&str| Some((format!("--{name}"), self.flags.get(*name)?.as_str()));
        let variable = |name: &&str| {
            let text = self.variables.get(*name).filter(|text| !text.is_empty())?;
            Some(((*name).to_owned(), text.as_str()))
        };
        let mut flags = setting.flags.iter().filter_map(flag);
        flags.next().or_else(|| setting.variables.iter().find_map(variable))
    }
}

fn parsed(kind: SettingKind, text: &str) -> Result<Value, String> {
    let parts = || text.split(',').map(str::trim).filter(|part| !part.is_empty());
    match kind {
        SettingKind::Text => Ok(text.into()),
        SettingKind::Bool => match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true.into()),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false.into()),
            _ => Err(format!("{text:?} is not true or false")),
        },
        SettingKind::List => Ok(parts().collect::<Vec<_>>().into()),
        SettingKind::Numbers => {
            let number = |part: &str| {
                part.parse::<i64>().map_err(|_| format!("{part:?} is not a whole number"))
            };
            Ok(parts().map(number).collect::<Result<Vec<_>, _>>()?.into())
        }
    }
}

/// Sets the field at a path, and makes the objects that lead there.
fn put(file: &mut Map<String, Value>, path: &str, value: Value) -> Result<(), ConfigError> {
    let mut object = file;
    let mut parts = path.split('.').peekable();
    let mut seen = String::new();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            object.insert(part.to_owned(), value);
            return Ok(());
        }
        seen = if seen.is_empty() { part.to_owned() } else { format!("{seen}.{part}") };
        let next = object.entry(part).or_insert(Value::Null);
        if next.is_null() {
            *next = Value::Object(Map::new());
        }
        object = match next {
            Value::Object(next) => next,
            other => return Err(crate::fields::wrong_type(&seen, "an object", other)),
        };
    }
    Ok(())
}
