//! This node's entry in its clique: address and readiness. The index is the controller's.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use octavo_api::compute_domain::{
    ComputeDomainClique, ComputeDomainDaemon, Readiness, daemon_manager,
};
use octavo_kube_io::Backoff;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::clique::Seen;

/// Delay after a failed write: at first, and at most.
const RETRY: Duration = Duration::from_millis(200);
const MAX_RETRY: Duration = Duration::from_secs(10);
/// Least time between two writes, if another client writes this entry too; and the delay when leaving.
const LEAST_INTERVAL: Duration = Duration::from_millis(100);

/// What is fixed of an entry.
#[derive(Clone, Debug)]
pub(crate) struct OwnEntry {
    pub(crate) node: String,
    pub(crate) address: IpAddr,
    pub(crate) clique_id: String,
}

impl OwnEntry {
    /// The entry of this node.
    pub(crate) fn find<'a>(
        &self,
        clique: &'a ComputeDomainClique,
    ) -> Option<&'a ComputeDomainDaemon> {
        clique.daemons.iter().find(|entry| entry.node_name == self.node)
    }

    /// The entries of other nodes of this clique.
    pub(crate) fn peers<'a>(
        &'a self,
        clique: &'a ComputeDomainClique,
    ) -> impl Iterator<Item = &'a ComputeDomainDaemon> {
        let is_peer =
            |it: &&ComputeDomainDaemon| it.node_name != self.node && it.clique_id == self.clique_id;
        clique.daemons.iter().filter(is_peer)
    }

    /// Whether the entry says what is so.
    fn is_current(&self, clique: &ComputeDomainClique, status: Readiness) -> bool {
        self.find(clique).is_some_and(|entry| {
            entry.ip_address == self.address.to_string()
                && entry.clique_id == self.clique_id
                && entry.status == status
        })
    }

    /// The fields to apply. With the UID the server refuses to make a clique that was deleted, or to change its successor.
    fn fields(&self, clique: &ComputeDomainClique, status: Readiness) -> Value {
        let types = ComputeDomainClique::new("", "").types;
        let mut fields = json!({
            "apiVersion": types.api_version,
            "kind": types.kind,
            "metadata": {"name": clique.name_any()},
            "daemons": [{
                "nodeName": self.node,
                "ipAddress": self.address,
                "cliqueID": self.clique_id,
                "status": status,
            }],
        });
        if let Some(uid) = clique.uid() {
            fields["metadata"]["uid"] = uid.into();
        }
        fields
    }

    /// Keeps the entry current, forever. At the end of the pod nothing is written: the controller sees the pod.
    pub(crate) async fn publish(
        self,
        api: Api<ComputeDomainClique>,
        mut seen: watch::Receiver<Seen>,
        mut readiness: watch::Receiver<Readiness>,
    ) {
        let parameters = PatchParams::apply(&daemon_manager(&self.node)).force();
        let mut backoff = Backoff::new(RETRY, MAX_RETRY);
        let mut newest: Seen = None;
        loop {
            let status = *readiness.borrow_and_update();
            newest = newer(newest, seen.borrow_and_update().clone());
            let Some(clique) = newest.as_ref().filter(|it| !self.is_current(it, status)) else {
                tokio::select! {
                    Ok(()) = seen.changed() => {}
                    Ok(()) = readiness.changed() => {}
                    else => return,
                }
                continue;
            };
            let name = clique.name_any();
            let patch = Patch::Apply(self.fields(clique, status));
            let delay = match api.patch(&name, &parameters, &patch).await {
                Ok(clique) => {
                    backoff.reset();
                    newest = Some(Arc::new(clique));
                    tracing::info!(clique = %name, ?status, "the entry of this node is written");
                    LEAST_INTERVAL
                }
                Err(error) => {
                    tracing::warn!(
                        clique = %name, %error,
                        "cannot apply the entry of this node to the ComputeDomainClique; trying again"
                    );
                    backoff.next_delay()
                }
            };
            sleep(delay).await;
        }
    }
}

/// The newer one of two states of the clique. The answer to a write may be newer than what the watch has delivered.
fn newer(known: Seen, seen: Seen) -> Seen {
    let version = |seen: &Seen| seen.as_ref()?.resource_version()?.parse::<u128>().ok();
    let uid = |seen: &Seen| seen.as_ref().and_then(|clique| clique.uid());
    let is_older = version(&known).zip(version(&seen)).is_some_and(|(known, seen)| seen < known);
    if is_older && uid(&known) == uid(&seen) { known } else { seen }
}

#[cfg(test)]
mod tests;
