//! Resolves CDI device names like a container runtime: finds the specs and merges their edits.
//!
//! Follows the CDI specification 1.1.0 and its Go library. Unknown fields make a spec invalid. A
//! device that two specs define is a conflict and resolves to neither.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Changes that a CDI spec makes to a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Edits {
    /// Environment as `NAME=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) env: Vec<String>,
    /// Device nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) device_nodes: Vec<DeviceNode>,
    /// Mounts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) mounts: Vec<Mount>,
    /// OCI hooks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) hooks: Vec<Hook>,
    /// Supplementary groups (since 0.7.0).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) additional_gids: Vec<u32>,
    /// Network devices (since 1.1.0), kept as written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) net_devices: Vec<serde_json::Value>,
    /// Intel RDT, kept as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) intel_rdt: Option<serde_json::Value>,
}

/// A device node of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DeviceNode {
    /// Path in the container.
    pub(crate) path: String,
    /// Path on the host; default: the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) host_path: Option<String>,
    /// `c`, `b`, `u` or `p`; default: as on the host.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// Major number; default: as on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) major: Option<i64>,
    /// Minor number; default: as on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) minor: Option<i64>,
    /// Mode bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file_mode: Option<u32>,
    /// Cgroup access: a combination of `r`, `w` and `m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) permissions: Option<String>,
    /// Owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) uid: Option<u32>,
    /// Group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gid: Option<u32>,
}

/// A mount of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Mount {
    /// Path on the host.
    pub(crate) host_path: String,
    /// Path in the container.
    pub(crate) container_path: String,
    /// Mount options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) options: Vec<String>,
    /// Mount type (since 0.4.0).
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
}

/// An OCI hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Hook {
    /// `createRuntime`, `createContainer`, `startContainer`, ...
    #[serde(rename = "hookName")]
    pub(crate) name: String,
    /// Program.
    pub(crate) path: String,
    /// Arguments, the program's name first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) args: Vec<String>,
    /// Environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) env: Vec<String>,
    /// Time limit in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<u32>,
}

/// The devices defined by the specs of a folder.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    specs: Vec<Spec>,
    /// Indices of spec and device, by qualified name.
    devices: BTreeMap<String, (usize, usize)>,
    /// Unusable specs with the reason, and devices that two specs define.
    pub(crate) problems: Vec<String>,
}

/// A container cannot be created; the text is that of container runtimes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("CDI device injection failed: unresolvable CDI devices {}{}", names.join(", "), hint(problems))]
pub(crate) struct UnresolvableDevices {
    /// Names that no spec defines.
    pub(crate) names: Vec<String>,
    /// Problems of the specs found.
    pub(crate) problems: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    cdi_version: String,
    kind: String,
    #[serde(default, rename = "annotations")]
    _annotations: BTreeMap<String, String>,
    devices: Vec<Device>,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Device {
    name: String,
    #[serde(default, rename = "annotations")]
    _annotations: BTreeMap<String, String>,
    container_edits: Edits,
}

impl Catalogue {
    /// Reads every spec of `folder`; a missing folder has none.
    pub(crate) fn read(folder: &Path) -> std::io::Result<Self> {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(e) => return Err(e),
        };
        let mut paths: Vec<PathBuf> = entries
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| is_spec(path))
            .collect();
        paths.sort();
        let mut texts = Vec::new();
        for path in paths {
            match std::fs::read_to_string(&path) {
                Ok(text) => texts.push((path, text)),
                // Removed between listing and reading.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Self::parse(texts.iter().map(|(path, text)| (path.as_path(), text.as_str()))))
    }

    /// Builds the catalogue from specs given as path and text.
    pub(crate) fn parse<'a>(texts: impl IntoIterator<Item = (&'a Path, &'a str)>) -> Self {
        let mut catalogue = Self::default();
        let mut conflicts = BTreeSet::new();
        for (path, text) in texts {
            let spec = match parse_spec(path, text) {
                Ok(spec) => spec,
                Err(problem) => {
                    catalogue.problems.push(format!("{}: {problem}", path.display()));
                    continue;
                }
            };
            for (index, device) in spec.devices.iter().enumerate() {
                let name = format!("{}={}", spec.kind, device.name);
                if catalogue.devices.insert(name.clone(), (catalogue.specs.len(), index)).is_some()
                {
                    conflicts.insert(name);
                }
            }
            catalogue.specs.push(spec);
        }
        for name in conflicts {
            catalogue.devices.remove(&name);
            catalogue.problems.push(format!("{name} is defined by more than one spec"));
        }
        catalogue
    }

    /// The merged edits of `names` in order; duplicates count once.
    pub(crate) fn resolve(&self, names: &[String]) -> Result<Edits, UnresolvableDevices> {
        let mut missing = Vec::new();
        let mut merged = Edits::default();
        let (mut seen, mut specs) = (BTreeSet::new(), BTreeSet::new());
        for name in names.iter().filter(|name| seen.insert(name.as_str())) {
            let Some(&(spec, device)) = self.devices.get(name) else {
                missing.push(name.clone());
                continue;
            };
            let Some(spec_found) = self.specs.get(spec) else { continue };
            if specs.insert(spec) {
                merged.apply(&spec_found.container_edits);
            }
            if let Some(device) = spec_found.devices.get(device) {
                merged.apply(&device.container_edits);
            }
        }
        if missing.is_empty() {
            Ok(merged)
        } else {
            Err(UnresolvableDevices { names: missing, problems: self.problems.clone() })
        }
    }
}

impl Edits {
    /// Adds `other`: a later variable, device node or mount replaces an earlier one with the same
    /// name.
    pub(crate) fn apply(&mut self, other: &Self) {
        for variable in &other.env {
            let name = |text: &str| text.split('=').next().unwrap_or_default().to_owned();
            replace_or_push(&mut self.env, variable, |old| name(old) == name(variable));
        }
        for node in &other.device_nodes {
            replace_or_push(&mut self.device_nodes, node, |old| old.path == node.path);
        }
        for mount in &other.mounts {
            replace_or_push(&mut self.mounts, mount, |old| {
                old.container_path == mount.container_path
            });
        }
        self.hooks.extend(other.hooks.iter().cloned());
        for gid in &other.additional_gids {
            replace_or_push(&mut self.additional_gids, gid, |old| old == gid);
        }
        self.net_devices.extend(other.net_devices.iter().cloned());
        if other.intel_rdt.is_some() {
            self.intel_rdt.clone_from(&other.intel_rdt);
        }
    }
}

fn replace_or_push<T: Clone>(list: &mut Vec<T>, item: &T, same: impl Fn(&T) -> bool) {
    match list.iter_mut().find(|old| same(old)) {
        Some(old) => *old = item.clone(),
        None => list.push(item.clone()),
    }
}

fn is_spec(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
    // Runtimes compare extensions case-sensitively.
    !hidden && matches!(path.extension().and_then(|e| e.to_str()), Some("json" | "yaml" | "yml"))
}

fn parse_spec(path: &Path, text: &str) -> Result<Spec, String> {
    let spec: Spec = if path.extension().is_some_and(|e| e == "json") {
        serde_json::from_str(text).map_err(|e| e.to_string())?
    } else {
        serde_saphyr::from_str(text).map_err(|e| e.to_string())?
    };
    if !spec.kind.contains('/') {
        return Err(format!("kind {:?} is not vendor/class", spec.kind));
    }
    if spec.devices.is_empty() {
        return Err("the spec defines no device".to_owned());
    }
    let all =
        || spec.devices.iter().map(|device| &device.container_edits).chain([&spec.container_edits]);
    let needed = [
        ((1, 1), all().any(|edits| !edits.net_devices.is_empty()), "netDevices"),
        ((0, 7), all().any(|edits| !edits.additional_gids.is_empty()), "additionalGids"),
        ((0, 5), all().flat_map(|e| &e.device_nodes).any(|n| n.host_path.is_some()), "hostPath"),
        ((0, 4), all().flat_map(|e| &e.mounts).any(|mount| mount.kind.is_some()), "mount type"),
    ];
    let version = version(&spec.cdi_version)
        .ok_or_else(|| format!("cdiVersion {:?} is not a version", spec.cdi_version))?;
    match needed.iter().find(|(least, used, _)| *used && version < *least) {
        Some(((major, minor), _, what)) => {
            Err(format!("{what} needs cdiVersion {major}.{minor}.0, not {}", spec.cdi_version))
        }
        None => Ok(spec),
    }
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn hint(problems: &[String]) -> String {
    if problems.is_empty() {
        String::new()
    } else {
        format!(" (unusable specs: {})", problems.join("; "))
    }
}

#[cfg(test)]
mod tests;
