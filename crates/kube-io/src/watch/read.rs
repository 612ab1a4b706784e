//! What a list and the lines of a watch say.

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
    /// Where the next page begins; `None`: this was the last.
    pub(super) next: Option<String>,
}

/// What a line of a watch says.
pub(super) enum Line<T> {
    /// An object is there.
    Upsert(Arc<T>),
    /// An object is gone.
    Delete(Arc<T>),
    /// Nothing that is to be told; up to this version all was told.
    Bookmark(String),
    /// The server gives up.
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

    /// Reads a page. Objects that cannot be read are passed over; fails if it is no list at all.
    pub(super) fn page<T: WatchedType>(
        &mut self,
        text: &str,
        kind_sender: &mut KindSender<T>,
    ) -> Result<Page<T>, serde_json::Error> {
        let (meta, items) = if let Ok(list) = serde_json::from_str::<WireList<T::Wire>>(text) {
            (list.metadata, list.items.unwrap_or_default())
        } else {
            // Now the slow way, in which one object cannot spoil the others.
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

    /// Reads a line. Fails on what is no line of a watch at all.
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
            // It must be as if it were not there.
            None => Line::Delete(Arc::new(T::from_meta(self.bare(text)?))),
        })
    }

    /// The slow way, and lines without an object of the kind. An object that cannot be read stays as it
    /// was last told, unless it is gone.
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

    /// The slow way to read an object.
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
