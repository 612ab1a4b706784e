//! The devices that allocated claims hold.

use std::collections::{BTreeMap, HashMap};

use crate::claim::Claim;
use crate::features::{Feature, Features};
use crate::pools::{DeviceId, Inventory};

/// The use of one device by allocated claims.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceUsage<'a> {
    /// Whether a claim holds the whole device.
    pub(super) is_dedicated: bool,
    /// Whether shares of its capacity are allocated. The first share draws the device's counters.
    pub(super) has_drawn_counters: bool,
    /// Allocated capacity in billionths, by name.
    pub(super) used: BTreeMap<&'a str, i128>,
    /// The claims that hold it.
    pub(super) claims: Vec<&'a Claim>,
}

/// The allocated devices; free devices are not in the map.
#[derive(Clone, Debug, Default)]
pub(super) struct AllocatedDevices<'a>(HashMap<DeviceId, DeviceUsage<'a>>);

impl<'a> AllocatedDevices<'a> {
    /// Sums up the allocations of claims. Admin access does not use a device.
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

    /// The use of a device; `None` for a free one.
    pub(super) fn of(&self, device: DeviceId) -> Option<&DeviceUsage<'a>> {
        self.0.get(&device)
    }
}
