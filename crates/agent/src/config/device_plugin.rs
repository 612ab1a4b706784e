//! The settings `mode` and `devicePlugin`: how a node offers its GPUs, and the files with the plugin's own settings.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use octavo_api::names::MODE_NONE;
use octavo_api::plugin_config::SETTINGS;
use serde::Deserialize;

/// How a node offers its GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// In slices, for resource claims.
    #[default]
    Dra,
    /// As counted resources, such as `nvidia.com/gpu`.
    DevicePlugin,
    /// Not at all: the node is about to leave Octavo.
    None,
}

/// A text names no mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no mode: give dra, device-plugin or none")]
pub struct ModeError(String);

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "dra" => Ok(Self::Dra),
            "device-plugin" => Ok(Self::DevicePlugin),
            MODE_NONE => Ok(Self::None),
            other => Err(ModeError(other.to_owned())),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Mode {
    /// Its name in files and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dra => "dra",
            Self::DevicePlugin => "device-plugin",
            Self::None => MODE_NONE,
        }
    }
}

/// The block `devicePlugin` of a config file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DevicePluginFile {
    /// Folder with files of NVIDIA's form `version: v1`. Default: none, and the defaults of NVIDIA's plugin with CDI.
    pub config_folder: Option<PathBuf>,
    /// Name of the file for nodes without the label `nvidia.com/device-plugin.config`. Default: what a fallback finds.
    pub default_config: Option<String>,
    /// What is tried in turn without label and default. Default `[named, single, empty]`.
    pub fallback: Option<Vec<Fallback>>,
    /// Flags of NVIDIA's plugin, by name without dashes. They come before the file. Default: none.
    pub flags: Option<BTreeMap<String, String>>,
}

/// Where a config is looked for that nothing names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fallback {
    /// The file `default`.
    Named,
    /// The only file.
    Single,
    /// No file: the defaults.
    Empty,
}

/// Complete settings of the device plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePluginSettings {
    /// Folder with the files.
    pub config_folder: Option<PathBuf>,
    /// Name of the file for nodes without the label.
    pub default_config: Option<String>,
    /// What is tried in turn without label and default.
    pub fallback: Vec<Fallback>,
    /// Flags, by name without dashes.
    pub flags: BTreeMap<String, String>,
}

/// Why the settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DevicePluginError {
    /// NVIDIA's plugin has no such flag.
    #[error(
        "`devicePlugin.flags` has {0:?}, which is no flag of NVIDIA's plugin or of its GPU feature discovery"
    )]
    UnknownFlag(String),
    /// The folder must be absolute.
    #[error("`devicePlugin.configFolder` is {0}, which is not an absolute path")]
    RelativeFolder(PathBuf),
    /// A setting that needs a folder.
    #[error("`devicePlugin.{0}` is set and `devicePlugin.configFolder` is not")]
    NoFolder(&'static str),
}

impl Default for DevicePluginSettings {
    fn default() -> Self {
        Self {
            config_folder: None,
            default_config: None,
            fallback: vec![Fallback::Named, Fallback::Single, Fallback::Empty],
            flags: BTreeMap::new(),
        }
    }
}

impl DevicePluginFile {
    /// Applies the defaults and validates the settings.
    pub(super) fn complete(self) -> Result<DevicePluginSettings, DevicePluginError> {
        let flags = self.flags.unwrap_or_default();
        let is_known = |name: &&String| SETTINGS.iter().any(|it| it.flags.contains(&name.as_str()));
        if let Some(unknown) = flags.keys().find(|name| !is_known(name)) {
            return Err(DevicePluginError::UnknownFlag(unknown.clone()));
        }
        let default_config = self.default_config.filter(|name| !name.is_empty());
        match &self.config_folder {
            Some(folder) if !folder.is_absolute() => {
                return Err(DevicePluginError::RelativeFolder(folder.clone()));
            }
            None if default_config.is_some() => {
                return Err(DevicePluginError::NoFolder("defaultConfig"));
            }
            None if self.fallback.is_some() => return Err(DevicePluginError::NoFolder("fallback")),
            _ => {}
        }
        let defaults = DevicePluginSettings::default();
        Ok(DevicePluginSettings {
            config_folder: self.config_folder,
            default_config,
            fallback: self.fallback.unwrap_or(defaults.fallback),
            flags,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeFile;

    fn complete(text: &str) -> Result<DevicePluginSettings, String> {
        let file: NodeFile = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        file.device_plugin.unwrap_or_default().complete().map_err(|error| error.to_string())
    }

    #[test]
    fn a_config_file_names_mode_and_plugin_settings() {
        let file: NodeFile = serde_saphyr::from_str("mode: device-plugin").unwrap();
        assert_eq!(file.mode, Some(Mode::DevicePlugin));
        for mode in [Mode::Dra, Mode::DevicePlugin, Mode::None] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!(
            "both".parse::<Mode>().unwrap_err().to_string().contains("dra, device-plugin or none")
        );
        assert_eq!(complete("mode: dra"), Ok(DevicePluginSettings::default()));
        let all = "devicePlugin: {configFolder: /c, defaultConfig: a, fallback: [single], flags: {mig-strategy: mixed}}";
        let found = complete(all).unwrap();
        assert_eq!(found.config_folder, Some("/c".into()));
        assert_eq!(found.fallback, [Fallback::Single]);
        assert_eq!(found.flags["mig-strategy"], "mixed");
    }

    #[test]
    fn settings_without_effect_are_errors() {
        for (text, part) in [
            ("devicePlugin: {flags: {speed: fast}}", "has \"speed\""),
            ("devicePlugin: {configFolder: c}", "not an absolute path"),
            ("devicePlugin: {defaultConfig: a}", "configFolder` is not"),
            ("devicePlugin: {fallback: [single]}", "fallback` is set"),
            ("devicePlugin: {fallback: [other]}", "other"),
            ("devicePlugin: {folder: /c}", "folder"),
        ] {
            let error = complete(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
