//! Kubernetes events, which tell people to act.
//!
//! They are best effort: no program depends on whether an event arrives.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
pub use kube::runtime::events::EventType;
use kube::runtime::events::{Event, Recorder, Reporter};

/// Maximum length of a note in the API, in bytes.
const MAX_NOTE_BYTES: usize = 1024;

/// Records events for one program on one node.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
}

impl Events {
    /// Events of `controller` (such as `gpu.nvidia.com`) from `instance` (a node or pod).
    pub fn new(client: Client, controller: &str, instance: &str) -> Self {
        let reporter =
            Reporter { controller: controller.to_owned(), instance: Some(instance.to_owned()) };
        Self { recorder: Recorder::new(client, reporter) }
    }

    /// Records an event about `regarding`. kube counts equal events within six minutes as a series.
    ///
    /// `reason` is a constant in CamelCase; `action` is the action that the program took or
    /// refused.
    pub async fn record(
        &self,
        regarding: &ObjectReference,
        event_type: EventType,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        let event = Event {
            type_: event_type,
            reason: reason.to_owned(),
            note: Some(shorten(note)),
            action: action.to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, regarding).await {
            tracing::debug!(%reason, %error, "an event was lost");
        }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// Refers to a Node. Like the kubelet's, events about nodes have the node name as UID, by which
/// tools find them.
pub fn node(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

fn shorten(note: &str) -> String {
    if note.len() <= MAX_NOTE_BYTES {
        return note.to_owned();
    }
    let end = (0..=MAX_NOTE_BYTES - 3).rev().find(|end| note.is_char_boundary(*end)).unwrap_or(0);
    format!("{}...", &note[..end])
}

#[cfg(test)]
mod tests;
