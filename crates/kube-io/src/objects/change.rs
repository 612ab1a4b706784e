//! Changes that a watch delivers.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{
    Budget, Claim, CsiCapacity, CsiDriver, CsiNode, DeviceClass, Meta, Node, PersistentVolume, Pod,
    ResourceSlice, StorageClass, VolumeClaim, WatchedObject,
};

/// A change of a watched object.
#[derive(Clone, Debug)]
pub enum Change {
    /// Of a pod.
    Pod(Delta<Pod>),
    /// Of a node.
    Node(Delta<Node>),
    /// Of a `ResourceSlice`.
    Slice(Delta<ResourceSlice>),
    /// Of a `ResourceClaim`.
    Claim(Delta<Claim>),
    /// Of a `DeviceClass`.
    Class(Delta<DeviceClass>),
    /// Of a `PersistentVolumeClaim`.
    VolumeClaim(Delta<VolumeClaim>),
    /// Of a `PersistentVolume`.
    Volume(Delta<PersistentVolume>),
    /// Of a `StorageClass`.
    StorageClass(Delta<StorageClass>),
    /// Of a `CSINode`.
    CsiNode(Delta<CsiNode>),
    /// Of a `CSIDriver`.
    CsiDriver(Delta<CsiDriver>),
    /// Of a `CSIStorageCapacity`.
    CsiCapacity(Delta<CsiCapacity>),
    /// Of a `PodDisruptionBudget`.
    Budget(Delta<Budget>),
    /// Of a pod group, a workload or a policy.
    Object(Delta<WatchedObject>),
    /// Of a namespace: its name and labels.
    Namespace(Delta<Meta>),
}

/// A change of objects of one kind.
#[derive(Clone, Debug)]
pub enum Delta<T> {
    /// The object is added or changed.
    Upsert(Arc<T>),
    /// The object is deleted: its last known state.
    Delete(Arc<T>),
    /// The complete list, also the first one. Objects that are not in it are gone.
    Replace(Kind, Vec<Arc<T>>),
}

/// A kind of object, for lists that may be empty: `apiVersion` and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// `apiVersion`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
}

impl<T> Delta<T> {
    /// The objects that exist after this change.
    pub fn present(&self) -> &[Arc<T>] {
        match self {
            Self::Upsert(one) => std::slice::from_ref(one),
            Self::Replace(_, all) => all,
            Self::Delete(_) => &[],
        }
    }

    /// The objects that do not exist any more after this change, of those with these keys.
    pub fn gone<'k, K: Ord + Clone + 'k>(
        &self,
        known: impl IntoIterator<Item = &'k K>,
        key: impl Fn(&T) -> K,
    ) -> Vec<K> {
        match self {
            Self::Upsert(_) => Vec::new(),
            Self::Delete(one) => vec![key(one)],
            Self::Replace(_, all) => {
                let listed: BTreeSet<K> = all.iter().map(|one| key(one)).collect();
                known.into_iter().filter(|known| !listed.contains(known)).cloned().collect()
            }
        }
    }
}

impl Kind {
    /// A kind.
    pub fn new(api_version: &str, kind: &str) -> Self {
        Self { api_version: api_version.to_owned(), kind: kind.to_owned() }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.api_version, self.kind)
    }
}
