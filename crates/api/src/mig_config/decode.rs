//! Decodes a file of layouts. Unknown fields are errors, as in mig-parted.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{LayoutEntry, MigLayout, MigLayouts};
use crate::config::ConfigError;
use crate::fields::{Fields, wrong_type};

const VERSION: &str = "v1";

/// Decodes a file.
///
/// # Errors
///
/// The first wrong field.
pub fn decode(file: &Value) -> Result<MigLayouts, ConfigError> {
    let mut root = Fields::of(file, "")?;
    let version = root.required_text("version")?;
    if version != VERSION {
        return Err(
            root.error("version", format!("{version:?} is not {VERSION}, the only version"))
        );
    }
    let configs = match root.value("mig-configs") {
        Some(Value::Object(configs)) if !configs.is_empty() => configs,
        Some(Value::Object(_)) | None => {
            return Err(root.error("mig-configs", "needs at least one layout".to_owned()));
        }
        Some(other) => return Err(wrong_type("mig-configs", "an object", other)),
    };
    root.end()?;
    let layouts = configs.iter().map(|(name, entries)| Ok((name.clone(), layout(name, entries)?)));
    layouts.collect()
}

fn layout(name: &str, value: &Value) -> Result<MigLayout, ConfigError> {
    let path = format!("mig-configs.{name}");
    let Value::Array(entries) = value else { return Err(wrong_type(&path, "a list", value)) };
    if entries.is_empty() {
        return Err(ConfigError { path, problem: "needs at least one entry".to_owned() });
    }
    let entries = entries
        .iter()
        .enumerate()
        .map(|(number, value)| entry(value, &format!("{path}[{number}]")))
        .collect::<Result<_, _>>()?;
    Ok(MigLayout { entries })
}

fn entry(value: &Value, path: &str) -> Result<LayoutEntry, ConfigError> {
    let mut fields = Fields::of(value, path)?;
    let device_ids = match fields.value("device-filter") {
        None => Vec::new(),
        // Both forms of no filter are those of mig-parted.
        Some(Value::String(text)) if text.is_empty() => Vec::new(),
        Some(Value::Array(ids)) => {
            ids.iter().map(|id| device_id(&fields, id)).collect::<Result<_, _>>()?
        }
        Some(id) => vec![device_id(&fields, id)?],
    };
    let gpus = match fields.value("devices") {
        None => {
            return Err(
                fields.error("devices", "is required: all, or a list of GPU indices".to_owned())
            );
        }
        Some(Value::String(text)) if text == "all" => None,
        Some(Value::Array(indices)) => Some(
            indices
                .iter()
                .map(|index| number(&fields.path("devices"), index))
                .collect::<Result<_, _>>()?,
        ),
        Some(other) => {
            return Err(fields
                .error("devices", format!("{other} is neither all nor a list of GPU indices")));
        }
    };
    let Some(is_enabled) = fields.bool("mig-enabled")? else {
        return Err(fields.error("mig-enabled", "is required".to_owned()));
    };
    let path = fields.path("mig-devices");
    let devices = match fields.value("mig-devices") {
        None => None,
        Some(Value::Object(devices)) => Some(profiles(devices, &path)?),
        Some(other) => return Err(wrong_type(&path, "an object", other)),
    };
    let devices = match (is_enabled, devices) {
        (true, None) => {
            return Err(fields.error(
                "mig-devices",
                "is required where mig-enabled is true; {} gives none".to_owned(),
            ));
        }
        (true, devices) => devices,
        (false, Some(devices)) if !devices.is_empty() => {
            return Err(fields.error(
                "mig-devices",
                "must be absent or empty where mig-enabled is false".to_owned(),
            ));
        }
        (false, _) => None,
    };
    fields.end()?;
    Ok(LayoutEntry { device_ids, gpus, devices })
}

/// A PCI device and vendor, such as `0x233010DE`.
fn device_id(fields: &Fields<'_>, value: &Value) -> Result<u32, ConfigError> {
    let id = value.as_str().and_then(|text| {
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
        u32::from_str_radix(digits, 16).ok()
    });
    id.ok_or_else(|| {
        let problem = format!("{value} is no PCI device and vendor, such as \"0x233010DE\"");
        fields.error("device-filter", problem)
    })
}

fn number(path: &str, value: &Value) -> Result<u32, ConfigError> {
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| ConfigError {
        path: path.to_owned(),
        problem: format!("{value} is not a number from 0 on"),
    })
}

fn profiles(
    devices: &Map<String, Value>,
    path: &str,
) -> Result<BTreeMap<String, u32>, ConfigError> {
    let mut found = BTreeMap::new();
    for (profile, count) in devices {
        let path = format!("{path}.{profile}");
        let problem = if !is_profile(profile) {
            Some("is no MIG profile, such as 1g.10gb or 1g.10gb+me")
        } else if profile.contains("c.") {
            Some("is a part of an instance; instances filled by one compute instance are served")
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(ConfigError { path, problem: problem.to_owned() });
        }
        match number(&path, count)? {
            0 => {}
            count => drop(found.insert(profile.clone(), count)),
        }
    }
    if found.is_empty() && !devices.is_empty() {
        let problem = "all counts are 0".to_owned();
        return Err(ConfigError { path: path.to_owned(), problem });
    }
    Ok(found)
}

/// Whether a text has the form of a profile's name: `[<n>c.]<n>g.<n>gb`, with attributes after `+` or `-`.
fn is_profile(text: &str) -> bool {
    let (size, attributes) = match text.find(['+', '-']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let is_number = |text: &str, unit: &str| {
        text.strip_suffix(unit).is_some_and(|number| number.parse::<u8>().is_ok_and(|it| it > 0))
    };
    let is_gigabytes = |text: &str| {
        text.strip_suffix("gb").is_some_and(|number| number.parse::<u16>().is_ok_and(|it| it > 0))
    };
    let is_size = match size.split('.').collect::<Vec<_>>().as_slice() {
        [slices, memory] => is_number(slices, "g") && is_gigabytes(memory),
        [compute, slices, memory] => {
            is_number(compute, "c") && is_number(slices, "g") && is_gigabytes(memory)
        }
        _ => false,
    };
    let is_attribute = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'.')
    };
    is_size && attributes.is_none_or(is_attribute)
}
