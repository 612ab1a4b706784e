//! The tasks of what a node offers: its mode, its device plugin, its static MIG devices and its labels.
//!
//! ```text
//! labels of the node --> mode -----+--> whether slices have devices
//!                                  +--> device plugin's offer --> sockets
//!                                  |         +--> MPS daemons of shared resources
//! config files ----> settings -----+--> labels of GPU feature discovery
//! labels of the node --> layout ------> MIG devices, and parts of GPUs that are not offered meanwhile
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use kube::Client;
use octavo_kube_io::events::Events;
use tokio::sync::watch;

use super::mig_manager::MigManager;
use super::node::NodeAgent;
use super::node_mode::{NodeMode, Offering};
use super::publish_loop::PublishInputs;
use super::serving::ActivePeriod;
use crate::claims::Claims;
use crate::config::FeatureLabels;
use crate::device_plugin::{
    self, AllocationCounter, ConfigFollower, Follower, MpsOwner, PluginDaemons, PluginInput,
};
use crate::feature_labels::{LabelFollower, LabelWriter};
use crate::mig_layout::ClosedParts;
use crate::mps::MpsDaemons;
use crate::problems::{self, Problems};

impl NodeAgent {
    /// Starts them. Claims are served at once where nothing of a device plugin has a GPU. Returns what decides which devices are in slices.
    pub(super) async fn start_offers(
        &self,
        claims: &Claims,
        client: &Client,
        events: &Events,
        period: &ActivePeriod,
    ) -> PublishInputs {
        let problems = || {
            let (problems, changes) = watch::channel(Problems::default());
            let node = self.config.node_name.clone();
            let metrics = Arc::clone(&self.shared.metrics);
            period.spawn(problems::report(node, events.clone(), metrics, changes));
            problems
        };
        let nothing = self.config.mig_manager.is_none().then(ClosedParts::default);
        let (closed, closed_changes) = watch::channel(nothing);
        let (slices, permitted) = watch::channel(None);
        let (plugin, input) = watch::channel(PluginInput::default());
        let (wanted_daemons, daemons) = watch::channel(None);
        let (daemon_sender, daemon_state) = watch::channel(PluginDaemons::default());
        let owner = MpsOwner {
            paths: self.config.paths.clone(),
            claims: claims.clone(),
            daemons: MpsDaemons::of(&self.config.paths),
            wanted: daemons,
            state: daemon_sender,
            problems: problems(),
        };
        period.spawn(owner.run());
        let (offers, listed) = watch::channel(Arc::default());
        let mode = NodeMode {
            config: Arc::clone(&self.config),
            client: client.clone(),
            claims: claims.clone(),
            offering: Offering {
                slices,
                plugin,
                listed: listed.clone(),
                listed_at: None,
                daemons: daemon_state.clone(),
            },
            reached: self.reached.clone(),
            problems: problems(),
        };
        self.reached.send_replace(None);
        mode.begin().await;
        self.count_mode(period);
        period.spawn(mode.follow(self.settings.subscribe()));
        let (configs, config_changes) = watch::channel(None);
        let follower = ConfigFollower {
            config: Arc::clone(&self.config),
            input: input.clone(),
            configs,
            problems: problems(),
        };
        period.spawn(follower.run());
        let follower = Follower {
            config: Arc::clone(&self.config),
            snapshots: self.snapshots.clone(),
            configs: config_changes.clone(),
            input: input.clone(),
            closed: closed_changes.clone(),
            daemons: wanted_daemons,
            daemon_state,
            offers,
            problems: problems(),
            metrics: Arc::clone(&self.shared.metrics.plugin),
        };
        period.spawn(follower.run());
        let folder = self.config.paths.device_plugin_root.clone();
        let unserved = problems();
        let counter = AllocationCounter {
            node: self.config.node_name.clone(),
            metrics: Arc::clone(&self.shared.metrics.plugin),
        };
        let stop = period.stop.clone();
        period.tasks.spawn(device_plugin::serve(folder, listed, unserved, counter, stop));
        let writer = LabelWriter::new(client.clone(), self.config.node_name.clone());
        if self.config.feature_labels == FeatureLabels::None {
            self.remove_former_labels(writer, period);
        } else {
            let follower = LabelFollower {
                config: Arc::clone(&self.config),
                snapshots: self.snapshots.clone(),
                configs: config_changes,
                input,
                reached: self.reached.subscribe(),
                writer,
                problems: problems(),
            };
            period.spawn(follower.run());
        }
        if let Some(settings) = self.config.mig_manager.clone() {
            let manager = MigManager {
                config: Arc::clone(&self.config),
                settings,
                client: client.clone(),
                claims: claims.clone(),
                snapshots: self.snapshots.clone(),
                reached: self.reached.subscribe(),
                closed,
                waker: self.waker.clone(),
                problems: problems(),
                last_name: String::new(),
                refused: BTreeMap::new(),
                closed_at: Instant::now(),
            };
            period.spawn(manager.follow(self.settings.subscribe()));
        }
        PublishInputs { slices: permitted, closed: closed_changes, shares: self.config.gpu_shares }
    }

    /// Shows the mode in the metrics.
    fn count_mode(&self, period: &ActivePeriod) {
        let (metrics, node) = (Arc::clone(&self.shared.metrics), self.config.node_name.clone());
        let mut reached = self.reached.subscribe();
        period.spawn(async move {
            loop {
                metrics.in_mode(&node, *reached.borrow_and_update());
                if reached.changed().await.is_err() {
                    return;
                }
            }
        });
    }

    /// Removes labels of GPU feature discovery that an agent with another setting wrote.
    fn remove_former_labels(&self, writer: LabelWriter, period: &ActivePeriod) {
        let mut settings = self.settings.subscribe();
        period.spawn(async move {
            let read = settings.wait_for(|read| read.as_ref().is_some_and(|read| read.is_read));
            if read.await.is_ok_and(|read| read.as_ref().is_some_and(|it| it.has_feature_labels)) {
                writer.remove_from_node().await;
            }
        });
    }
}
