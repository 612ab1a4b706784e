//! Metadata; and namespaces, of which only the metadata is kept.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Reader, WatchedType, seconds};
use crate::objects::{Meta, ObjectName, Owner};

/// A copy of the whole object from `kubectl apply`.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    labels: Option<BTreeMap<String, Option<String>>>,
    annotations: Option<BTreeMap<String, Option<String>>>,
    owner_references: Option<Vec<WireOwner>>,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    finalizers: Option<Vec<String>>,
    pub(super) generation: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireOwner {
    api_version: Option<String>,
    kind: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    controller: Option<bool>,
}

/// An object of which only the metadata is kept.
#[derive(Debug, Deserialize)]
pub(crate) struct WireObject {
    #[serde(default)]
    pub(super) metadata: WireMeta,
}

impl WireMeta {
    pub(crate) fn read(self, reader: &mut Reader) -> Meta {
        let owner = self.owner_references.into_iter().flatten();
        let owner = owner.into_iter().find(|owner| owner.controller == Some(true));
        let mut annotations = texts(self.annotations);
        annotations.remove(LAST_APPLIED);
        Meta {
            name: ObjectName {
                namespace: reader.shared(self.namespace.as_deref().unwrap_or_default()),
                name: self.name.unwrap_or_default().into(),
            },
            uid: self.uid.unwrap_or_default().into(),
            version: self.resource_version.unwrap_or_default().into(),
            labels: texts(self.labels),
            annotations,
            owner: owner.map(|owner| Owner {
                api_version: owner.api_version.unwrap_or_default(),
                kind: owner.kind.unwrap_or_default(),
                name: owner.name.unwrap_or_default(),
                uid: reader.shared(owner.uid.as_deref().unwrap_or_default()),
            }),
            created: self.creation_timestamp.and_then(|at| seconds(&at, reader)).unwrap_or(0),
            // A deletion must not be missed, even if its time is malformed.
            deleted: self.deletion_timestamp.map(|at| seconds(&at, reader).unwrap_or(0)),
            finalizers: self.finalizers.unwrap_or_default(),
        }
    }
}

/// A map of texts. The API accepts `null` for an empty one.
fn texts(map: Option<BTreeMap<String, Option<String>>>) -> BTreeMap<String, String> {
    let map = map.into_iter().flatten();
    map.map(|(key, value)| (key, value.unwrap_or_default())).collect()
}

impl WatchedType for Meta {
    type Wire = WireObject;

    fn read(wire: WireObject, reader: &mut Reader) -> Option<Self> {
        Some(wire.metadata.read(reader))
    }

    fn from_meta(meta: Meta) -> Self {
        meta
    }

    fn meta(&self) -> &Meta {
        self
    }
}
