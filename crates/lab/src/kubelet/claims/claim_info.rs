//! Cache of the claims prepared on a node and of the pods that use them (pure, except load and
//! save).
//!
//! The counterpart in the kubelet is `claimInfoCache`. A claim is prepared for its first pod and
//! unprepared after its last. The cache is saved before a plugin is called, so a restarted process
//! still knows what to unprepare.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::kubelet::claims::{ContainerRequest, UsableClaim};
use crate::kubelet::json_file;

/// Claims that plugins of a node may hold, by `namespace/name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClaimInfoCache {
    claims: BTreeMap<String, ClaimInfo>,
}

/// One claim of the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClaimInfo {
    /// Namespace.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
    /// UID.
    pub(crate) uid: String,
    /// UIDs of the pods that use the claim.
    pods: BTreeSet<String>,
    /// What each driver prepared.
    pub(crate) drivers: BTreeMap<String, Vec<Device>>,
    /// Whether all drivers have answered since this process started. Not saved: after a restart
    /// every claim is prepared again, as in the kubelet.
    #[serde(skip)]
    prepared: bool,
}

/// A device that a driver prepared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Device {
    /// Requests that the device serves; empty: all requests of the claim.
    pub(crate) requests: Vec<String>,
    /// Pool.
    pub(crate) pool: String,
    /// Name of the device in its pool.
    #[serde(rename = "device")]
    pub(crate) name: String,
    /// Qualified CDI names.
    pub(crate) cdi_ids: Vec<String>,
    /// Share of the device, if only a part is allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) share_id: Option<String>,
}

/// A claim of a container, as in the kubelet's pod resources API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ClaimResources {
    #[serde(rename = "claimName")]
    name: String,
    #[serde(rename = "claimNamespace")]
    namespace: String,
    #[serde(rename = "claimResources")]
    devices: Vec<ClaimResource>,
}

/// A device of such a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClaimResource {
    driver_name: String,
    pool_name: String,
    device_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    share_id: Option<String>,
    cdi_devices: Vec<String>,
}

/// A claim of the same name and another UID is still held.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("old ResourceClaim with same name {name} and different UID {uid} still exists")]
pub(crate) struct NameTaken {
    name: String,
    uid: String,
}

impl ClaimInfo {
    /// Devices of the claim that serve `request`, with their drivers; `None`: all devices.
    pub(crate) fn devices(&self, request: Option<&str>) -> impl Iterator<Item = (&str, &Device)> {
        // A request with alternatives is named `request/alternative`; devices carry the first part.
        let base = request.map(|request| request.split('/').next().unwrap_or(request).to_owned());
        self.drivers
            .iter()
            .flat_map(|(driver, devices)| {
                devices.iter().map(move |device| (driver.as_str(), device))
            })
            .filter(move |(_, device)| match &base {
                None => true,
                Some(base) => device.requests.is_empty() || device.requests.contains(base),
            })
    }
}

impl ClaimInfoCache {
    /// Loads the cache; a missing file means an empty cache.
    pub(crate) fn load(path: &Path) -> std::io::Result<Self> {
        json_file::load(path)
    }

    /// Replaces the cache's file atomically.
    pub(crate) fn save(&self, path: &Path) -> std::io::Result<()> {
        json_file::save(path, self)
    }

    /// The info of a claim.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&ClaimInfo> {
        self.claims.get(&claim_key(namespace, name))
    }

    /// Adds `pod` to the users of `claim`. Returns whether the claim still has to be prepared.
    pub(crate) fn reserve(&mut self, pod: &str, claim: &UsableClaim) -> Result<bool, NameTaken> {
        let info =
            self.claims.entry(claim_key(&claim.namespace, &claim.name)).or_insert_with(|| {
                ClaimInfo {
                    namespace: claim.namespace.clone(),
                    name: claim.name.clone(),
                    uid: claim.uid.clone(),
                    pods: BTreeSet::new(),
                    drivers: claim
                        .drivers
                        .iter()
                        .map(|driver| (driver.clone(), Vec::new()))
                        .collect(),
                    prepared: false,
                }
            });
        if info.uid != claim.uid {
            return Err(NameTaken { name: info.name.clone(), uid: info.uid.clone() });
        }
        info.pods.insert(pod.to_owned());
        Ok(!info.prepared)
    }

    /// Records what `driver` prepared for the claim with `uid`.
    pub(crate) fn record(&mut self, uid: &str, driver: &str, devices: Vec<Device>) {
        if let Some(info) = self.claims.values_mut().find(|info| info.uid == uid) {
            info.drivers.insert(driver.to_owned(), devices);
        }
    }

    /// Marks claims as prepared by all their drivers.
    pub(crate) fn set_prepared(&mut self, uids: &BTreeSet<String>) {
        for info in self.claims.values_mut().filter(|info| uids.contains(&info.uid)) {
            info.prepared = true;
        }
    }

    /// Sorted keys of the claims that `pod` uses.
    pub(crate) fn claim_keys_of(&self, pod: &str) -> BTreeSet<String> {
        let uses = self.claims.iter().filter(|(_, info)| info.pods.contains(pod));
        uses.map(|(key, _)| key.clone()).collect()
    }

    /// Removes `pod` from claims with other users. Returns the claims of which it is the last user.
    /// These stay in the cache until [`ClaimInfoCache::remove`], because unprepare may fail.
    pub(crate) fn release(&mut self, pod: &str) -> Vec<ClaimInfo> {
        let mut last = Vec::new();
        for info in self.claims.values_mut().filter(|info| info.pods.contains(pod)) {
            if info.pods.len() > 1 {
                info.pods.remove(pod);
            } else {
                // The next user must prepare the claim again.
                info.prepared = false;
                last.push(info.clone());
            }
        }
        last
    }

    /// Removes the claim with `uid` after all its drivers have unprepared it.
    pub(crate) fn remove(&mut self, uid: &str) {
        self.claims.retain(|_, info| info.uid != uid);
    }

    /// Pods that hold claims and are not in `living`.
    pub(crate) fn orphans(&self, living: &BTreeSet<String>) -> BTreeSet<String> {
        let pods = self.claims.values().flat_map(|info| info.pods.iter().cloned());
        pods.filter(|pod| !living.contains(pod)).collect()
    }

    /// The claims behind `requests` in `namespace`, each once and with all its devices. As in the
    /// kubelet, the request that a container names does not matter.
    pub(crate) fn resources(
        &self,
        namespace: &str,
        requests: &[ContainerRequest],
    ) -> Vec<ClaimResources> {
        let names: BTreeSet<&str> = requests.iter().map(|wanted| wanted.claim.as_str()).collect();
        let resource = |(driver, device): (&str, &Device)| ClaimResource {
            driver_name: driver.to_owned(),
            pool_name: device.pool.clone(),
            device_name: device.name.clone(),
            share_id: device.share_id.clone(),
            cdi_devices: device.cdi_ids.clone(),
        };
        let entries = names.into_iter().filter_map(|name| self.get(namespace, name));
        entries
            .map(|info| ClaimResources {
                name: info.name.clone(),
                namespace: info.namespace.clone(),
                devices: info.devices(None).map(resource).collect(),
            })
            .collect()
    }

    /// CDI names for `requests` in `namespace`, in order and without duplicates.
    pub(crate) fn cdi_ids(&self, namespace: &str, requests: &[ContainerRequest]) -> Vec<String> {
        let mut seen = BTreeSet::new();
        requests
            .iter()
            .filter_map(|wanted| Some((self.get(namespace, &wanted.claim)?, &wanted.request)))
            .flat_map(|(info, request)| info.devices(request.as_deref()))
            .flat_map(|(_, device)| device.cdi_ids.iter().cloned())
            .filter(|id| seen.insert(id.clone()))
            .collect()
    }
}

/// Key of a claim in the cache and in the locks.
pub(crate) fn claim_key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

#[cfg(test)]
mod tests;
