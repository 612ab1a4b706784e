//! The node's label with the NVLink clique of its GPUs, by which schedulers keep the pods of a gang in one clique.
//!
//! NVIDIA's GPU feature discovery and DRA driver write the same label. The agent applies it server-side, so a value of
//! theirs stays, and only the agent's own is removed.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use octavo_api::names::{AGENT_CONTROLLER, LABEL_CLIQUE};
use octavo_gpu::Inventory;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;

use super::retry::retry_delays;
use crate::config::Mode;
use crate::fabric::Fabric;
use crate::monitor::Snapshot;

/// Delay after a refusal: the program that owns the label may go, or the right may come.
const REFUSAL_INTERVAL: Duration = Duration::from_mins(5);

/// The clique of which all GPUs with an NVLink fabric are members; `None` if there is none.
fn clique(inventory: &Inventory) -> Option<String> {
    match Fabric::of(inventory) {
        Fabric::Clique(clique) => Some(clique),
        Fabric::Absent | Fabric::NotUp(_) => None,
    }
}

/// Keeps the label as the GPUs are, forever. It is left alone until the GPUs are read, and removed from a node that offers
/// nothing.
pub(super) async fn follow(
    client: Client,
    node: String,
    mut snapshots: watch::Receiver<Snapshot>,
    mut reached: watch::Receiver<Option<Mode>>,
) {
    let nodes: Api<Node> = Api::all(client);
    let mut written = None;
    loop {
        let has_left = *reached.borrow_and_update() == Some(Mode::None);
        let inventory = snapshots.borrow_and_update().inventory.clone();
        let found = inventory.map(|inventory| clique(&inventory));
        if let Some(wanted) = if has_left { Some(None) } else { found }
            && written.as_ref() != Some(&wanted)
        {
            let is_written = write(&nodes, &node, wanted.as_deref()).await;
            written = is_written.then_some(wanted);
        }
        let retry = async {
            match written {
                Some(_) => std::future::pending().await,
                None => sleep(REFUSAL_INTERVAL).await,
            }
        };
        tokio::select! {
            changed = snapshots.changed() => if changed.is_err() { return },
            Ok(()) = reached.changed() => {}
            () = retry => {}
        }
    }
}

/// Writes or removes the label, with retries. Returns whether the API server took it.
async fn write(nodes: &Api<Node>, node: &str, clique: Option<&str>) -> bool {
    let labels = clique.map_or_else(|| json!({}), |clique| json!({LABEL_CLIQUE: clique}));
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"labels": labels}});
    let params = PatchParams::apply(AGENT_CONTROLLER);
    let mut backoff = retry_delays();
    loop {
        match nodes.patch_metadata(node, &params, &Patch::Apply(&object)).await {
            Ok(_) => return true,
            // Another manager's value.
            Err(kube::Error::Api(error)) if error.code == 409 => {
                tracing::info!(%node, ?clique, "another program writes the label {LABEL_CLIQUE}: {error}");
                return false;
            }
            // An installation without the right has no such label, and needs none without a clique.
            Err(kube::Error::Api(error)) if error.code == 403 && clique.is_none() => {
                return true;
            }
            Err(kube::Error::Api(error)) if matches!(error.code, 403 | 404 | 422) => {
                tracing::warn!(%node, ?clique, "the label {LABEL_CLIQUE} is not written: {error}");
                return false;
            }
            Err(error) => {
                tracing::warn!(%node, %error, "the label {LABEL_CLIQUE} is not written yet");
                sleep(backoff.next_delay()).await;
            }
        }
    }
}
