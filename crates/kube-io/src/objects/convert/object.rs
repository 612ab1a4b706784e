//! Objects of kinds that this crate does not know.

use serde::Deserialize;
use serde_json::Value;

use super::{Reader, WatchedType, WireMeta};
use crate::objects::{Kind, Meta, WatchedObject};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireWatched {
    api_version: Option<String>,
    kind: Option<String>,
    #[serde(default)]
    metadata: WireMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

impl WatchedType for WatchedObject {
    type Wire = WireWatched;

    fn read(wire: WireWatched, reader: &mut Reader) -> Option<Self> {
        Some(Self {
            api_version: wire.api_version.unwrap_or_default(),
            kind: wire.kind.unwrap_or_default(),
            generation: wire.metadata.generation.unwrap_or(0),
            meta: wire.metadata.read(reader),
            spec: wire.spec,
            status: wire.status,
        })
    }

    fn from_meta(meta: Meta) -> Self {
        Self { meta, ..Self::default() }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn set_kind(&mut self, kind: &Kind) {
        if self.kind.is_empty() {
            self.api_version.clone_from(&kind.api_version);
            self.kind.clone_from(&kind.kind);
        }
    }
}
