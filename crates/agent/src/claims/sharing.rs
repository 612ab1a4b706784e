//! Time slices and MPS daemons of claims: set before a claim's containers start, and undone after they have ended.
//!
//! ```text
//! prepare:   intent on disk -> compute mode, time slice -> daemon -> record, CDI spec
//! unprepare: CDI spec removed -> daemon ended -> compute mode, time slice -> record removed
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_api::Refusal;
use octavo_node::ClaimRef;
use octavo_node::mps::MpsSettings;

use super::Inner;
use super::plan::daemon_prefix;
use crate::checkpoint::{HeldDevice, HeldKind, HeldSharing, Record};
use crate::gpu_mode::{GpuTurn, SharingError};
use crate::mps::{MpsError, is_gpu};

impl Inner {
    /// Sets what a claim's containers share. Its MIG instances exist.
    pub(super) async fn share(self: &Arc<Self>, record: &Record) -> Result<(), Refusal> {
        let node = &self.node;
        let failed = |held: &HeldDevice, error: &SharingError| Refusal::SharingNotSet {
            device: held.device.clone(),
            problem: error.to_string(),
            node: node.clone(),
        };
        for held in &record.devices {
            match (&held.sharing, &held.kind) {
                (Some(HeldSharing::TimeSlice(slice)), _) => {
                    let slice = *slice;
                    self.on_gpu(record, held, move |turn, uuid| turn.set_time_slice(uuid, slice))
                        .await?
                        .map_err(|error| failed(held, &error))?;
                }
                // The mode of a GPU with MIG devices would bind the programs of the other ones.
                (Some(HeldSharing::Mps(_)), HeldKind::Whole) => {
                    self.on_gpu(record, held, GpuTurn::make_exclusive)
                        .await?
                        .map_err(|error| failed(held, &error))?;
                }
                _ => {}
            }
        }
        let daemons = daemons(record);
        self.mps.ensure(daemons.into_iter()).await.map_err(|error| self.mps_refusal(record, &error))
    }

    /// Undoes what a claim's containers shared. They have ended.
    pub(super) async fn unshare(self: &Arc<Self>, record: &Record) -> Result<(), Refusal> {
        let daemons = self.daemons_of(record);
        self.mps.end(&daemons).await.map_err(|error| self.mps_refusal(record, &error))?;
        for held in &record.devices {
            // A damaged record does not say what was set.
            let is_whole = held.kind.is_whole() && !held.admin_access && !held.uuid.is_empty();
            let is_unknown = record.is_unresolved() && is_whole;
            let has_slice = is_unknown || matches!(held.sharing, Some(HeldSharing::TimeSlice(_)));
            let has_mode =
                is_unknown || (is_whole && matches!(held.sharing, Some(HeldSharing::Mps(_))));
            if !has_slice && !has_mode {
                continue;
            }
            let done = self.on_gpu(record, held, move |turn, uuid| {
                if has_slice {
                    turn.reset_time_slice(uuid)?;
                }
                if has_mode { turn.reset_compute_mode(uuid) } else { Ok(()) }
            });
            match done.await {
                Ok(Ok(())) => {}
                // Nothing says that anything was set.
                _ if is_unknown => {}
                Ok(Err(error)) if error.is_missing_program() => {
                    tracing::warn!(node = %self.node, gpu = held.uuid, %error, "the time slice stays");
                }
                Ok(Err(error)) => {
                    return Err(Refusal::SharingNotReset {
                        device: held.device.clone(),
                        problem: error.to_string(),
                        node: self.node.clone(),
                    });
                }
                Err(refusal) => return Err(refusal),
            }
        }
        // Last: until then they say which GPUs are exclusive.
        for name in daemons {
            self.mps.remove(&name).map_err(|error| self.mps_refusal(record, &error))?;
        }
        Ok(())
    }

    /// Ends MPS daemons of claims that no longer exist, as after a record was lost.
    pub(super) async fn end_unclaimed_daemons(self: &Arc<Self>) {
        let names = match self.mps.names() {
            Ok(names) => names,
            Err(error) => {
                tracing::warn!(node = %self.node, %error, "the MPS daemons of claims are unknown");
                return;
            }
        };
        let held: BTreeSet<String> =
            self.holds().uids().iter().map(|uid| daemon_prefix(uid)).collect();
        let is_unclaimed = |name: &&String| {
            is_of_claim(name) && !held.iter().any(|prefix| name.starts_with(prefix))
        };
        for name in names.iter().filter(is_unclaimed) {
            match self.end_unclaimed(name).await {
                Ok(()) => {
                    tracing::info!(node = %self.node, daemon = name, "ended an MPS daemon that no claim has");
                }
                Err(error) => tracing::warn!(
                    node = %self.node, daemon = name, error,
                    "an MPS daemon that no claim has stays, or its GPUs stay exclusive"
                ),
            }
        }
    }

    async fn end_unclaimed(self: &Arc<Self>, name: &str) -> Result<(), String> {
        let devices = self.mps.devices(name);
        self.mps.end(&BTreeSet::from([name.to_owned()])).await.map_err(|it| it.to_string())?;
        for uuid in devices.into_iter().filter(|uuid| is_gpu(uuid)) {
            let turn = self.modes.turn_or_lock(&uuid).await;
            let turn = turn.map_err(|_| "the driver is closed".to_owned())?;
            let reset = tokio::task::spawn_blocking(move || turn.reset_compute_mode(&uuid));
            reset.await.map_err(|it| it.to_string())?.map_err(|it| it.to_string())?;
        }
        self.mps.remove(name).map_err(|error| error.to_string())
    }

    /// Names of the MPS daemons that a claim has, or may have.
    fn daemons_of(&self, record: &Record) -> BTreeSet<String> {
        let prefix = daemon_prefix(&record.claim.uid);
        let known = self.mps.names().unwrap_or_default();
        let found = known.into_iter().filter(|name| name.starts_with(&prefix));
        found.chain(daemons(record).into_keys()).collect()
    }

    async fn on_gpu<T: Send + 'static>(
        &self,
        record: &Record,
        held: &HeldDevice,
        work: impl FnOnce(&GpuTurn, &str) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let claim: &ClaimRef = &record.claim;
        let turn = self.modes.turn(&held.uuid, claim).await?;
        let uuid = held.uuid.clone();
        self.blocking(claim, move || work(&turn, &uuid)).await
    }

    fn mps_refusal(&self, record: &Record, error: &MpsError) -> Refusal {
        Refusal::MpsNotReady {
            claim: record.claim.to_string(),
            problem: error.to_string(),
            node: self.node.clone(),
        }
    }
}

/// Whether a daemon's name is one of a claim's.
fn is_of_claim(name: &str) -> bool {
    name.starts_with("c-")
}

/// The MPS daemons of a record, by name. A MIG device that does not exist yet is in none.
fn daemons(record: &Record) -> BTreeMap<String, MpsSettings> {
    let mut daemons: BTreeMap<String, MpsSettings> = BTreeMap::new();
    for held in &record.devices {
        let Some(HeldSharing::Mps(mps)) = &held.sharing else { continue };
        let uuid = match &held.kind {
            HeldKind::Mig(mig) => match &mig.made {
                Some(made) => made.uuid.clone(),
                None => continue,
            },
            HeldKind::Whole | HeldKind::Share(_) => held.uuid.clone(),
        };
        let daemon = daemons.entry(mps.daemon.clone()).or_default();
        daemon.active_thread_percentage = mps.active_thread_percentage;
        daemon.multi_user = mps.multi_user;
        daemon.memory_limits_mib.extend(mps.memory_limit_mib.map(|limit| (uuid.clone(), limit)));
        daemon.devices.push(uuid);
    }
    daemons
}
