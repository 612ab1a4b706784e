//! Keeps the published devices of a node consistent with its GPUs, settings and claims.
//!
//! The inventory may be older than changes by claims, and only the driver knows whether an unclaimed instance is
//! foreign. If the two disagree, the GPUs are read again before anything is published.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use octavo_gpu::DriverHandle;
use octavo_gpu::Inventory;
use octavo_kube_io::slices::Pool;
use tokio::sync::watch;

use super::node_settings::NodeSettings;
use super::pool;
use crate::claims::{Claims, KnownDevice, MigManagement};
use crate::config::{DynamicMig, GpuShares, Mode};
use crate::devices::{MadeInstance, Node, Note, foreign_instances, is_inconsistent, notes};
use crate::health::Health;
use crate::mig_layout::ClosedParts;
use crate::monitor::Snapshot;
use crate::pause::sleep_for;

/// Interval between reads of a GPU with unexpected instances.
const RECHECK_INTERVAL: Duration = Duration::from_mins(1);

/// What is not offered at the moment.
pub(super) struct PublishInputs {
    /// Whether the node's mode permits slices; `None` until that is known.
    pub(super) slices: watch::Receiver<Option<bool>>,
    /// Parts of GPUs that are not offered, because they are about to change; `None` until that is known.
    pub(super) closed: watch::Receiver<Option<ClosedParts>>,
    /// How claims share a GPU.
    pub(super) shares: GpuShares,
}

/// Outputs of the loop.
pub(super) struct PublishOutputs {
    /// The pool to publish.
    pub(super) pool: watch::Sender<Option<Arc<Pool>>>,
    /// Notes for administrators.
    pub(super) notes: watch::Sender<BTreeSet<Note>>,
}

/// Determines the current state of a node.
#[derive(Default)]
pub(super) struct NodeObserver {
    /// The monitor's inventory, and its refreshed version.
    read: Option<(Arc<Inventory>, Arc<Inventory>)>,
    /// Whether something was left the last time.
    is_inconsistent: bool,
    /// Foreign instances, each confirmed by its own read.
    foreign: BTreeSet<MadeInstance>,
    dynamic: Option<DynamicMig>,
}

/// State of a node at one time.
struct State {
    inventory: Arc<Inventory>,
    health: Health,
    dynamic: DynamicMig,
    made: BTreeSet<MadeInstance>,
    shares: GpuShares,
    enforces_time: bool,
}

impl State {
    fn node(&self) -> Node<'_> {
        Node {
            inventory: &self.inventory,
            health: &self.health,
            dynamic: &self.dynamic,
            made: &self.made,
            shares: self.shares,
            enforces_time: self.enforces_time,
        }
    }
}

/// Publishes changes of the driver's thread and of the settings.
pub(super) struct PublishLoop {
    name: String,
    claims: Claims,
    snapshots: watch::Receiver<Snapshot>,
    setting: watch::Receiver<Option<NodeSettings>>,
    /// Whether the node's mode permits slices; `None` until that is known.
    slices: watch::Receiver<Option<bool>>,
    /// Parts of GPUs that are not offered, because they are about to change; `None` until that is known.
    closed: watch::Receiver<Option<ClosedParts>>,
    shares: GpuShares,
    outputs: PublishOutputs,
    observer: NodeObserver,
    /// Whether the driver was open and its modules loaded at the last step.
    was_usable: bool,
    /// Last values set on the claims: driver version, devices, and MIG management.
    applied: Option<(String, Vec<KnownDevice>, MigManagement)>,
}

impl PublishLoop {
    /// A loop for the node of this name. It does nothing until it runs.
    pub(super) fn new(
        name: &str,
        claims: Claims,
        mut snapshots: watch::Receiver<Snapshot>,
        setting: watch::Receiver<Option<NodeSettings>>,
        PublishInputs { slices, closed, shares }: PublishInputs,
        outputs: PublishOutputs,
    ) -> Self {
        snapshots.mark_changed();
        Self {
            name: name.to_owned(),
            claims,
            snapshots,
            setting,
            slices,
            closed,
            shares,
            outputs,
            observer: NodeObserver::default(),
            was_usable: false,
            applied: None,
        }
    }

    /// Runs until the claims know their devices.
    pub(super) async fn begin(&mut self) {
        while self.applied.is_none() && self.step().await {}
    }

    /// Runs as long as the driver's thread lives.
    pub(super) async fn run(mut self) {
        // An interrupted `begin` may have consumed a change without publishing it.
        self.snapshots.mark_changed();
        while self.step().await {}
    }

    /// Waits for a change and publishes it; `false` if there will be no more.
    async fn step(&mut self) -> bool {
        let is_inconsistent = self.observer.is_inconsistent;
        let look = is_inconsistent.then_some(RECHECK_INTERVAL);
        tokio::select! {
            changed = self.snapshots.changed() => if changed.is_err() { return false },
            Ok(()) = self.setting.changed() => {}
            Ok(()) = self.slices.changed() => {}
            Ok(()) = self.closed.changed() => {}
            () = sleep_for(look) => {}
        }
        let snapshot = self.snapshots.borrow_and_update().clone();
        self.claims.set_released(snapshot.is_driver_released);
        let driver = snapshot.driver.get();
        let is_usable = driver.is_some() && snapshot.missing_module.is_none();
        let was_usable = std::mem::replace(&mut self.was_usable, is_usable);
        let has_returned = is_usable && !was_usable;
        self.claims.set_driver(driver.as_ref()).await;
        drop(driver);
        let setting = self.setting.borrow_and_update().clone();
        let slices = *self.slices.borrow_and_update();
        let Some(NodeSettings { dynamic, owner, mode, problems, is_read, .. }) = setting else {
            return true;
        };
        // A device plugin's MIG devices belong to no claim, and must stay.
        let dynamic = if mode == Mode::Dra { dynamic } else { DynamicMig::None };
        let Some(state) = self.observer.state(&self.claims, &snapshot, dynamic, self.shares).await
        else {
            let is_empty = snapshot.is_driver_gone || snapshot.is_driver_released;
            if is_read && (is_empty || slices == Some(false)) {
                // An earlier agent's slices would offer GPUs that no container can use.
                set(&self.outputs.pool, Some(Arc::new(self.empty())));
            }
            return true;
        };
        let node = state.node();
        let version = state.inventory.versions.driver.clone();
        let applied = (version, pool::known_devices(&node), pool::mig_management(&node, is_read));
        // Modules that were loaded again have other device numbers, which the claims' files must have.
        if has_returned || self.applied.as_ref() != Some(&applied) {
            let (version, known, cut) = applied.clone();
            self.claims.set_mig_management(cut);
            self.claims.set_devices(&version, known).await;
            self.applied = Some(applied);
        }
        let pool = match slices {
            None => None,
            Some(true) => self.closed.borrow_and_update().as_ref().map(|closed| {
                let open = closed.without(&state.inventory);
                let open = Node { inventory: &open, ..node };
                pool::pool(&self.name, &open, &owner, snapshot.missing_module)
            }),
            Some(false) => Some(self.empty()),
        };
        if let Some(pool) = pool.filter(|_| is_read) {
            set(&self.outputs.pool, Some(Arc::new(pool)));
        }
        set(&self.outputs.notes, notes(&node).into_iter().chain(problems).collect());
        true
    }
}

impl PublishLoop {
    /// A pool without devices.
    fn empty(&self) -> Pool {
        Pool { name: self.name.clone(), ..Pool::default() }
    }
}

impl NodeObserver {
    /// The current state; `None` until the GPUs were read once.
    async fn state(
        &mut self,
        claims: &Claims,
        snapshot: &Snapshot,
        dynamic: DynamicMig,
        shares: GpuShares,
    ) -> Option<State> {
        let found = snapshot.inventory.clone()?;
        let inventory = match &self.read {
            Some((old, refreshed)) if Arc::ptr_eq(old, &found) => Arc::clone(refreshed),
            _ => Arc::clone(&found),
        };
        let made = claims.mig_in_use();
        let health = snapshot.health.clone();
        let enforces_time = claims.enforces_time();
        let mut state = State { inventory, health, dynamic, made, shares, enforces_time };
        let has_new_setting = self.dynamic.as_ref().is_some_and(|old| *old != state.dynamic);
        let was_unsettled = self.is_inconsistent;
        let mut seen = BTreeSet::new();
        if was_unsettled || has_new_setting || is_inconsistent(&state.node()) {
            if let Some((refreshed, gpus)) = read(&snapshot.driver, &state.inventory).await {
                (state.inventory, seen) = (Arc::new(refreshed), gpus);
            }
            // An instance seen by the read was a claim's before or is one after it.
            state.made.extend(claims.mig_in_use());
            self.read = Some((found, Arc::clone(&state.inventory)));
        }
        self.is_inconsistent = is_inconsistent(&state.node());
        self.dynamic = Some(state.dynamic.clone());
        if self.is_inconsistent {
            let inventory = self.without_stale_foreign(&state.node(), &seen);
            state.inventory = Arc::new(inventory);
        }
        self.foreign = foreign_instances(&state.node());
        Some(state)
    }

    /// The inventory without foreign instances that only an old read shows. On GPUs not in `seen`, an unclaimed
    /// instance may belong to a claim that was released since.
    fn without_stale_foreign(&self, node: &Node<'_>, seen: &BTreeSet<String>) -> Inventory {
        let mut unconfirmed = foreign_instances(node);
        unconfirmed.retain(|found| !seen.contains(&found.0) && !self.foreign.contains(found));
        let mut inventory = node.inventory.clone();
        for gpu in &mut inventory.gpus {
            let uuid = &gpu.uuid;
            gpu.mig_instances.retain(|found| {
                let place = found.placement;
                !unconfirmed.contains(&(uuid.clone(), place.start, place.size))
            });
        }
        inventory
    }
}

/// The GPUs with their current MIG mode and instances, and the UUIDs of the readable ones; `None` if the driver does
/// not answer.
async fn read(
    driver: &DriverHandle,
    known: &Arc<Inventory>,
) -> Option<(Inventory, BTreeSet<String>)> {
    let (driver, known) = (driver.get()?, Arc::clone(known));
    let read = move || {
        let now = Inventory::read(&*driver)?;
        let (mut known, mut seen) = (Inventory::clone(&known), BTreeSet::new());
        for gpu in &mut known.gpus {
            if let Some(now) = now.gpus.iter().find(|now| now.uuid == gpu.uuid) {
                gpu.mig = now.mig;
                gpu.mig_instances.clone_from(&now.mig_instances);
                seen.insert(gpu.uuid.clone());
            }
        }
        Ok::<_, octavo_gpu::DriverError>((known, seen))
    };
    match tokio::task::spawn_blocking(read).await {
        Ok(Ok(read)) => Some(read),
        Ok(Err(error)) => {
            tracing::debug!(%error, "the GPUs cannot be read at the moment");
            None
        }
        Err(error) => {
            tracing::error!(%error, "the task that reads the GPUs failed");
            None
        }
    }
}

/// Sends a value only if it changed.
fn set<T: PartialEq>(output: &watch::Sender<T>, new: T) {
    output.send_if_modified(|old| {
        let is_changed = *old != new;
        if is_changed {
            *old = new;
        }
        is_changed
    });
}

#[cfg(test)]
mod tests;
