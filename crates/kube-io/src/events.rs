//! Kubernetes events: news that a person acts on.
//!
//! They are best effort: what a program does never depends on whether an event arrived.
//!
//! [`Events`] is for programs that have one now and then. A program that has thousands takes [`many`]:
//! recording never waits, equal events become one with a count, and only so many are written.

mod many;
mod series;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use crate::objects::ObjectName;
pub use many::{EventSink, EventWriter, many};
pub use series::{EventCounts, EventLimits};

/// Longest note that the API takes, in bytes.
const LONGEST_NOTE: usize = 1024;

/// Records events in the name of one program on one node.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
}

/// Whether an event tells of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tone {
    /// All is well.
    Normal,
    /// Somebody should look.
    Warning,
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
        tone: Tone,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        let event = Event {
            type_: match tone {
                Tone::Normal => EventType::Normal,
                Tone::Warning => EventType::Warning,
            },
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

/// Refers to a `ResourceClaim`.
pub fn claim(namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("resource.k8s.io/v1".to_owned()),
        kind: Some("ResourceClaim".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
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

/// Refers to any object. The namespace may be empty.
pub fn object(api_version: &str, kind: &str, name: &ObjectName, uid: &str) -> ObjectReference {
    let namespace = Some(name.namespace.to_string()).filter(|namespace| !namespace.is_empty());
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        namespace,
        name: Some(name.name.to_string()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

fn shorten(note: &str) -> String {
    if note.len() <= LONGEST_NOTE {
        return note.to_owned();
    }
    let end = (0..=LONGEST_NOTE - 3).rev().find(|end| note.is_char_boundary(*end)).unwrap_or(0);
    format!("{}...", &note[..end])
}

#[cfg(test)]
mod tests;
