//! Keeps what a node offers in step with its GPUs, its setting and its claims.
//!
//! What was read of the GPUs is older than what claims did to them since, and only the driver knows
//! whether an instance that no claim has is somebody's. So where the two do not agree the GPUs are
//! read anew before anything is said of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use octavo_gpu::Inventory;
use octavo_kube_io::slices::Pool;
use tokio::sync::watch;
use tokio::time::sleep;

use super::node_settings::NodeSettings;
use super::pool;
use crate::claims::{Claims, KnownDevice, MigManagement};
use crate::config::DynamicMig;
use crate::devices::{MadeInstance, Node, Note, foreign_instances, is_inconsistent, notes};
use crate::health::Health;
use crate::monitor::{DriverHandle, Snapshot};

/// How often a GPU is looked at on which something is left that should not be there.
const RECHECK_INTERVAL: Duration = Duration::from_mins(1);

/// Where what is decided goes.
pub(super) struct PublishOutputs {
    /// The pool to publish.
    pub(super) pool: watch::Sender<Option<Arc<Pool>>>,
    /// What people should hear.
    pub(super) notes: watch::Sender<BTreeSet<Note>>,
}

/// Decides what a node offers.
#[derive(Default)]
pub(super) struct NodeObserver {
    /// What was read of the GPUs, and the same as it was read anew.
    read: Option<(Arc<Inventory>, Arc<Inventory>)>,
    /// Whether something was left the last time.
    is_inconsistent: bool,
    /// Instances that are somebody else's, each seen by a read of its own.
    foreign: BTreeSet<MadeInstance>,
    dynamic: Option<DynamicMig>,
}

/// What is known of a node at one moment.
struct State {
    inventory: Arc<Inventory>,
    health: Health,
    dynamic: DynamicMig,
    made: BTreeSet<MadeInstance>,
}

impl State {
    fn node(&self) -> Node<'_> {
        Node {
            inventory: &self.inventory,
            health: &self.health,
            dynamic: &self.dynamic,
            made: &self.made,
        }
    }
}

/// Passes on what the driver's thread finds and what the setting says.
pub(super) struct PublishLoop {
    name: String,
    claims: Claims,
    snapshots: watch::Receiver<Snapshot>,
    setting: watch::Receiver<Option<NodeSettings>>,
    outputs: PublishOutputs,
    observer: NodeObserver,
    /// What the claims were told: the driver's version, the devices, and which GPUs are cut.
    told: Option<(String, Vec<KnownDevice>, MigManagement)>,
}

impl PublishLoop {
    /// A loop for the node of this name; it does nothing until it runs.
    pub(super) fn new(
        name: &str,
        claims: Claims,
        mut snapshots: watch::Receiver<Snapshot>,
        setting: watch::Receiver<Option<NodeSettings>>,
        outputs: PublishOutputs,
    ) -> Self {
        snapshots.mark_changed();
        let (observer, told) = (NodeObserver::default(), None);
        Self { name: name.to_owned(), claims, snapshots, setting, outputs, observer, told }
    }

    /// Runs until the claims know their devices.
    pub(super) async fn begin(&mut self) {
        while self.told.is_none() && self.step().await {}
    }

    /// Runs as long as the driver's thread lives.
    pub(super) async fn run(mut self) {
        // A beginning that was cut short may have taken news and not passed them on.
        self.snapshots.mark_changed();
        while self.step().await {}
    }

    /// Waits for news and passes it on; `false` when there will be none.
    async fn step(&mut self) -> bool {
        let is_inconsistent = self.observer.is_inconsistent;
        let look = async {
            if is_inconsistent {
                sleep(RECHECK_INTERVAL).await
            } else {
                std::future::pending().await
            }
        };
        tokio::select! {
            changed = self.snapshots.changed() => if changed.is_err() { return false },
            Ok(()) = self.setting.changed() => {}
            () = look => {}
        }
        let snapshot = self.snapshots.borrow_and_update().clone();
        self.claims.set_driver(snapshot.driver.get().as_ref()).await;
        let setting = self.setting.borrow_and_update().clone();
        let Some(NodeSettings { dynamic, owner, problems, is_read }) = setting else { return true };
        let Some(state) = self.observer.state(&self.claims, &snapshot, dynamic).await else {
            return true;
        };
        let node = state.node();
        let version = state.inventory.versions.driver.clone();
        let told = (version, pool::known_devices(&node), pool::mig_management(&node, is_read));
        if self.told.as_ref() != Some(&told) {
            let (version, known, cut) = told.clone();
            self.claims.set_mig_management(cut);
            self.claims.set_devices(&version, known).await;
            self.told = Some(told);
        }
        if is_read {
            set(&self.outputs.pool, Some(Arc::new(pool::pool(&self.name, &node, &owner))));
        }
        set(&self.outputs.notes, notes(&node).into_iter().chain(problems).collect());
        true
    }
}

impl NodeObserver {
    /// What is known now; `None` until the GPUs were read once.
    async fn state(
        &mut self,
        claims: &Claims,
        snapshot: &Snapshot,
        dynamic: DynamicMig,
    ) -> Option<State> {
        let found = snapshot.inventory.clone()?;
        let inventory = match &self.read {
            Some((old, refreshed)) if Arc::ptr_eq(old, &found) => Arc::clone(refreshed),
            _ => Arc::clone(&found),
        };
        let made = claims.mig_in_use();
        let health = snapshot.health.clone();
        let mut state = State { inventory, health, dynamic, made };
        let has_new_setting = self.dynamic.as_ref().is_some_and(|old| *old != state.dynamic);
        let was_unsettled = self.is_inconsistent;
        let mut seen = BTreeSet::new();
        if was_unsettled || has_new_setting || is_inconsistent(&state.node()) {
            if let Some((refreshed, gpus)) = read(&snapshot.driver, &state.inventory).await {
                (state.inventory, seen) = (Arc::new(refreshed), gpus);
            }
            // An instance that was there when it was read was a claim's before or is after.
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

    /// What is known without instances that only an old read makes foreign: where the GPU was not `seen` now, what
    /// nobody has may be a claim's that was given back since.
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

/// The GPUs with their MIG mode and instances as they are now, and the UUIDs of those that the driver told of;
/// `None` if it tells nothing.
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
            tracing::error!(%error, "reading the GPUs was cut short");
            None
        }
    }
}

/// Tells only of changes.
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
