//! Fields of config files, and whether Octavo serves each: the table of docs/operator.md.

use octavo_api::plugin_config::{self, Overrides};
use octavo_api::{config::ConfigError, mig_config};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Whether Octavo serves a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Served {
    /// As NVIDIA's program does.
    Same,
    /// As NVIDIA's program does, and more.
    Better,
    /// It may stay in the file, and changes nothing.
    NoEffect,
    /// It must be changed first.
    NotServed,
}

/// A field of a config, and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldPlan {
    /// Its path, such as `flags.migStrategy`.
    pub field: String,
    /// Whether it is served.
    pub served: Served,
    /// Why, or what is to know.
    pub reason: String,
}

const AS_PLUGIN: &str = "as NVIDIA's device plugin";
const AS_LABELS: &str = "as NVIDIA's GPU feature discovery, where agent.featureLabels is not none";
const AS_CONFIG: &str = "as NVIDIA's GPU feature discovery, where agent.featureLabels is config";

/// Fields that are served, by the begin of their path. The first that fits counts. What has no effect is known to the parser.
const TABLE: [(&str, Served, &str); 18] = [
    ("flags.migStrategy", Served::Same, AS_PLUGIN),
    ("flags.plugin.deviceListStrategy", Served::Same, AS_PLUGIN),
    ("flags.plugin.deviceIDStrategy", Served::Same, AS_PLUGIN),
    ("flags.plugin.passDeviceSpecs", Served::Same, AS_PLUGIN),
    ("flags.plugin.cdiAnnotationPrefix", Served::Same, AS_PLUGIN),
    (
        "flags.plugin.sharedDevicesAllocationPolicy",
        Served::Better,
        "MIG devices are spread over GPUs or packed, too",
    ),
    ("flags.gdrcopyEnabled", Served::Same, AS_PLUGIN),
    ("flags.gdsEnabled", Served::Same, AS_PLUGIN),
    ("flags.mofedEnabled", Served::Same, AS_PLUGIN),
    ("flags.useNodeFeatureAPI", Served::Same, AS_CONFIG),
    ("flags.gfd.noTimestamp", Served::Same, AS_LABELS),
    ("flags.gfd.machineTypeFile", Served::Same, AS_LABELS),
    ("flags.gfd.outputFile", Served::Same, AS_CONFIG),
    ("flags.gfd.sleepInterval", Served::Same, AS_CONFIG),
    (
        "sharing.timeSlicing",
        Served::Better,
        "all replicas of a GPU that is not well are withdrawn, and come back with it",
    ),
    (
        "sharing.mps",
        Served::Better,
        "MIG devices have daemons, too, and a daemon with programs is not restarted for a change",
    ),
    ("imex", Served::Same, AS_PLUGIN),
    ("flags.mpsRoot", Served::NoEffect, "the files of MPS daemons are in /run/octavo/mps"),
];

/// The fields of a file of the device plugin, and of variables and flags that come before it.
pub(super) fn of_plugin(file: Option<&Value>, overrides: &Overrides) -> Vec<FieldPlan> {
    let mut paths = Vec::new();
    if let Some(file) = file {
        leaves(file, "", &mut paths);
    }
    let is_set = |names: &[&str], of: &std::collections::BTreeMap<String, String>| {
        names.iter().any(|name| of.get(*name).is_some_and(|text| !text.is_empty()))
    };
    for setting in plugin_config::SETTINGS {
        let is_overridden = is_set(setting.variables, &overrides.variables)
            || is_set(setting.flags, &overrides.flags);
        if is_overridden && !paths.iter().any(|path| path == setting.field) {
            paths.push(setting.field.to_owned());
        }
    }
    let decoded = match plugin_config::decode(file, overrides) {
        Ok(decoded) => decoded,
        Err(error) => return vec![unusable(error)],
    };
    // Each begins with the field.
    let warnings = decoded.warnings.iter().map(|warning| {
        let (field, reason) = warning.split_once(' ').unwrap_or((warning, ""));
        // What follows is the reason; the rest is what `NoEffect` says already.
        let rest = reason.strip_prefix("has no effect").unwrap_or(reason);
        let reason = rest.trim_start_matches([':', ',', ' ']);
        FieldPlan { field: field.to_owned(), served: Served::NoEffect, reason: reason.to_owned() }
    });
    let mut fields: Vec<FieldPlan> = warnings.collect();
    for path in paths {
        let row = TABLE.iter().find(|(begin, ..)| path.starts_with(begin));
        let is_known = fields.iter().any(|field| field.field == path);
        if let Some((_, served, reason)) = row.filter(|_| !is_known) {
            fields.push(FieldPlan { field: path, served: *served, reason: (*reason).to_owned() });
        }
    }
    fields.sort_by(|one, other| one.field.cmp(&other.field));
    fields
}

/// The layouts of a file of mig-parted, each as a field.
pub(super) fn of_mig(file: &Value) -> Vec<FieldPlan> {
    let layouts = file.get("mig-configs").and_then(Value::as_object);
    let names = layouts.into_iter().flatten();
    let alone = |name: &String, layout: &Value| {
        let mut layouts = Map::new();
        layouts.insert(name.clone(), layout.clone());
        let version = file.get("version").cloned().unwrap_or_default();
        mig_config::decode(&json!({"version": version, "mig-configs": layouts}))
    };
    let mut fields: Vec<FieldPlan> = names
        .map(|(name, layout)| match alone(name, layout) {
            Ok(_) => FieldPlan {
                field: format!("mig-configs.{name}"),
                served: Served::Better,
                reason: "only GPUs that differ from it change, and the rest keeps running"
                    .to_owned(),
            },
            Err(error) => {
                let FieldPlan { field, served, reason } = unusable(error);
                let reason = format!("{reason}; take it out, since the file counts as a whole");
                FieldPlan { field, served, reason }
            }
        })
        .collect();
    if fields.iter().all(|field| field.served != Served::NotServed)
        && let Err(error) = mig_config::decode(file)
    {
        fields.push(unusable(error));
    }
    fields
}

fn unusable(error: ConfigError) -> FieldPlan {
    let ConfigError { path, problem } = error;
    let field = if path.is_empty() { "(root)".to_owned() } else { path };
    FieldPlan { field, served: Served::NotServed, reason: format!("it cannot be used: {problem}") }
}

/// The paths of all fields that have a value: lists count as one.
fn leaves(value: &Value, path: &str, paths: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(value, &path, paths);
            }
        }
        Value::Null => {}
        _ => paths.push(path.to_owned()),
    }
}
