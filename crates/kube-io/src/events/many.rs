//! Many events from one program: recorded without waiting, written one after another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::series::{Due, EventCounts, EventLimits, Key, Recent};
use super::{Tone, shorten};

/// How often counts of series are looked at.
const TICK: Duration = Duration::from_secs(1);
/// How long a write may take: somebody else's event waits behind it.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// How long the last writes may take.
const LAST_WRITES: Duration = Duration::from_secs(3);
/// Where events live that are about objects without a namespace.
const DEFAULT_NAMESPACE: &str = "default";

/// Takes events. Clones are the same.
#[derive(Clone, Debug)]
pub struct EventSink(Arc<Shared>);

/// Writes what an [`EventSink`] took.
pub struct EventWriter {
    shared: Arc<Shared>,
    client: Client,
    controller: String,
    instance: String,
}

#[derive(Debug)]
struct Shared {
    recent: Mutex<Recent>,
    more: Notify,
}

/// Makes a sink and its writer. Events are in the name of `controller`, from `instance` (a pod or node).
pub fn many(
    client: &Client,
    controller: &str,
    instance: &str,
    limits: EventLimits,
) -> (EventSink, EventWriter) {
    let recent = Mutex::new(Recent::new(limits, Instant::now()));
    let shared = Arc::new(Shared { recent, more: Notify::new() });
    let writer = EventWriter {
        shared: Arc::clone(&shared),
        client: client.clone(),
        controller: controller.to_owned(),
        instance: instance.to_owned(),
    };
    (EventSink(shared), writer)
}

impl EventSink {
    /// Takes an event about `regarding`, and never waits. Events with the same object, reason, action
    /// and note become one, whose count grows; when there are too many others, it is dropped and
    /// counted.
    ///
    /// `reason` is a constant in CamelCase, `action` what the program did or would not do.
    pub fn record(
        &self,
        regarding: &ObjectReference,
        tone: Tone,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let key = Key {
            kind: text(&regarding.kind),
            namespace: text(&regarding.namespace),
            name: text(&regarding.name),
            uid: text(&regarding.uid),
            tone,
            reason: reason.to_owned(),
            action: action.to_owned(),
            note: shorten(note),
        };
        if self.0.recent().add(key, regarding, Timestamp::now(), Instant::now()) {
            self.0.more.notify_one();
        }
    }

    /// How many events are remembered.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.0.recent().len()
    }

    /// What became of events so far.
    pub fn counts(&self) -> EventCounts {
        self.0.recent().counts
    }
}

impl Shared {
    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventWriter {
    /// Writes until `stop`, then what is left, for a few seconds at most.
    pub async fn run(self, stop: CancellationToken) {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.shared.more.notified() => {}
                _ = tick.tick() => self.shared.recent().refresh(Instant::now(), false),
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.write_all() => {}
            }
        }
        self.shared.recent().refresh(Instant::now(), true);
        let _ = timeout(LAST_WRITES, self.write_all()).await;
    }

    async fn write_all(&self) {
        loop {
            let Some(due) = self.shared.recent().next() else { return };
            let written = timeout(WRITE_LIMIT, self.write(&due)).await;
            let mut recent = self.shared.recent();
            match written {
                Ok(Ok(())) => recent.written(&due, Instant::now()),
                Ok(Err(error)) => {
                    tracing::debug!(reason = %due.key.reason, %error, "an event was lost");
                    recent.failed(&due);
                }
                Err(_) => recent.failed(&due),
            }
        }
    }

    async fn write(&self, due: &Due) -> Result<(), Error> {
        let namespace = Some(due.key.namespace.as_str()).filter(|name| !name.is_empty());
        let events: Api<Event> =
            Api::namespaced(self.client.clone(), namespace.unwrap_or(DEFAULT_NAMESPACE));
        if !due.is_new {
            let patch = serde_json::json!({ "series": series(due) });
            let params = PatchParams::default();
            match events.patch(&due.series.name, &params, &Patch::Merge(patch)).await {
                // The server forgets events after an hour: it is written anew.
                Err(Error::Api(status)) if status.code == 404 => {}
                written => return written.map(drop),
            }
        }
        events.create(&PostParams::default(), &self.event(due)).await.map(drop)
    }

    fn event(&self, due: &Due) -> Event {
        let Due { key, series: seen, .. } = due;
        let tone = match key.tone {
            Tone::Normal => "Normal",
            Tone::Warning => "Warning",
        };
        Event {
            metadata: ObjectMeta { name: Some(seen.name.clone()), ..ObjectMeta::default() },
            event_time: Some(MicroTime(seen.first)),
            type_: Some(tone.to_owned()),
            reason: Some(key.reason.clone()),
            action: Some(key.action.clone()),
            note: Some(key.note.clone()),
            regarding: Some(seen.regarding.clone()),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            series: series(due),
            ..Event::default()
        }
    }
}

/// The series of an event that was seen more than once.
fn series(due: &Due) -> Option<EventSeries> {
    let seen = &due.series;
    let last_observed_time = MicroTime(seen.last);
    (seen.count > 1).then_some(EventSeries { count: seen.count, last_observed_time })
}

impl std::fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventWriter").field("controller", &self.controller).finish_non_exhaustive()
    }
}
