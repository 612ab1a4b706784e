//! What the allocated claims of a cluster hold.

use std::collections::{BTreeMap, HashMap};

use crate::claim::Claim;
use crate::features::{Feature, Features};
use crate::pools::{DeviceId, Inventory};

/// What is held of a device.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceUsage<'a> {
    /// Whether a claim has the device for itself.
    pub(super) is_dedicated: bool,
    /// Whether parts of its capacity are taken. From then on it has drawn its counters.
    pub(super) has_drawn_counters: bool,
    /// Parts of capacities taken, in billionths.
    pub(super) used: BTreeMap<&'a str, i128>,
    /// The claims.
    pub(super) claims: Vec<&'a Claim>,
}

/// What is held, by device. Devices that nobody holds are not in it.
#[derive(Clone, Debug, Default)]
pub(super) struct AllocatedDevices<'a>(HashMap<DeviceId, DeviceUsage<'a>>);

impl<'a> AllocatedDevices<'a> {
    /// Sums up the allocations of claims. Access for administration holds nothing.
    pub(super) fn new(
        inventory: &Inventory<'_>,
        claims: impl IntoIterator<Item = &'a Claim>,
        features: Features,
    ) -> Self {
        let mut all: HashMap<DeviceId, DeviceUsage<'a>> = HashMap::new();
        for claim in claims {
            let results = claim.allocation.iter().flat_map(|allocation| &allocation.results);
            for result in results.filter(|result| !result.admin_access) {
                let id = inventory.id(&result.driver, &result.pool, &result.device);
                let Some(id) = id else { continue };
                let usage = all.entry(id).or_default();
                usage.claims.push(claim);
                if result.share_id.is_none() || !features.has(Feature::ConsumableCapacity) {
                    usage.is_dedicated = true;
                    continue;
                }
                usage.has_drawn_counters |= !result.consumed.is_empty();
                for (name, amount) in &result.consumed {
                    let used = usage.used.entry(name).or_default();
                    *used = used.saturating_add(amount.nanos());
                }
            }
        }
        Self(all)
    }

    /// What is held of a device, if anything.
    pub(super) fn of(&self, device: DeviceId) -> Option<&DeviceUsage<'a>> {
        self.0.get(&device)
    }
}
