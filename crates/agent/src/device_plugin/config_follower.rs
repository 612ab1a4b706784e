//! The present settings of a node's device plugin and labels.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use octavo_api::plugin_config::{Decoded, LabelSettings, PluginConfig, SETTINGS};
use tokio::sync::watch;

use super::PluginInput;
use super::config_source;
use crate::config::{FeatureLabels, NodeConfig};
use crate::pause::sleep_for;
use crate::problems::{self, Problems};

/// The folder that node feature discovery reads.
const FEATURES_FOLDER: &str = "/etc/kubernetes/node-feature-discovery/features.d";

/// Interval of looks at mounted config files, whose changes nothing tells. The kubelet itself takes up to a minute to mount one.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Follows the config files of a node, and its label that chooses one.
pub(crate) struct ConfigFollower {
    pub(crate) config: Arc<NodeConfig>,
    pub(crate) input: watch::Receiver<PluginInput>,
    pub(crate) configs: watch::Sender<Option<PluginConfig>>,
    pub(crate) problems: watch::Sender<Problems>,
}

impl ConfigFollower {
    /// Keeps the settings up to date while something uses them, forever. Those that cannot be used leave the last good ones in place.
    pub(crate) async fn run(mut self) {
        loop {
            let PluginInput { is_offering, label, is_known } =
                self.input.borrow_and_update().clone();
            let has_labels = self.config.feature_labels != FeatureLabels::None;
            let is_used = is_known && (is_offering || has_labels);
            let mut problems = Problems::default();
            if is_used && let Some(config) = self.read(label.as_deref(), &mut problems) {
                self.configs.send_if_modified(|old| old.replace(config.clone()) != Some(config));
            }
            problems::set(&self.problems, problems);
            let has_files = self.config.device_plugin.config_folder.is_some();
            let look = (is_used && has_files).then_some(LOOK_INTERVAL);
            tokio::select! {
                changed = self.input.changed() => if changed.is_err() { return },
                () = sleep_for(look) => {}
            }
        }
    }

    /// Reads the settings. `None`: they cannot be used.
    fn read(&self, label: Option<&str>, problems: &mut Problems) -> Option<PluginConfig> {
        let invalid = "PluginConfigInvalid";
        match config_source::read(&self.config.device_plugin, label, variables()) {
            Ok(Decoded { config, mut warnings }) => {
                warnings.extend(self.without_effect(&config).map(str::to_owned));
                if !warnings.is_empty() {
                    problems.add("PluginConfigWithoutEffect", warnings.join("; "));
                }
                if let Some(note) = self.unusual_file(&config) {
                    problems.add(invalid, note);
                    return None;
                }
                Some(config)
            }
            Err(error) => {
                problems.add(invalid, error.to_string());
                None
            }
        }
    }

    /// Why the file with the labels is refused: the agent may write elsewhere, where such a file would do harm.
    fn unusual_file(&self, config: &PluginConfig) -> Option<String> {
        let is_file = self.config.feature_labels == FeatureLabels::Config
            && !config.labels.use_node_feature_api;
        let file = Path::new(&config.labels.output_file);
        let is_there = file.parent() == Some(Path::new(FEATURES_FOLDER))
            && file.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.'));
        (is_file && !is_there).then(|| {
            format!(
                "flags.gfd.outputFile is {}, and must be a file in {FEATURES_FOLDER}",
                file.display()
            )
        })
    }

    /// Settings that the agent's own settings make void.
    fn without_effect(&self, config: &PluginConfig) -> impl Iterator<Item = &'static str> {
        let defaults = PluginConfig::default();
        let own = LabelSettings {
            no_timestamp: config.labels.no_timestamp,
            machine_type_file: config.labels.machine_type_file.clone(),
            ..defaults.labels.clone()
        };
        let labels = match self.config.feature_labels {
            FeatureLabels::None if config.labels != defaults.labels => {
                Some("flags.gfd and flags.useNodeFeatureAPI have no effect: featureLabels is none")
            }
            FeatureLabels::Node if config.labels != own => Some(
                "flags.useNodeFeatureAPI, flags.gfd.outputFile and flags.gfd.sleepInterval have no effect: featureLabels is node",
            ),
            _ => None,
        };
        let mps = (config.mps_root != defaults.mps_root)
            .then_some("flags.mpsRoot has no effect: files of MPS daemons are in octavo/mps of the agent's runRoot");
        labels.into_iter().chain(mps)
    }
}

/// The environment variables that NVIDIA's programs read.
fn variables() -> BTreeMap<String, String> {
    let names = SETTINGS.iter().flat_map(|setting| setting.variables);
    names.filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect()
}
