//! Settings of NVIDIA's device plugin in the variables and arguments of its container.

use octavo_api::plugin_config::{Overrides, SETTINGS, Setting, SettingKind};
use serde_json::Value;

use super::object::{pod_spec, variables};
use crate::json::array;

/// The variables and flags of a `DaemonSet` that are settings of the device plugin.
pub(super) fn settings(object: &Value) -> Overrides {
    let mut settings = Overrides::default();
    let Some(spec) = pod_spec(object) else { return settings };
    for container in array(spec, "containers") {
        let is_setting = |name: &str| SETTINGS.iter().any(|it| it.variables.contains(&name));
        let found = variables(container).filter(|(name, _)| is_setting(name));
        settings.variables.extend(found.map(|(name, value)| (name.to_owned(), value.to_owned())));
        add_flags(container, &mut settings);
    }
    settings
}

/// Adds the flags of a container's command and arguments. A shell may have all of them in one text.
fn add_flags(container: &Value, settings: &mut Overrides) {
    let words = array(container, "command").iter().chain(array(container, "args"));
    let words = words.filter_map(Value::as_str).flat_map(str::split_whitespace);
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        let plain = word.trim_start_matches('-');
        let (name, value) =
            plain.split_once('=').map_or((plain, None), |(name, value)| (name, Some(value)));
        let setting = SETTINGS.iter().find(|setting| setting.flags.contains(&name));
        let Some(setting) = setting.filter(|_| plain != word) else { continue };
        let value = match value {
            Some(value) => value,
            None if setting.kind == SettingKind::Bool => "true",
            None => words.next_if(|next| !next.starts_with('-')).unwrap_or_default(),
        };
        // The kubelet puts a variable's value there, and the variable is read itself.
        if value.is_empty() || value.contains("$(") {
            continue;
        }
        let text = settings.flags.entry(name.to_owned()).or_default();
        let is_list = matches!(setting.kind, SettingKind::List | SettingKind::Numbers);
        if is_list && !text.is_empty() {
            text.push(',');
            text.push_str(value);
        } else {
            value.clone_into(text);
        }
    }
}

/// The text of a setting: a flag comes before a variable.
pub(super) fn text_of<'a>(settings: &'a Overrides, setting: &Setting) -> Option<&'a str> {
    let flag = setting.flags.iter().find_map(|name| settings.flags.get(*name));
    let text = flag.or_else(|| setting.variables.iter().find_map(|it| settings.variables.get(*it)));
    text.map(String::as_str)
}

/// The settings of several `DaemonSets`; of one that two of them have, the later counts.
pub(super) fn merged(all: impl Iterator<Item = Overrides>) -> Overrides {
    all.fold(Overrides::default(), |mut merged, one| {
        merged.flags.extend(one.flags);
        merged.variables.extend(one.variables);
        merged
    })
}
