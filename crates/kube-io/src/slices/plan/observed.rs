//! The part of the API's slices that planning needs.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Wanted;
use super::content_digest::ContentDigest;
use crate::slices::features;

/// An existing slice.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObservedSlice {
    /// The version, which a write names.
    pub(crate) resource_version: Option<String>,
    /// Whether it proves that the server keeps the fields of shares.
    pub(crate) shows_shares: bool,
    pub(super) generation: i64,
    pub(super) count: i64,
    pub(super) content_digest: ContentDigest,
    pub(super) times: Times,
    driver: String,
    node: Option<String>,
    pool: String,
    owners: Vec<String>,
}

/// Times of taints, by device and by [`taint_key`].
pub(super) type Times = BTreeMap<(String, String), Time>;

impl ObservedSlice {
    /// Observes a slice.
    pub(crate) fn of(slice: &api::ResourceSlice) -> Self {
        let (metadata, spec) = (&slice.metadata, &slice.spec);
        let owners = metadata.owner_references.iter().flatten();
        let mut times = Times::new();
        for device in spec.devices.iter().flatten() {
            for taint in device.taints.iter().flatten() {
                if let Some(time) = &taint.time_added {
                    times.insert((device.name.clone(), taint_key(taint)), time.clone());
                }
            }
        }
        Self {
            resource_version: metadata.resource_version.clone(),
            shows_shares: features::shows_shares(spec),
            generation: spec.pool.generation,
            count: spec.pool.resource_slice_count,
            content_digest: ContentDigest::by(slice),
            times,
            driver: spec.driver.clone(),
            node: spec.node_name.clone(),
            pool: spec.pool.name.clone(),
            owners: owners.map(|owner| owner.uid.clone()).collect(),
        }
    }

    /// The resource version as a number (KEP-5504). A version that is not a number counts as
    /// newest.
    pub(crate) fn version(&self) -> u64 {
        let version = self.resource_version.as_deref();
        version.and_then(|version| version.parse().ok()).unwrap_or(u64::MAX)
    }

    /// Whether it is a slice of the driver on the node, in any pool.
    pub(crate) fn is_of(&self, driver: &str, node: &str) -> bool {
        self.driver == driver && self.node.as_deref() == Some(node)
    }

    /// Whether it belongs to the wanted pool.
    pub(super) fn is_of_pool(&self, wanted: &Wanted<'_>) -> bool {
        self.is_of(wanted.driver, wanted.node) && self.pool == wanted.pool
    }

    /// Whether it is owned by the node and deleted with it.
    pub(super) fn is_owned(&self, wanted: &Wanted<'_>) -> bool {
        self.owners.contains(&wanted.owner.uid)
    }
}

/// Restores the times of taints. The server sets them, and a rewritten slice must not make old
/// taints look new.
pub(super) fn restore_times(slice: &mut api::ResourceSlice, times: &Times) {
    for device in slice.spec.devices.iter_mut().flatten() {
        for taint in device.taints.iter_mut().flatten() {
            taint.time_added = times.get(&(device.name.clone(), taint_key(taint))).cloned();
        }
    }
}

/// Key, value and effect of a taint as one text.
fn taint_key(taint: &api::DeviceTaint) -> String {
    let value = taint.value.as_deref().unwrap_or_default();
    format!("{}={value}:{}", taint.key, taint.effect)
}
