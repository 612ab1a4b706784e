//! Parses lists and lines of a watch.

use std::sync::Arc;

use kube::core::Status;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::resource::Resource;
use super::sender::KindSender;
use crate::objects::{Meta, Reader, WatchedType, WireObject};

/// A page of a list.
pub(super) struct Page<T> {
    /// Its objects.
    pub(super) items: Vec<Arc<T>>,
    /// Version of the list.
    pub(super) version: String,
    /// Continue token of the next page; `None` for the last page.
    pub(super) next: Option<String>,
}

/// A line of a watch.
pub(super) enum Line<T> {
    /// An object exists in this version.
    Upsert(Arc<T>),
    /// An object is deleted.
    Delete(Arc<T>),
    /// No change; everything up to this version was sent.
    Bookmark(String),
    /// The server ends the watch with an error.
    Error(Box<Status>),
}

#[derive(Deserialize)]
struct WireList<W> {
    metadata: Option<WireListMeta>,
    items: Option<Vec<W>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireListMeta {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct WireLine<W> {
    #[serde(rename = "type")]
    event: Event,
    object: W,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Event {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
    #[serde(other)]
    Unknown,
}

/// Reads objects of one kind.
pub(super) struct KindReader {
    resource: Resource,
    reader: Reader,
}

impl KindReader {
    pub(super) fn new(resource: &Resource) -> Self {
        Self { resource: resource.clone(), reader: Reader::default() }
    }

    /// Reads a page and skips unreadable objects. Fails if it is not a list.
    pub(super) fn page<T: WatchedType>(
        &mut self,
        text: &str,
        kind_sender: &mut KindSender<T>,
    ) -> Result<Page<T>, serde_json::Error> {
        let (meta, items) = if let Ok(list) = serde_json::from_str::<WireList<T::Wire>>(text) {
            (list.metadata, list.items.unwrap_or_default())
        } else {
            // The slow path, in which one object cannot fail the others.
            let list: WireList<Value> = serde_json::from_str(text)?;
            let items = list.items.into_iter().flatten();
            (list.metadata, items.filter_map(|item| self.wire(item, kind_sender)).collect())
        };
        let meta = meta.unwrap_or_default();
        let mut read = Vec::with_capacity(items.len());
        for item in items {
            read.extend(self.value(item, kind_sender).map(Arc::new));
        }
        Ok(Page {
            items: read,
            version: meta.resource_version.unwrap_or_default(),
            next: meta.next.filter(|next| !next.is_empty()),
        })
    }

    /// Reads a line. Fails if it is not a line of a watch.
    pub(super) fn line<T: WatchedType>(
        &mut self,
        text: &[u8],
        kind_sender: &mut KindSender<T>,
    ) -> Result<Line<T>, serde_json::Error> {
        let (event, wire) = match serde_json::from_slice::<WireLine<T::Wire>>(text) {
            Ok(WireLine { event: Event::Bookmark | Event::Error | Event::Unknown, .. })
            | Err(_) => return self.other(text, kind_sender),
            Ok(WireLine { event, object }) => (event, object),
        };
        self.object(event, wire, text, kind_sender)
    }

    fn object<T: WatchedType>(
        &mut self,
        event: Event,
        wire: T::Wire,
        text: &[u8],
        kind_sender: &mut KindSender<T>,
    ) -> Result<Line<T>, serde_json::Error> {
        let is_gone = event == Event::Deleted;
        Ok(match self.value(wire, kind_sender) {
            Some(value) if is_gone => Line::Delete(Arc::new(value)),
            Some(value) => Line::Upsert(Arc::new(value)),
            // An object without a value must count as absent.
            None => Line::Delete(Arc::new(T::from_meta(self.bare(text)?))),
        })
    }

    /// The slow path, also for lines without an object of the kind. An unreadable object keeps its
    /// last state, unless it is deleted.
    fn other<T: WatchedType>(
        &mut self,
        text: &[u8],
        kind_sender: &mut KindSender<T>,
    ) -> Result<Line<T>, serde_json::Error> {
        let WireLine { event, object } = serde_json::from_slice::<WireLine<Value>>(text)?;
        if event == Event::Error {
            return Ok(Line::Error(serde_json::from_value(object)?));
        }
        if matches!(event, Event::Added | Event::Modified | Event::Deleted)
            && let Some(wire) = self.wire(object, kind_sender)
        {
            return self.object(event, wire, text, kind_sender);
        }
        let meta = self.bare(text)?;
        if event == Event::Deleted {
            return Ok(Line::Delete(Arc::new(T::from_meta(meta))));
        }
        Ok(Line::Bookmark(meta.version.to_string()))
    }

    fn bare(&mut self, text: &[u8]) -> Result<Meta, serde_json::Error> {
        let WireLine { object, .. } = serde_json::from_slice::<WireLine<WireObject>>(text)?;
        Ok(Meta::read(object, &mut self.reader).unwrap_or_default())
    }

    /// Reads an object by the slow path.
    fn wire<T: WatchedType>(
        &self,
        object: Value,
        kind_sender: &mut KindSender<T>,
    ) -> Option<T::Wire>
    where
        T::Wire: DeserializeOwned,
    {
        let name = name(&object);
        match serde_json::from_value(object) {
            Ok(wire) => Some(wire),
            Err(error) => {
                kind_sender.skip_object(&self.resource, &name, &error.to_string());
                None
            }
        }
    }

    fn value<T: WatchedType>(
        &mut self,
        wire: T::Wire,
        kind_sender: &mut KindSender<T>,
    ) -> Option<T> {
        let Some(mut value) = T::read(wire, &mut self.reader) else {
            for fault in self.reader.take_faults() {
                kind_sender.skip_object(&self.resource, "", &fault.to_string());
            }
            return None;
        };
        let faults = self.reader.take_faults();
        if !faults.is_empty() {
            kind_sender.report_faults(&self.resource, &value.meta().name.to_string(), faults);
        }
        value.set_kind(&self.resource.kind);
        Some(value)
    }
}

/// Namespace and name of any object.
fn name(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    crate::objects::ObjectName::new(text("namespace"), text("name")).to_string()
}
