//! Which config file a node uses, and its settings.
//!
//! As with NVIDIA's config manager, the files are the keys of a `ConfigMap`, and the node's label `nvidia.com/device-plugin.config`
//! names one. Without the label it is the default, or else the first that a fallback finds. What cannot be used leaves the last
//! good settings in place.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use octavo_api::plugin_config::{self, Decoded, Overrides};
use serde_json::Value;

use crate::config::{DevicePluginSettings, Fallback};

/// The key that the fallback `named` finds.
const NAMED: &str = "default";

/// Why a node's settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigProblem {
    /// The label names no file.
    #[error(
        "the config {name:?} that {origin} names is not there; there are {}", listed(.known)
    )]
    Missing {
        /// The name.
        name: String,
        /// What names it.
        origin: &'static str,
        /// The names that are there.
        known: Vec<String>,
    },
    /// The label names a file, and there is no folder of files.
    #[error(
        "the node's label nvidia.com/device-plugin.config is {0:?}, and the agent has no config files: set devicePlugin.configFolder, or remove the label"
    )]
    NoFolder(String),
    /// No fallback finds a file.
    #[error(
        "no config is chosen: the node has no label nvidia.com/device-plugin.config, there is no default, and no \
         fallback finds one of {}", listed(.known)
    )]
    NotChosen {
        /// The names that are there.
        known: Vec<String>,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A file is no YAML, or its settings are wrong.
    #[error("{origin}: {message}")]
    Invalid {
        /// The file, or the environment.
        origin: String,
        /// What is wrong.
        message: String,
    },
}

fn listed(known: &[String]) -> String {
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
}

/// Reads the settings of a node.
///
/// # Errors
///
/// No file is chosen, or its settings are wrong.
pub(crate) fn read(
    settings: &DevicePluginSettings,
    label: Option<&str>,
    variables: BTreeMap<String, String>,
) -> Result<Decoded, ConfigProblem> {
    let file = match &settings.config_folder {
        None => match label.filter(|label| !label.is_empty()) {
            None => None,
            Some(label) => return Err(ConfigProblem::NoFolder(label.to_owned())),
        },
        Some(folder) => choose(settings, &keys(folder)?, label)?.map(|key| folder.join(key)),
    };
    let value = file.as_deref().map(parsed).transpose()?;
    let overrides = Overrides { flags: settings.flags.clone(), variables };
    let origin = || file.as_ref().map_or("the settings".to_owned(), |it| it.display().to_string());
    plugin_config::decode(value.as_ref(), &overrides)
        .map_err(|error| ConfigProblem::Invalid { origin: origin(), message: error.to_string() })
}

/// The names of the files in a folder. Names that begin with a dot are those of a mounted `ConfigMap` itself.
fn keys(folder: &Path) -> Result<Vec<String>, ConfigProblem> {
    let failed = |source| ConfigProblem::Read { path: folder.to_owned(), source };
    let mut keys = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && entry.path().is_file() {
            keys.push(name);
        }
    }
    keys.sort();
    Ok(keys)
}

/// The key of the node's config; `None`: settings without a file.
fn choose(
    settings: &DevicePluginSettings,
    known: &[String],
    label: Option<&str>,
) -> Result<Option<String>, ConfigProblem> {
    let label = label.filter(|label| !label.is_empty());
    let default = settings.default_config.as_deref().filter(|name| !name.is_empty());
    let named = label
        .map(|name| (name, "the node's label nvidia.com/device-plugin.config"))
        .or(default.map(|name| (name, "devicePlugin.defaultConfig")));
    if let Some((name, origin)) = named {
        if known.iter().any(|key| key == name) {
            return Ok(Some(name.to_owned()));
        }
        let (name, known) = (name.to_owned(), known.to_vec());
        return Err(ConfigProblem::Missing { name, origin, known });
    }
    for fallback in &settings.fallback {
        match fallback {
            Fallback::Named if known.iter().any(|key| key == NAMED) => {
                return Ok(Some(NAMED.to_owned()));
            }
            Fallback::Single if known.len() == 1 => return Ok(Some(known[0].clone())),
            Fallback::Empty => return Ok(None),
            Fallback::Named | Fallback::Single => {}
        }
    }
    Err(ConfigProblem::NotChosen { known: known.to_vec() })
}

fn parsed(path: &Path) -> Result<Value, ConfigProblem> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigProblem::Read { path: path.to_owned(), source })?;
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Value::Null);
    }
    serde_saphyr::from_str(&text).map_err(|error| ConfigProblem::Invalid {
        origin: path.display().to_string(),
        message: error.to_string(),
    })
}

#[cfg(test)]
mod tests;
