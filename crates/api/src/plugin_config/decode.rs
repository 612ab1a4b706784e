//! Decodes the file, with flags and variables written over it.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};

use super::overrides::Overrides;
use super::sharing;
use super::{
    AllocationPolicy, Decoded, DeviceIds, DeviceList, ExtraNodes, ImexChannel, LabelSettings,
    MigStrategy, PluginConfig, RewriteInterval, VERSION,
};
use crate::config::ConfigError;
use crate::fields::{Fields, wrong_type};

/// The defaults of NVIDIA's programs. That of the device list is CDI: NVIDIA's own, the variable, needs its container toolkit.
const CDI_ANNOTATION_PREFIX: &str = "cdi.k8s.io/";
const MPS_ROOT: &str = "/run/nvidia/mps";
const OUTPUT_FILE: &str = "/etc/kubernetes/node-feature-discovery/features.d/gfd";
const MACHINE_TYPE_FILE: &str = "/sys/class/dmi/id/product_name";
const SLEEP_INTERVAL: Duration = Duration::from_mins(1);

/// Fields that NVIDIA's programs need, and why they have no effect here.
const WITHOUT_EFFECT: [(&str, &str); 4] = [
    ("failOnInitError", "the agent waits for its driver, and says so in its readiness"),
    ("nvidiaDriverRoot", "the agent's setting driverRoot counts"),
    ("nvidiaDevRoot", "the agent finds device nodes by their number"),
    ("deviceDiscoveryStrategy", "the agent finds GPUs by NVIDIA's management library alone"),
];
const WITHOUT_EFFECT_IN_PLUGIN: [(&str, &str); 2] = [
    ("nvidiaCTKPath", "containers get the agent's own hooks"),
    ("containerDriverRoot", "the agent's setting driverRootSeen counts"),
];

/// Decodes a file, with flags and variables written over it. `None` stands for no file.
///
/// # Errors
///
/// The first field with a wrong value; an unknown version.
pub fn decode(file: Option<&Value>, overrides: &Overrides) -> Result<Decoded, ConfigError> {
    let mut object = match file {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(object)) => object.clone(),
        Some(other) => return Err(wrong_type("(root)", "an object", other)),
    };
    overrides.apply(&mut object)?;
    let value = Value::Object(object);
    let mut warnings = Vec::new();
    let mut root = Fields::of(&value, "")?;
    let version = root.text("version")?.filter(|version| !version.is_empty());
    if let Some(version) = version.filter(|version| *version != VERSION) {
        let problem = format!("{version:?} is not {VERSION}, the only version");
        return Err(root.error("version", problem));
    }
    match root.value("resources") {
        None => {}
        Some(Value::Object(resources)) => {
            let is_set = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
            if resources.values().any(is_set) {
                let warning = "resources has no effect, as in NVIDIA's plugin: names are fixed";
                warnings.push(warning.to_owned());
            }
        }
        Some(other) => return Err(wrong_type("resources", "an object", other)),
    }
    let sharing = sharing::decode(&mut root, &mut warnings)?;
    let imex = imex(&mut root, &mut warnings)?;
    let mut config = PluginConfig { sharing, imex, ..PluginConfig::default() };
    if let Some(flags) = root.object("flags")? {
        read_flags(flags, &mut config, &mut warnings)?;
    }
    warnings.extend(root.unknown());
    Ok(Decoded { config, warnings })
}

impl Default for PluginConfig {
    fn default() -> Self {
        Self {
            mig_strategy: MigStrategy::default(),
            device_lists: BTreeSet::from([DeviceList::CdiCri]),
            device_ids: DeviceIds::default(),
            pass_device_specs: false,
            cdi_annotation_prefix: CDI_ANNOTATION_PREFIX.to_owned(),
            allocation_policy: AllocationPolicy::default(),
            extra_nodes: BTreeSet::new(),
            mps_root: MPS_ROOT.to_owned(),
            sharing: None,
            imex: ImexChannel::default(),
            labels: LabelSettings::default(),
        }
    }
}

impl Default for LabelSettings {
    fn default() -> Self {
        Self {
            use_node_feature_api: true,
            no_timestamp: false,
            rewrite: RewriteInterval::Every(SLEEP_INTERVAL),
            output_file: OUTPUT_FILE.to_owned(),
            machine_type_file: MACHINE_TYPE_FILE.to_owned(),
        }
    }
}

fn read_flags(
    mut flags: Fields<'_>,
    config: &mut PluginConfig,
    warnings: &mut Vec<String>,
) -> Result<(), ConfigError> {
    let strategies = [
        ("none", MigStrategy::None),
        ("single", MigStrategy::Single),
        ("mixed", MigStrategy::Mixed),
    ];
    set(&mut config.mig_strategy, flags.word("migStrategy", &strategies)?);
    for (name, nodes) in [
        ("gdrcopyEnabled", ExtraNodes::Gdrcopy),
        ("gdsEnabled", ExtraNodes::Gds),
        ("mofedEnabled", ExtraNodes::Mofed),
    ] {
        if flags.bool(name)? == Some(true) {
            config.extra_nodes.insert(nodes);
        }
    }
    set(&mut config.labels.use_node_feature_api, flags.bool("useNodeFeatureAPI")?);
    set(&mut config.mps_root, folder(&mut flags, "mpsRoot")?);
    without_effect(&mut flags, &WITHOUT_EFFECT, warnings);
    if let Some(plugin) = flags.object("plugin")? {
        read_plugin(plugin, config, warnings)?;
    }
    if let Some(gfd) = flags.object("gfd")? {
        read_labels(gfd, &mut config.labels, warnings)?;
    }
    warnings.extend(flags.unknown());
    Ok(())
}

fn read_plugin(
    mut plugin: Fields<'_>,
    config: &mut PluginConfig,
    warnings: &mut Vec<String>,
) -> Result<(), ConfigError> {
    set(&mut config.pass_device_specs, plugin.bool("passDeviceSpecs")?);
    let ids = [("uuid", DeviceIds::Uuid), ("index", DeviceIds::Index)];
    set(&mut config.device_ids, plugin.word("deviceIDStrategy", &ids)?);
    let policies =
        [("distributed", AllocationPolicy::Distributed), ("packed", AllocationPolicy::Packed)];
    let policy = plugin.word("sharedDevicesAllocationPolicy", &policies)?;
    set(&mut config.allocation_policy, policy);
    let prefix = plugin.text("cdiAnnotationPrefix")?.filter(|prefix| !prefix.is_empty());
    set(&mut config.cdi_annotation_prefix, prefix.map(str::to_owned));
    if let Some(lists) = device_lists(&mut plugin)? {
        config.device_lists = lists;
    }
    without_effect(&mut plugin, &WITHOUT_EFFECT_IN_PLUGIN, warnings);
    warnings.extend(plugin.unknown());
    Ok(())
}

/// A text, or a list of texts.
fn device_lists(plugin: &mut Fields<'_>) -> Result<Option<BTreeSet<DeviceList>>, ConfigError> {
    const NAME: &str = "deviceListStrategy";
    let words = [
        ("envvar", DeviceList::Envvar),
        ("volume-mounts", DeviceList::VolumeMounts),
        ("cdi-annotations", DeviceList::CdiAnnotations),
        ("cdi-cri", DeviceList::CdiCri),
    ];
    let texts = match plugin.value(NAME) {
        None => return Ok(None),
        Some(Value::Array(list)) => list.iter().collect(),
        Some(value) => vec![value],
    };
    let mut lists = BTreeSet::new();
    for text in texts {
        let word = text.as_str().and_then(|text| words.iter().find(|(word, _)| *word == text));
        let Some((_, list)) = word else {
            let known = words.map(|(word, _)| word).join(", ");
            return Err(plugin.error(NAME, format!("{text} is not one of {known}")));
        };
        lists.insert(*list);
    }
    if lists.is_empty() {
        return Err(plugin.error(NAME, "is an empty list: no container would get a GPU".to_owned()));
    }
    Ok(Some(lists))
}

fn read_labels(
    mut gfd: Fields<'_>,
    labels: &mut LabelSettings,
    warnings: &mut Vec<String>,
) -> Result<(), ConfigError> {
    set(&mut labels.no_timestamp, gfd.bool("noTimestamp")?);
    set(&mut labels.output_file, folder(&mut gfd, "outputFile")?);
    set(&mut labels.machine_type_file, folder(&mut gfd, "machineTypeFile")?);
    set(&mut labels.rewrite, interval(&mut gfd, "sleepInterval")?);
    if gfd.bool("oneshot")? == Some(true) {
        let path = gfd.path("oneshot");
        warnings.push(format!("{path} has no effect: labels are kept while the agent runs"));
    }
    warnings.extend(gfd.unknown());
    Ok(())
}

fn imex(root: &mut Fields<'_>, warnings: &mut Vec<String>) -> Result<ImexChannel, ConfigError> {
    let Some(mut imex) = root.object("imex")? else { return Ok(ImexChannel::None) };
    let has_channel = match imex.value("channelIDs") {
        None => false,
        Some(Value::Array(ids)) if ids.is_empty() => false,
        Some(Value::Array(ids)) if ids.len() == 1 && ids[0].as_i64() == Some(0) => true,
        Some(other) => {
            return Err(imex.error("channelIDs", format!("must be [] or [0], but it is {other}")));
        }
    };
    let is_required = imex.bool("required")?.unwrap_or_default();
    warnings.extend(imex.unknown());
    Ok(match (has_channel, is_required) {
        (false, _) => ImexChannel::None,
        (true, false) => ImexChannel::IfPresent,
        (true, true) => ImexChannel::Required,
    })
}

fn set<T>(setting: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *setting = value;
    }
}

/// An absolute path.
fn folder(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<String>, ConfigError> {
    let Some(path) = fields.text(name)?.filter(|path| !path.is_empty()) else { return Ok(None) };
    if path.starts_with('/') {
        Ok(Some(path.to_owned()))
    } else {
        Err(fields.error(name, format!("{path:?} is not an absolute path")))
    }
}

/// Warns of fields that are set and have no effect.
fn without_effect(
    fields: &mut Fields<'_>,
    names: &[(&'static str, &str)],
    warnings: &mut Vec<String>,
) {
    for (name, reason) in names {
        if fields.value(name).is_some() {
            warnings.push(format!("{} has no effect: {reason}", fields.path(name)));
        }
    }
}

/// A duration in Go's notation or in nanoseconds, or `infinite`.
fn interval(
    fields: &mut Fields<'_>,
    name: &'static str,
) -> Result<Option<RewriteInterval>, ConfigError> {
    let found = match fields.value(name) {
        None => return Ok(None),
        Some(Value::String(text)) if text == "infinite" => Some(RewriteInterval::Never),
        Some(Value::String(text)) => go_duration(text).map(RewriteInterval::Every),
        Some(value) => value.as_u64().map(Duration::from_nanos).map(RewriteInterval::Every),
    };
    let problem = "is not a duration, such as 60s, 1m30s or infinite";
    found.map(Some).ok_or_else(|| fields.error(name, problem.to_owned()))
}

/// A duration without sign in the notation of Go: `1h2m3.5s`.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    if rest == "0" {
        return Some(total);
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|end| *end > 0)?;
        let (number, tail) = rest.split_at(end);
        let units = ["ms", "us", "µs", "ns", "h", "m", "s"];
        let unit = units.into_iter().find(|unit| tail.starts_with(unit))?;
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "ns" => 1e-9,
            _ => 1e-6,
        };
        let number: f64 = number.parse().ok()?;
        total = total.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = &tail[unit.len()..];
    }
    (!text.is_empty()).then_some(total)
}
