//! The risk of GPUs, as the agents of their nodes report it in `NodeHealth` objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_health::risk::RiskClass;
use octavo_kube_io::objects::{Delta, Kind, NodeName, WatchedObject};
use serde_json::Value;

use super::Cache;

/// Kind of the objects. An object has the name of its node.
const KIND: &str = "NodeHealth";

/// Risks of a node's GPUs by the name of their device. Those of usual risk are left out.
type DeviceRisks = BTreeMap<String, RiskClass>;

/// The risk of each GPU. A GPU of which nothing is reported has the usual one.
#[derive(Clone, Debug, Default)]
pub(in crate::state) struct GpuRisks {
    by_node: BTreeMap<NodeName, DeviceRisks>,
}

/// The kind of object to watch; it is cluster-scoped.
pub(crate) fn node_health_kind() -> Kind {
    Kind::new(octavo_api::names::OCTAVO_API_VERSION, KIND)
}

impl GpuRisks {
    /// The risk of a GPU.
    pub(super) fn of(&self, node: &str, device: &str) -> RiskClass {
        let risks = self.by_node.get(node);
        risks.and_then(|risks| risks.get(device)).copied().unwrap_or_default()
    }

    /// Applies a change; objects of other kinds are ignored. Returns the nodes whose GPUs have other
    /// risks.
    fn apply(&mut self, delta: &Delta<WatchedObject>) -> BTreeSet<NodeName> {
        let mut changed = BTreeSet::new();
        match delta {
            Delta::Upsert(object) if object.kind == KIND => self.set(object, &mut changed),
            Delta::Delete(object) if object.kind == KIND => {
                let node = NodeName::from(Arc::clone(&object.meta.name.name));
                if self.by_node.remove(&node).is_some() {
                    changed.insert(node);
                }
            }
            Delta::Replace(kind, objects) if kind.kind == KIND => {
                let listed: BTreeSet<&str> =
                    objects.iter().map(|object| &*object.meta.name.name).collect();
                self.by_node.retain(|node, _| {
                    let is_listed = listed.contains(&**node);
                    if !is_listed {
                        changed.insert(node.clone());
                    }
                    is_listed
                });
                for object in objects {
                    self.set(object, &mut changed);
                }
            }
            _ => {}
        }
        changed
    }

    fn set(&mut self, object: &WatchedObject, changed: &mut BTreeSet<NodeName>) {
        let node = NodeName::from(Arc::clone(&object.meta.name.name));
        let risks = read(&object.status);
        let before = if risks.is_empty() {
            self.by_node.remove(&node)
        } else {
            self.by_node.insert(node.clone(), risks)
        };
        if before.as_ref() != self.by_node.get(&node) {
            changed.insert(node);
        }
    }
}

impl Cache {
    /// Applies a change of the health of GPUs.
    pub(in crate::state) fn apply_gpu_risks(&mut self, delta: &Delta<WatchedObject>) {
        for node in self.gpu_risks.apply(delta) {
            self.sync_node(&node);
        }
    }
}

/// The risks in a status. Fields that cannot be read count as missing.
fn read(status: &Value) -> DeviceRisks {
    let devices = status["devices"].as_array().into_iter().flatten();
    let risks = devices.filter_map(|device| {
        let risk = class(device["state"].as_str()?, device["risk"].as_str());
        let name = device["name"].as_str().filter(|_| risk > RiskClass::Usual)?;
        Some((name.to_owned(), risk))
    });
    risks.collect()
}

/// The class of a device: what its history says, and at least what its state says. A device that is
/// watched or has just returned is placed last. One that is out of service normally has a taint. It has
/// none under a policy that only observes, and is then taken only if nothing else is free.
fn class(state: &str, by_history: Option<&str>) -> RiskClass {
    let by_state = match state {
        "Healthy" => RiskClass::Usual,
        "Watch" | "Probation" => RiskClass::High,
        _ => RiskClass::Extreme,
    };
    by_state.max(by_history.and_then(RiskClass::named).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn state_and_history_make_the_class() {
        for (state, history, class) in [
            ("Healthy", None, RiskClass::Usual),
            ("Healthy", Some("raised"), RiskClass::Raised),
            ("Healthy", Some("dire"), RiskClass::Usual),
            ("Watch", Some("raised"), RiskClass::High),
            ("Probation", Some("extreme"), RiskClass::Extreme),
            ("Suspect", None, RiskClass::Extreme),
        ] {
            assert_eq!(super::class(state, history), class, "{state} {history:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_has_the_usual_risk() {
        let status = json!({"devices": [
            {"name": "gpu-0", "state": "Watch"}, {"name": "gpu-1"}, {"state": "Watch"}, 7,
            {"name": "gpu-2", "state": "Healthy", "risk": "high"},
        ]});
        let risks = [("gpu-0", RiskClass::High), ("gpu-2", RiskClass::High)];
        assert_eq!(read(&status), risks.map(|(name, risk)| (name.to_owned(), risk)).into());
        assert_eq!(read(&json!(null)), BTreeMap::new());
    }
}
