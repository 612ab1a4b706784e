//! Published devices: their nodes, the attributes that claims constrain, and the counters that they
//! share.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use serde_json::Value;

use super::{entries, name, quantity, text};

/// Identity of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeviceKey<'a> {
    driver: &'a str,
    pool: &'a str,
    pub(super) device: &'a str,
}

impl<'a> DeviceKey<'a> {
    /// The device of an allocation's result.
    pub(super) fn of_result(result: &'a Value) -> Self {
        let [driver, pool, device] = ["driver", "pool", "device"].map(|key| text(&result[key]));
        Self { driver, pool, device }
    }
}

/// The devices of all slices.
pub(super) struct Published<'a> {
    devices: BTreeMap<DeviceKey<'a>, (&'a str, &'a Value)>,
    /// Shared counters by driver and pool, counter set and counter.
    counters: BTreeMap<Counter<'a>, &'a Value>,
}

type Counter<'a> = [&'a str; 4];

impl<'a> Published<'a> {
    pub(super) fn of(slices: &'a [Value]) -> Self {
        let mut published = Self { devices: BTreeMap::new(), counters: BTreeMap::new() };
        for slice in slices {
            let spec = &slice["spec"];
            let (driver, pool) = (text(&spec["driver"]), text(&spec["pool"]["name"]));
            let node = text(&spec["nodeName"]);
            for device in spec["devices"].as_array().into_iter().flatten() {
                let key = DeviceKey { driver, pool, device: text(&device["name"]) };
                published.devices.insert(key, (node, device));
            }
            for set in spec["sharedCounters"].as_array().into_iter().flatten() {
                for (counter, amount) in entries(&set["counters"]) {
                    let key = [driver, pool, text(&set["name"]), counter];
                    published.counters.insert(key, &amount["value"]);
                }
            }
        }
        published
    }

    /// The node of a device; `None` if it is not published.
    pub(super) fn node(&self, device: &DeviceKey<'_>) -> Option<&'a str> {
        self.devices.get(device).map(|(node, _)| *node)
    }

    /// Devices of a claim have equal values of the attributes that the claim constrains.
    pub(super) fn constraints(
        &self,
        claim: &Value,
        devices: &[DeviceKey<'_>],
    ) -> anyhow::Result<()> {
        let constraints = claim["spec"]["devices"]["constraints"].as_array();
        for constraint in constraints.into_iter().flatten() {
            let attribute = text(&constraint["matchAttribute"]);
            let values = devices.iter().filter_map(|device| self.devices.get(device));
            let values: BTreeSet<String> =
                values.map(|(_, device)| device["attributes"][attribute].to_string()).collect();
            ensure!(
                values.len() <= 1,
                "the devices of {} have {} values of {attribute}",
                name(claim),
                values.len()
            );
        }
        Ok(())
    }

    /// The devices that are given out consume no more of a shared counter than there is.
    pub(super) fn counters(&self, given: &BTreeSet<DeviceKey<'_>>) -> anyhow::Result<()> {
        let mut used: BTreeMap<Counter<'_>, f64> = BTreeMap::new();
        for key in given {
            let Some((_, device)) = self.devices.get(key) else { continue };
            for set in device["consumesCounters"].as_array().into_iter().flatten() {
                for (counter, amount) in entries(&set["counters"]) {
                    let counter = [key.driver, key.pool, text(&set["counterSet"]), counter];
                    *used.entry(counter).or_default() += quantity(&amount["value"])?;
                }
            }
        }
        for (counter, used) in used {
            let has = self.counters.get(&counter).map_or(Ok(0.0), |has| quantity(has))?;
            ensure!(used <= has, "{counter:?} has {has}, and devices that are given out {used}");
        }
        Ok(())
    }
}
