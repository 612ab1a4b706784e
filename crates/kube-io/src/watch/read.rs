//! What a list and the lines of a watch say.

use std::sync::Arc;

use kube::core::Status;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::resource::Resource;
use super::sink::Sink;
use crate::objects::{Kept, Meta, Reader, WireObject};

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
    Set(Arc<T>),
    /// An object is gone.
    Gone(Arc<T>),
    /// Nothing that is to be told; up to this version all was told.
    Nothing(String),
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
    pub(super) fn page<T: Kept>(
        &mut self,
        text: &str,
        sink: &mut Sink<T>,
    ) -> Result<Page<T>, serde_json::Error> {
        let (meta, items) = if let Ok(list) = serde_json::from_str::<WireList<T::Wire>>(text) {
            (list.metadata, list.items.unwrap_or_default())
        } else {
            // Now the slow way, in which one object cannot spoil the others.
            let list: WireList<Value> = serde_json::from_str(text)?;
            let items = list.items.into_iter().flatten();
            (list.metadata, items.filter_map(|item| self.wire(item, sink)).collect())
        };
        let meta = meta.unwrap_or_default();
        let mut read = Vec::with_capacity(items.len());
        for item in items {
            read.extend(self.value(item, sink).map(Arc::new));
        }
        Ok(Page {
            items: read,
            version: meta.resource_version.unwrap_or_default(),
            next: meta.next.filter(|next| !next.is_empty()),
        })
    }

    /// Reads a line. Fails on what is no line of a watch at all.
    pub(super) fn line<T: Kept>(
        &mut self,
        text: &[u8],
        sink: &mut Sink<T>,
    ) -> Result<Line<T>, serde_json::Error> {
        let (event, wire) = match serde_json::from_slice::<WireLine<T::Wire>>(text) {
            Ok(WireLine { event: Event::Bookmark | Event::Error | Event::Unknown, .. })
            | Err(_) => return self.other(text, sink),
            Ok(WireLine { event, object }) => (event, object),
        };
        self.object(event, wire, text, sink)
    }

    fn object<T: Kept>(
        &mut self,
        event: Event,
        wire: T::Wire,
        text: &[u8],
        sink: &mut Sink<T>,
    ) -> Result<Line<T>, serde_json::Error> {
        let is_gone = event == Event::Deleted;
        Ok(match self.value(wire, sink) {
            Some(value) if is_gone => Line::Gone(Arc::new(value)),
            Some(value) => Line::Set(Arc::new(value)),
            // It must be as if it were not there.
            None => Line::Gone(Arc::new(T::bare(self.bare(text)?))),
        })
    }

    /// The slow way, and lines without an object of the kind. An object that cannot be read stays as it
    /// was last told, unless it is gone.
    fn other<T: Kept>(
        &mut self,
        text: &[u8],
        sink: &mut Sink<T>,
    ) -> Result<Line<T>, serde_json::Error> {
        let WireLine { event, object } = serde_json::from_slice::<WireLine<Value>>(text)?;
        if event == Event::Error {
            return Ok(Line::Error(serde_json::from_value(object)?));
        }
        if matches!(event, Event::Added | Event::Modified | Event::Deleted)
            && let Some(wire) = self.wire(object, sink)
        {
            return self.object(event, wire, text, sink);
        }
        let meta = self.bare(text)?;
        if event == Event::Deleted {
            return Ok(Line::Gone(Arc::new(T::bare(meta))));
        }
        Ok(Line::Nothing(meta.version.to_string()))
    }

    fn bare(&mut self, text: &[u8]) -> Result<Meta, serde_json::Error> {
        let WireLine { object, .. } = serde_json::from_slice::<WireLine<WireObject>>(text)?;
        Ok(Meta::read(object, &mut self.reader).unwrap_or_default())
    }

    /// The slow way to read an object.
    fn wire<T: Kept>(&self, object: Value, sink: &mut Sink<T>) -> Option<T::Wire>
    where
        T::Wire: DeserializeOwned,
    {
        let name = name(&object);
        match serde_json::from_value(object) {
            Ok(wire) => Some(wire),
            Err(error) => {
                sink.pass_over(&self.resource, &name, &error.to_string());
                None
            }
        }
    }

    fn value<T: Kept>(&mut self, wire: T::Wire, sink: &mut Sink<T>) -> Option<T> {
        let Some(mut value) = T::read(wire, &mut self.reader) else {
            for fault in self.reader.take_faults() {
                sink.pass_over(&self.resource, "", &fault.to_string());
            }
            return None;
        };
        let faults = self.reader.take_faults();
        if !faults.is_empty() {
            sink.complain(&self.resource, &value.meta().name.to_string(), faults);
        }
        value.say_kind(&self.resource.kind);
        Some(value)
    }
}

/// Namespace and name of any object.
fn name(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    crate::objects::ObjectName::new(text("namespace"), text("name")).to_string()
}
