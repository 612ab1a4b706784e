//! What keeps a node in an NVLink fabric from serving claims of domains, as far as its files show it.

use std::sync::Arc;

use octavo_api::imex::ImexServices;
use octavo_api::names::{NO_IMEX_CHANNELS, NO_IMEX_CONTROL, NO_IMEX_SERVICE};
use octavo_gpu::CharDevices;

use super::spec::CHANNELS;
use super::{DomainClaims, Inner, host_service};
use crate::fabric::Fabric;

/// The program that a daemon runs.
const SERVICE: &str = "nvidia-imex";

impl DomainClaims {
    /// What is missing, as the value of the taint of the node's devices.
    ///
    /// A node without a clique lacks nothing: its claims get no device. Nor does one whose GPUs are not read yet.
    pub(crate) async fn obstacle(&self) -> Option<&'static str> {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || inner.obstacle()).await.ok().flatten()
    }
}

impl Inner {
    /// Blocks on files.
    fn obstacle(&self) -> Option<&'static str> {
        let inventory = self.node.snapshots.borrow().inventory.clone()?;
        let Fabric::Clique(_) = Fabric::of(&inventory) else { return None };
        let paths = &self.node.paths;
        let devices = CharDevices::read(&paths.proc_root).ok()?;
        if devices.major(CHANNELS).is_none() {
            return Some(NO_IMEX_CHANNELS);
        }
        let has = |program| host_service::find(&paths.driver_root_seen, program).is_some();
        if self.node.imex.services() == ImexServices::OfHost {
            return (!has(host_service::PROGRAM)).then_some(NO_IMEX_CONTROL);
        }
        if !has(SERVICE) {
            return Some(NO_IMEX_SERVICE);
        }
        // It may have been installed since the driver's files were searched.
        let files = self.driver_files(&inventory.versions.driver);
        if !files.mounts.iter().any(|path| path.file_name().is_some_and(|name| name == SERVICE)) {
            self.forget_driver_files();
        }
        None
    }
}
