//! How NVIDIA's device plugin gives containers their devices, and which value of Octavo's chart keeps it.

use octavo_api::plugin_config::SETTINGS;
use serde_json::Value;

use super::cluster::Cluster;
use super::components::Component;
use super::configs::{ConfigForm, ConfigPlan};
use super::fields::{FieldPlan, Served};
use super::object::name;
use super::settings::{merged, settings, text_of};

/// The field of the device plugin's file.
pub(super) const FIELD: &str = "flags.plugin.deviceListStrategy";
/// NVIDIA's default. Octavo's is `cdi-cri`.
const NVIDIAS_DEFAULT: &str = "envvar";

/// What decides how NVIDIA's device plugin gives containers their devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeviceList {
    /// Nothing: there is no such plugin.
    Nothing,
    /// A variable or a flag with this value, which comes before files.
    Set(String),
    /// NVIDIA's default, since neither a variable nor a file says anything.
    Default,
    /// The files of nodes; of those that say nothing, NVIDIA's default.
    Files,
}

impl DeviceList {
    /// What decides in a cluster with these config files.
    pub(super) fn of(cluster: &Cluster, files: &[ConfigPlan]) -> Self {
        let plugins = cluster.components().filter(|(found, _)| *found == Component::DevicePlugin);
        let mut plugins = plugins.peekable();
        if plugins.peek().is_none() {
            return Self::Nothing;
        }
        let settings = merged(plugins.map(|(_, object)| settings(object)));
        let setting = SETTINGS.iter().find(|setting| setting.field == FIELD);
        match setting.and_then(|setting| text_of(&settings, setting)) {
            Some(value) => Self::Set(value.to_owned()),
            None if files.iter().any(|file| file.is_used() && says_it(file)) => Self::Files,
            None => Self::Default,
        }
    }

    /// The value that keeps it, as a flag of Octavo's device plugin.
    pub(super) fn flag(&self) -> Option<&str> {
        match self {
            Self::Set(value) => Some(value),
            Self::Default => Some(NVIDIAS_DEFAULT),
            Self::Nothing | Self::Files => None,
        }
    }

    /// The line about it among the settings of NVIDIA's device plugin, if the field's own does not say it.
    pub(super) fn field(&self) -> Option<FieldPlan> {
        let begin = match self {
            Self::Set(value) if value == NVIDIAS_DEFAULT => "",
            Self::Default => "it is not set, and NVIDIA's default is envvar; ",
            Self::Nothing | Self::Set(_) | Self::Files => return None,
        };
        let reason = format!(
            "{begin}pods see NVIDIA_VISIBLE_DEVICES, and NVIDIA's runtime gives them the devices; \
             agent.devicePlugin.flags.device-list-strategy=envvar keeps it; \
             Octavo's default is cdi-cri, by which pods get devices without NVIDIA's runtime"
        );
        Some(FieldPlan { field: FIELD.to_owned(), served: Served::Same, reason })
    }

    /// What stays for the pods of a node in the mode `device-plugin`.
    pub(super) fn kept(&self) -> Option<String> {
        match self.flag()? {
            NVIDIAS_DEFAULT => Some(
                "pods see NVIDIA_VISIBLE_DEVICES, and NVIDIA's runtime gives them the devices \
                 (device-list-strategy=envvar)"
                    .to_owned(),
            ),
            value => Some(format!("how pods get their devices (device-list-strategy={value})")),
        }
    }

    /// What changes for the pods of a node in the mode `device-plugin`: its file says nothing, and files of other nodes do.
    pub(super) fn changed(&self, node: &Value, configs: &[ConfigPlan]) -> Option<String> {
        let has_it = |file: &ConfigPlan| file.used_by.iter().any(|user| user == name(node));
        if *self != Self::Files || configs.iter().any(|file| has_it(file) && says_it(file)) {
            return None;
        }
        let line = "pods get their devices by CDI (cdi-cri), and see NVIDIA_VISIBLE_DEVICES=void; \
                    deviceListStrategy: envvar in the node's config file keeps NVIDIA's default";
        Some(line.to_owned())
    }
}

/// Whether a config file has the field.
fn says_it(file: &ConfigPlan) -> bool {
    file.form == ConfigForm::DevicePlugin && file.fields.iter().any(|field| field.field == FIELD)
}
