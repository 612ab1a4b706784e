//! What is kept of the slices that the API has: what planning needs, and no more.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Wanted;
use super::content_digest::ContentDigest;
use crate::slices::features;

/// A slice that the API has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObservedSlice {
    /// The version as the API gave it: a write names it.
    pub(crate) resource_version: Option<String>,
    /// Whether it shows that the server keeps what makes shares.
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

/// When taints were set, by the name of the device and by what the taint says.
pub(super) type Times = BTreeMap<(String, String), Time>;

impl ObservedSlice {
    /// Takes note of a slice.
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

    /// The resource version as the number that it is (KEP-5504); one that is none counts as newest.
    pub(crate) fn version(&self) -> u64 {
        let version = self.resource_version.as_deref();
        version.and_then(|version| version.parse().ok()).unwrap_or(u64::MAX)
    }

    /// Whether it is one of the driver's slices of the node, whatever its pool.
    pub(crate) fn is_of(&self, driver: &str, node: &str) -> bool {
        self.driver == driver && self.node.as_deref() == Some(node)
    }

    /// Whether it is a slice of the pool that is wanted.
    pub(super) fn is_of_pool(&self, wanted: &Wanted<'_>) -> bool {
        self.is_of(wanted.driver, wanted.node) && self.pool == wanted.pool
    }

    /// Whether it goes when its node goes.
    pub(super) fn is_owned(&self, wanted: &Wanted<'_>) -> bool {
        self.owners.contains(&wanted.owner.uid)
    }
}

/// The time at which a taint was set is the server's to give; a slice that is written again for
/// another reason must not make old taints look new.
pub(super) fn restore_times(slice: &mut api::ResourceSlice, times: &Times) {
    for device in slice.spec.devices.iter_mut().flatten() {
        for taint in device.taints.iter_mut().flatten() {
            taint.time_added = times.get(&(device.name.clone(), taint_key(taint))).cloned();
        }
    }
}

/// What a taint says, as one text.
fn taint_key(taint: &api::DeviceTaint) -> String {
    let value = taint.value.as_deref().unwrap_or_default();
    format!("{}={value}:{}", taint.key, taint.effect)
}
