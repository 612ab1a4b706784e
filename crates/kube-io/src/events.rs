//! Kubernetes events: news that a person acts on.
//!
//! They are best effort: what a program does never depends on whether an event arrived.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
pub use kube::runtime::events::EventType;
use kube::runtime::events::{Event, Recorder, Reporter};

/// Longest note that the API takes, in bytes.
const MAX_NOTE_BYTES: usize = 1024;

/// Records events in the name of one program on one node.
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

    /// Records an event about `regarding`; equal ones within minutes are counted as a series.
    ///
    /// `reason` is a constant in CamelCase, `action` what the program did or would not do.
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

/// Refers to a Node. Events about nodes carry the name as UID, as the kubelet's do: tools find them
/// by it.
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
