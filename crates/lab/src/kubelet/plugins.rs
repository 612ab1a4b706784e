//! The DRA plugins that are registered on a node.

pub(crate) mod calls;
mod dialer;
pub(crate) mod health;
pub(crate) mod registrar;
pub(crate) mod registration;
mod sockets;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

use dialer::{Connections, Dialer};

/// DRA service version used for a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DraVersion {
    /// `v1.DRAPlugin`.
    V1,
    /// `v1beta1.DRAPlugin`.
    V1Beta1,
}

/// Health service version used for a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HealthVersion {
    /// `v1.DRAResourceHealth`, if the plugin advertises it.
    V1,
    /// `v1alpha1.DRAResourceHealth`, tried on every other plugin.
    V1Alpha1,
}

/// A plugin's answer to `GetInfo`, evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PluginDescription {
    /// Name of the driver.
    pub(crate) driver: String,
    /// Socket of the DRA service.
    pub(crate) endpoint: PathBuf,
    /// DRA service to use.
    pub(crate) dra: DraVersion,
    /// Health service to use.
    pub(crate) health: HealthVersion,
}

/// A registered plugin.
#[derive(Debug)]
pub(crate) struct PluginInstance {
    /// Registration socket; its removal deregisters the instance.
    pub(crate) socket: PathBuf,
    /// The plugin's answer to `GetInfo`, evaluated.
    pub(crate) description: PluginDescription,
    /// Connection to the DRA socket; connects and reconnects on demand.
    pub(crate) channel: Channel,
    /// Number of open connections.
    connections: Connections,
    /// Cancelled when the instance is deregistered.
    pub(crate) deregistered: CancellationToken,
}

/// The plugins of a node. A driver may have several instances, for example during a rolling update.
/// As in the kubelet, calls go to the last registered instance with a connection. Without any
/// connection they go to the last registered instance. A killed instance leaves its registration
/// socket, so only the lost connection reveals its end.
#[derive(Debug)]
pub(crate) struct Plugins {
    instances: Mutex<BTreeMap<String, Vec<Arc<PluginInstance>>>>,
    changes: watch::Sender<u64>,
}

/// No plugin serves the driver.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("DRA driver {0} is not registered")]
pub(crate) struct NotRegistered(pub(crate) String);

/// A plugin could not be registered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AddError {
    /// Another instance uses the endpoint.
    #[error("endpoint {endpoint} already registered for DRA driver plugin {driver}")]
    EndpointTaken { driver: String, endpoint: String },
}

impl Plugins {
    /// No plugins.
    pub(crate) fn new() -> Self {
        Self { instances: Mutex::default(), changes: watch::Sender::new(0) }
    }

    /// Registers the plugin behind registration socket `socket`. `parent` is cancelled with the
    /// socket.
    pub(crate) fn add(
        &self,
        socket: &Path,
        description: PluginDescription,
        parent: &CancellationToken,
    ) -> Result<Arc<PluginInstance>, AddError> {
        let endpoint = description.endpoint.display().to_string();
        let mut instances = self.instances.lock().unwrap_or_else(PoisonError::into_inner);
        let of_driver = instances.entry(description.driver.clone()).or_default();
        // Instances whose sockets vanished during registration: no other code removes them.
        of_driver.retain(|old| !old.deregistered.is_cancelled());
        if of_driver.iter().any(|old| old.description.endpoint == description.endpoint) {
            return Err(AddError::EndpointTaken { driver: description.driver, endpoint });
        }
        let connections = Connections::default();
        let channel = dra_channel(&description.endpoint, connections.clone());
        let instance = Arc::new(PluginInstance {
            socket: socket.to_owned(),
            description,
            channel,
            connections,
            deregistered: parent.child_token(),
        });
        of_driver.push(Arc::clone(&instance));
        drop(instances);
        self.changes.send_modify(|version| *version += 1);
        Ok(instance)
    }

    /// Deregisters the plugin behind `socket`, if there is one.
    pub(crate) fn remove(&self, socket: &Path) -> Option<Arc<PluginInstance>> {
        let mut removed = None;
        let mut instances = self.instances.lock().unwrap_or_else(PoisonError::into_inner);
        for of_driver in instances.values_mut() {
            if let Some(index) = of_driver.iter().position(|old| old.socket == socket) {
                removed = Some(of_driver.remove(index));
            }
        }
        instances.retain(|_, of_driver| !of_driver.is_empty());
        drop(instances);
        if let Some(instance) = &removed {
            instance.deregistered.cancel();
            self.changes.send_modify(|version| *version += 1);
        }
        removed
    }

    /// The instance to call for `driver`.
    pub(crate) fn get(&self, driver: &str) -> Result<Arc<PluginInstance>, NotRegistered> {
        let instances = self.instances.lock().unwrap_or_else(PoisonError::into_inner);
        let here = |instance: &&Arc<PluginInstance>| !instance.deregistered.is_cancelled();
        let newest_first = || instances.get(driver).into_iter().flatten().rev().filter(here);
        let connected = newest_first().find(|instance| instance.connections.any());
        let chosen = connected.or_else(|| newest_first().next());
        chosen.cloned().ok_or_else(|| NotRegistered(driver.to_owned()))
    }

    /// Changes with every registration and deregistration.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// A connection to a DRA socket with the authority that the kubelet's client sends.
fn dra_channel(endpoint: &Path, connections: Connections) -> Channel {
    Endpoint::from_static("http://localhost")
        // A plugin's messages are small; the default buffers would reserve memory for every node.
        .buffer_size(8)
        .connect_with_connector_lazy(Dialer::new(endpoint.to_owned(), connections))
}

#[cfg(test)]
mod tests;
