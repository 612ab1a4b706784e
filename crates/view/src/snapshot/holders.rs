//! Which claims hold which device.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::{ClusterSnapshot, DRIVER};

/// A claim that holds a device, and the pods that may use it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// Namespace of claim and pods.
    pub namespace: String,
    /// Name of the claim.
    pub claim: String,
    /// Names of the pods that the claim is reserved for; empty if nobody uses it.
    pub pods: Vec<String>,
    /// Share of the device, where it was given in part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
    /// When it was allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// Holders by pool and device.
#[derive(Clone, Debug, Default)]
pub struct Holders {
    by_device: BTreeMap<(String, String), Vec<Holder>>,
}

impl Holders {
    /// Collects the holders of all devices of the driver. Claims with `adminAccess` hold nothing.
    /// A device that is a part of a GPU (`parentUUID`) makes its GPU held as well.
    pub fn of(snapshot: &ClusterSnapshot) -> Self {
        let mut holders = Self::default();
        let parents = parents_by_uuid(snapshot);
        for (name, claim) in &snapshot.claims {
            let Some(allocation) = &claim.allocation else { continue };
            for given in &allocation.devices {
                if given.driver != DRIVER || given.admin_access {
                    continue;
                }
                let holder = Holder {
                    namespace: name.namespace.clone(),
                    claim: name.name.clone(),
                    pods: claim.reserved_for.clone(),
                    share_id: given.share_id.clone(),
                    since: allocation.at,
                };
                let parent = snapshot
                    .device(&given.pool, &given.device)
                    .and_then(|device| crate::device::text(device, "parentUUID"))
                    .and_then(|uuid| parents.get(&(&*given.pool, uuid)));
                if let Some(parent) = parent {
                    holders.add(&given.pool, parent, holder.clone());
                }
                holders.add(&given.pool, &given.device, holder);
            }
        }
        holders
    }

    /// Who holds a device, in order of namespace and claim.
    pub fn get(&self, pool: &str, device: &str) -> &[Holder] {
        // The map owns its keys; a pair of borrowed strings cannot be looked up without a copy.
        let key = (pool.to_owned(), device.to_owned());
        self.by_device.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Held devices that no slice publishes: their pool changed, or its node is away.
    pub fn unpublished<'a>(
        &'a self,
        snapshot: &'a ClusterSnapshot,
    ) -> impl Iterator<Item = (&'a str, &'a str, &'a [Holder])> {
        self.by_device
            .iter()
            .filter(|((pool, device), _)| snapshot.device(pool, device).is_none())
            .map(|((pool, device), holders)| (&**pool, &**device, holders.as_slice()))
    }

    fn add(&mut self, pool: &str, device: &str, holder: Holder) {
        let found = self.by_device.entry((pool.to_owned(), device.to_owned())).or_default();
        if !found.contains(&holder) {
            found.push(holder);
        }
    }
}

impl Holder {
    /// `namespace/pod` of each pod, or the claim's name where no pod is known.
    pub fn names(&self) -> Vec<String> {
        if self.pods.is_empty() {
            return vec![format!("claim {}/{} (no pod)", self.namespace, self.claim)];
        }
        self.pods.iter().map(|pod| format!("{}/{pod}", self.namespace)).collect()
    }
}

/// Device names of GPUs by pool and UUID.
fn parents_by_uuid(snapshot: &ClusterSnapshot) -> BTreeMap<(&str, &str), &str> {
    let mut parents = BTreeMap::new();
    for (name, pool) in &snapshot.pools {
        for device in &pool.devices {
            if let Some(uuid) = crate::device::text(device, "uuid") {
                parents.insert((&**name, uuid), &*device.name);
            }
        }
    }
    parents
}
