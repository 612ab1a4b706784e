//! What cannot be served as a node's settings ask, as events of the node.

use std::collections::BTreeMap;

use octavo_kube_io::events::{EventType, Events, node as node_reference};
use tokio::sync::watch;

/// Reasons and notes.
pub(crate) type Problems = BTreeMap<&'static str, String>;

/// Reports problems as events of the node, each once while it stays the same. A task of its own: an event is slow while the API server
/// is away.
pub(crate) async fn report(node: String, events: Events, mut problems: watch::Receiver<Problems>) {
    let mut reported = Problems::new();
    while problems.changed().await.is_ok() {
        let now = problems.borrow_and_update().clone();
        for (reason, note) in
            now.iter().filter(|(reason, note)| reported.get(*reason) != Some(*note))
        {
            tracing::warn!(%node, %reason, "{note}");
            let (regarding, warning) = (node_reference(&node), EventType::Warning);
            events.record(&regarding, warning, reason, "List", note).await;
        }
        reported = now;
    }
}
