//! Keeps the labels as GPUs and settings are.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use octavo_api::plugin_config::{PluginConfig, RewriteInterval};
use octavo_kube_io::Backoff;
use tokio::sync::watch;

use super::machine::MachineFacts;
use super::output::{LabelWriter, Target, WriteError};
use super::values::{self, Labels};
use crate::config::{FeatureLabels, Mode, NodeConfig};
use crate::device_plugin::PluginInput;
use crate::monitor::Snapshot;
use crate::pause::sleep_for;
use crate::problems::{self, Problems};

/// Delay after a refusal: the program that owns the labels may go, or the right may come.
const REFUSAL_INTERVAL: Duration = Duration::from_mins(5);
/// Delay after another failure: at first, and at most.
const RETRY: Duration = Duration::from_millis(500);
const MAX_RETRY: Duration = Duration::from_secs(30);

/// Keeps the labels of a node.
pub(crate) struct LabelFollower {
    pub(crate) config: Arc<NodeConfig>,
    pub(crate) snapshots: watch::Receiver<Snapshot>,
    pub(crate) configs: watch::Receiver<Option<PluginConfig>>,
    pub(crate) input: watch::Receiver<PluginInput>,
    /// The mode in which the node is.
    pub(crate) reached: watch::Receiver<Option<Mode>>,
    pub(crate) writer: LabelWriter,
    pub(crate) problems: watch::Sender<Problems>,
}

/// What is written where.
#[derive(Clone, PartialEq, Eq)]
struct Written {
    target: Target,
    labels: Labels,
    rewrite: RewriteInterval,
}

impl LabelFollower {
    /// Keeps the labels forever. They are left alone until the GPUs are read, and removed from a node that offers nothing.
    pub(crate) async fn run(mut self) {
        let started = Timestamp::now().as_second();
        let mut backoff = Backoff::new(RETRY, MAX_RETRY);
        let mut written: Option<Written> = None;
        loop {
            let mut wanted = self.wanted(started).or_else(|| written.clone());
            if *self.reached.borrow_and_update() == Some(Mode::None)
                && let Some(wanted) = &mut wanted
            {
                wanted.labels = Labels::new();
            }
            let (mut pause, mut problem) = (None, None);
            if wanted != written {
                match self.write(written.as_ref(), wanted.as_ref()).await {
                    Ok(()) => {
                        backoff.reset();
                        written = wanted;
                    }
                    Err(error) => {
                        let retry = backoff.next_delay();
                        pause = Some(if error.lasts() { REFUSAL_INTERVAL } else { retry });
                        problem = Some(error.to_string());
                    }
                }
            }
            self.set_problem(problem);
            let is_written = pause.is_none();
            let pause = pause.or_else(|| written.as_ref().and_then(Written::look_interval));
            tokio::select! {
                changed = self.snapshots.changed() => if changed.is_err() { return },
                Ok(()) = self.configs.changed() => {}
                Ok(()) = self.input.changed() => {}
                Ok(()) = self.reached.changed() => {}
                () = sleep_for(pause) => if is_written && self.is_lost(written.as_ref()).await {
                    written = None;
                }
            }
        }
    }

    /// The labels as they should be. `None`: that is not known yet, or there are none.
    fn wanted(&mut self, started: i64) -> Option<Written> {
        let snapshot = self.snapshots.borrow_and_update().clone();
        let config = self.configs.borrow_and_update().clone();
        let input = self.input.borrow_and_update().clone();
        let (inventory, mut config) = (snapshot.inventory?, config?);
        if !input.is_known {
            return None;
        }
        if !input.is_offering {
            // Claims share GPUs in other ways.
            config.sharing = None;
        }
        let file = &config.labels.machine_type_file;
        let sys_root = &self.config.paths.sys_root;
        let machine = MachineFacts::read(sys_root, file, &inventory.gpus, started);
        let target = match self.config.feature_labels {
            FeatureLabels::None => return None,
            FeatureLabels::Node => Target::Node,
            FeatureLabels::Config if config.labels.use_node_feature_api => Target::NodeFeature,
            FeatureLabels::Config => Target::File(PathBuf::from(&config.labels.output_file)),
        };
        let labels = values::labels(&inventory, &config, &machine);
        Some(Written { target, labels, rewrite: config.labels.rewrite })
    }

    async fn write(
        &self,
        written: Option<&Written>,
        wanted: Option<&Written>,
    ) -> Result<(), WriteError> {
        let Some(wanted) = wanted else { return Ok(()) };
        if wanted.labels.is_empty() {
            self.writer.remove(&wanted.target).await?;
        } else {
            self.writer.write(&wanted.target, &wanted.labels).await?;
        }
        match written.filter(|written| written.target != wanted.target) {
            Some(written) => self.writer.remove(&written.target).await,
            None => Ok(()),
        }
    }

    /// Whether the labels were removed or changed by others.
    async fn is_lost(&self, written: Option<&Written>) -> bool {
        let Some(Written { target, labels, .. }) = written.filter(|it| !it.labels.is_empty())
        else {
            return false;
        };
        matches!(self.writer.has(target, labels).await, Ok(false))
    }

    fn set_problem(&self, problem: Option<String>) {
        let mut problems = Problems::default();
        if let Some(note) = problem {
            problems.add("FeatureLabelsNotWritten", note);
        }
        problems::set(&self.problems, problems);
    }
}

impl Written {
    /// Interval of looks whether the labels are there.
    fn look_interval(&self) -> Option<Duration> {
        match (&self.target, self.rewrite) {
            // Nothing but a person removes a label of the Node.
            (Target::Node, _) | (_, RewriteInterval::Never) => None,
            (_, RewriteInterval::Every(interval)) => Some(interval),
        }
    }
}

#[cfg(test)]
mod tests;
