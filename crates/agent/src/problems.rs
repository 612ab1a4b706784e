//! What cannot be served as a node's settings ask, as events of the node.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_kube_io::events::{EventType, Events, node as node_reference};
use tokio::sync::watch;

use crate::metrics::Metrics;

/// Notes by reason and subject, such as a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Problems(BTreeMap<(&'static str, String), String>);

impl Problems {
    /// Notes what is wrong.
    pub(crate) fn add(&mut self, reason: &'static str, note: String) {
        self.0.insert((reason, String::new()), note);
    }

    /// Notes what is wrong with a subject, or that nothing is. Returns whether that is new.
    pub(crate) fn set_of(
        &mut self,
        reason: &'static str,
        subject: &str,
        note: Option<String>,
    ) -> bool {
        let key = (reason, subject.to_owned());
        match note {
            Some(note) => self.0.insert(key, note.clone()) != Some(note),
            None => self.0.remove(&key).is_some(),
        }
    }

    /// Whether nothing is wrong.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The reason of each note.
    fn reasons(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().map(|(reason, _)| *reason)
    }

    /// A note with this reason.
    #[cfg(test)]
    pub(crate) fn get(&self, reason: &str) -> Option<String> {
        self.0.iter().find(|((key, _), _)| *key == reason).map(|(_, note)| note.clone())
    }
}

/// Replaces the problems where they differ.
pub(crate) fn set(sender: &watch::Sender<Problems>, problems: Problems) {
    sender.send_if_modified(|old| std::mem::replace(old, problems) != *old);
}

/// Counts problems, and reports them as events of the node, each once while it stays the same. A task of its own: an event is slow while
/// the API server is away.
pub(crate) async fn report(
    node: String,
    events: Events,
    metrics: Arc<Metrics>,
    mut problems: watch::Receiver<Problems>,
) {
    let mut counted = Counted { node: node.clone(), metrics, problems: Problems::default() };
    let mut reported = Problems::default();
    while problems.changed().await.is_ok() {
        let now = problems.borrow_and_update().clone();
        counted.set(now.clone());
        for (key, note) in now.0.iter().filter(|(key, note)| reported.0.get(*key) != Some(*note)) {
            let (reason, _) = key;
            tracing::warn!(%node, %reason, "{note}");
            let (regarding, warning) = (node_reference(&node), EventType::Warning);
            events.record(&regarding, warning, reason, "Offer", note).await;
        }
        reported = now;
    }
}

/// Problems in the metrics. They are no more the agent's when it serves the node no more.
struct Counted {
    node: String,
    metrics: Arc<Metrics>,
    problems: Problems,
}

impl Counted {
    fn set(&mut self, now: Problems) {
        self.metrics.problems(&self.node, self.problems.reasons(), now.reasons());
        self.problems = now;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set(Problems::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subject_has_a_note_of_its_own() {
        let mut problems = Problems::default();
        assert!(problems.set_of("NotServed", "a", Some("busy".to_owned())));
        assert!(problems.set_of("NotServed", "b", Some("busy".to_owned())));
        assert!(!problems.set_of("NotServed", "a", Some("busy".to_owned())), "it is known");
        assert!(problems.set_of("NotServed", "a", None));
        assert!(!problems.set_of("NotServed", "a", None), "nothing is wrong with it");
        assert_eq!(problems.get("NotServed"), Some("busy".to_owned()));
        assert!(problems.set_of("NotServed", "b", None) && problems.is_empty());
    }
}
