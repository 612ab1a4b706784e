//! Starts the publisher of a driver's slices, and reflects its state in the readiness report, metrics and events.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Client;
use octavo_kube_io::events::{EventType, Events, node as node_reference};
use octavo_kube_io::slices::{Feature, Pool, PublishState, Publisher};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::node::NodeAgent;
use crate::node::DraDriver;

/// Publishes every pool sent to the returned sender.
pub(super) fn start(
    agent: &NodeAgent,
    driver: DraDriver,
    client: Client,
    events: Events,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> watch::Sender<Option<Arc<Pool>>> {
    let node = agent.config.node_name.clone();
    let (wanted, receiver) = watch::channel(None);
    let (state, mut states) = watch::channel(PublishState::Waiting);
    let publisher = Publisher::new(client, driver.name(), node.clone());
    tasks.spawn(Box::pin(publisher.run(receiver, state, stop.clone())));
    let check = agent.check_of(driver, "slices", "nothing is published yet");
    let metrics = Arc::clone(&agent.shared.metrics);
    let (losses, mut loss_changes) = watch::channel(BTreeSet::new());
    tasks.spawn(async move {
        while states.changed().await.is_ok() {
            match &*states.borrow_and_update() {
                PublishState::Waiting => check.fail("nothing is published yet"),
                PublishState::Published { missing, .. } => {
                    check.pass();
                    for feature in Feature::ALL {
                        let is_missing = missing.contains(&feature);
                        metrics.missing_feature(&node, feature.gate(), is_missing);
                    }
                    losses.send_if_modified(|old| {
                        let is_changed = old != missing;
                        old.clone_from(missing);
                        is_changed
                    });
                }
                PublishState::Failing { reason } => check.fail(reason),
            }
        }
    });
    // A separate task, since each event is slow while the API server is unreachable.
    let (node, stop) = (agent.config.node_name.clone(), stop.clone());
    tasks.spawn(async move {
        let report = async {
            let mut reported = BTreeSet::new();
            while loss_changes.changed().await.is_ok() {
                let new = loss_changes.borrow_and_update().clone();
                for feature in new.difference(&reported) {
                    let note = note(*feature);
                    let node = node_reference(&node);
                    events
                        .record(&node, EventType::Warning, "FieldsDropped", "Publish", &note)
                        .await;
                }
                reported = new;
            }
        };
        stop.run_until_cancelled(Box::pin(report)).await;
    });
    wanted
}

fn note(feature: Feature) -> String {
    format!(
        "the API server drops fields of our devices: {}. Its feature gate {} is off or its release \
         too old; turn the gate on in API server, scheduler and controller manager (Kubernetes 1.36 \
         and later have it on)",
        feature.loss(),
        feature.gate()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_names_the_gate_and_what_follows() {
        for feature in Feature::ALL {
            let note = note(feature);
            assert!(note.contains(feature.gate()) && note.contains(feature.loss()), "{note}");
        }
    }
}
