//! Kubernetes events, which tell people to act.
//!
//! They are best effort: no program depends on whether an event arrives.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
pub use kube::runtime::events::EventType;
use kube::runtime::events::{Event, Recorder, Reporter};

/// Maximum length of a note in the API, in bytes.
const MAX_NOTE_BYTES: usize = 1024;
/// Time after which an event is no longer of the series of its last one, as in kube.
const SERIES_TIME: Duration = Duration::from_mins(6);

/// Records events for one program on one node.
#[derive(Clone)]
pub struct Events {
    client: Client,
    reporter: Reporter,
    /// The last event of each object, reason and action.
    series: Arc<Mutex<HashMap<String, Series>>>,
}

/// Events with one note. Each note has a recorder of its own: kube's counts events of one reason as a series whatever their notes,
/// and shows only the first note.
struct Series {
    note: String,
    recorder: Recorder,
    last: Instant,
}

impl Events {
    /// Events of `controller` (such as `gpu.nvidia.com`) from `instance` (a node or pod).
    pub fn new(client: Client, controller: &str, instance: &str) -> Self {
        let reporter =
            Reporter { controller: controller.to_owned(), instance: Some(instance.to_owned()) };
        Self { client, reporter, series: Arc::default() }
    }

    /// Records an event about `regarding`. Equal events within six minutes are counted as a series.
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
        let note = shorten(note);
        let recorder = self.recorder(regarding, reason, action, &note);
        let event = Event {
            type_: event_type,
            reason: reason.to_owned(),
            note: Some(note),
            action: action.to_owned(),
            secondary: None,
        };
        if let Err(error) = recorder.publish(&event, regarding).await {
            tracing::debug!(%reason, %error, "an event was lost");
        }
    }

    /// The recorder of an event's series.
    fn recorder(
        &self,
        regarding: &ObjectReference,
        reason: &str,
        action: &str,
        note: &str,
    ) -> Recorder {
        let ObjectReference { kind, namespace, name, uid, .. } = regarding;
        let key = format!("{kind:?} {namespace:?} {name:?} {uid:?} {reason} {action}");
        let now = Instant::now();
        let mut all = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, series| now.duration_since(series.last) < SERIES_TIME);
        if let Some(series) = all.get_mut(&key).filter(|series| series.note == note) {
            series.last = now;
            return series.recorder.clone();
        }
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        let series = Series { note: note.to_owned(), recorder: recorder.clone(), last: now };
        all.insert(key, series);
        recorder
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
