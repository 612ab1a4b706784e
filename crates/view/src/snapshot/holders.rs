//! Which claims hold which device.

use std::collections::BTreeMap;

use jiff::Timestamp;
use octavo_api::names::{CAPACITY_COMPUTE, CAPACITY_MEMORY};
use octavo_dra::{Device, Quantity};
use serde::Serialize;

use super::{AllocatedDevice, ClusterSnapshot, DRIVER};

/// A claim that holds a device, and the pods that may use it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// Namespace of claim and pods.
    pub namespace: String,
    /// Name of the claim.
    pub claim: String,
    /// Names of the pods that the claim is reserved for; empty for an unused claim.
    pub pods: Vec<String>,
    /// The part of the device that it has, where it has not all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// Whether it has a MIG device of this GPU, and not the GPU itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub via_part: bool,
    /// Allocation time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// A part of a GPU's memory and time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Share {
    /// Identity of the part in the claim's allocation.
    pub id: String,
    /// Memory, as a quantity such as `20Gi`.
    #[serde(serialize_with = "as_text")]
    pub memory: Quantity,
    /// Compute time in percent; 0 is a fair part of the idle time.
    #[serde(serialize_with = "as_text")]
    pub compute: Quantity,
}

/// Holders by pool and device.
#[derive(Clone, Debug, Default)]
pub struct Holders {
    by_device: BTreeMap<(String, String), Vec<Holder>>,
}

impl Holders {
    /// Collects the holders of all devices of the driver. Claims with `adminAccess` hold nothing. A
    /// device that is a part of a GPU (`parentUUID`) makes its GPU held as well.
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
                    share: None,
                    via_part: false,
                    since: allocation.at,
                };
                let device = snapshot.device(&given.pool, &given.device);
                let share = device.and_then(|device| Share::of(device, given));
                let parent = device
                    .and_then(|device| crate::device::text(device, "parentUUID"))
                    .and_then(|uuid| parents.get(&(&*given.pool, uuid)));
                if let Some(parent) = parent {
                    let holder = Holder { via_part: true, ..holder.clone() };
                    holders.add(&given.pool, parent, holder);
                }
                holders.add(&given.pool, &given.device, Holder { share, ..holder });
            }
        }
        holders
    }

    /// The holders of a device, in order of namespace and claim.
    pub fn get(&self, pool: &str, device: &str) -> &[Holder] {
        // The map owns its keys, so a lookup by a pair of borrowed strings needs a copy.
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

impl Share {
    /// The part that an allocation has of a device that may be given in parts; `None` if it has all.
    pub(crate) fn of(device: &Device, given: &AllocatedDevice) -> Option<Self> {
        let id = given.share_id.clone()?;
        let amount = |name: &str| {
            let qualified = format!("{DRIVER}/{name}");
            given.consumed.get(name).or_else(|| given.consumed.get(&qualified)).copied()
        };
        let memory = amount(CAPACITY_MEMORY)?;
        let most = crate::device::shareable_memory(device)?;
        let compute = amount(CAPACITY_COMPUTE).unwrap_or_default();
        (memory < most).then_some(Self { id, memory, compute })
    }

    /// Its part of the GPU's time, as text.
    pub(crate) fn time(&self) -> String {
        if self.compute == Quantity::ZERO {
            return "idle time".to_owned();
        }
        format!("{}% of time", self.compute)
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

fn as_text<S: serde::Serializer>(quantity: &Quantity, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(quantity)
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
