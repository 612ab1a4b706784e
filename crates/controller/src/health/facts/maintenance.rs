//! What matters of work on nodes.

use kube::core::DynamicObject;
use octavo_api::maintenance::{Drain, MaintenanceSpec, MaintenanceStatus, Plan};

use super::{Fact, NodeFacts, Version, part, unix, version};

/// Work on nodes.
#[derive(Clone, Debug)]
pub struct MaintenanceFacts {
    /// The version of the object.
    pub version: Version,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// When the object was made, in seconds since 1970.
    pub made: u64,
    /// What is planned, or the field that is wrong and why.
    pub plan: Result<Plan, String>,
    /// Its status.
    pub status: MaintenanceStatus,
}

/// A maintenance. Its spec is read here and not by the watch: one that this version cannot read stops no other.
pub fn maintenance(object: &DynamicObject) -> Fact {
    Fact::Maintenance(Box::new(MaintenanceFacts::of(object)))
}

impl MaintenanceFacts {
    /// What matters of an object.
    pub fn of(object: &DynamicObject) -> Self {
        let spec = object.data.get("spec").cloned().unwrap_or_default();
        let plan = match serde_json::from_value::<MaintenanceSpec>(spec) {
            Ok(spec) => spec.check().map_err(|error| error.to_string()),
            Err(error) => Err(format!("spec: {error}")),
        };
        let made = object.metadata.creation_timestamp.as_ref().map_or(0, |at| unix(at.0));
        Self {
            version: version(&object.metadata),
            generation: object.metadata.generation,
            made,
            plan,
            status: part(&object.data, "status").unwrap_or_default(),
        }
    }

    /// What is to be carried out, unless it is wrong or was over before it was made.
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref().ok().filter(|plan| !plan.window.is_over(self.made))
    }

    /// What is carried out at a time.
    pub fn open(&self, now: u64) -> Option<&Plan> {
        self.plan().filter(|plan| plan.window.is_open(now))
    }

    /// Whether pods of a node are evicted for it at a time: that is written in its status, and its spec still says so.
    pub fn drains(&self, name: &str, node: &NodeFacts, now: u64) -> bool {
        let drained = self.open(now).filter(|plan| plan.drain == Drain::AtStart);
        drained.is_some_and(|plan| is_meant(plan, name, node))
            && self.status.draining.iter().any(|it| it.name == name)
    }
}

/// Whether a node is meant.
pub fn is_meant(plan: &Plan, name: &str, node: &NodeFacts) -> bool {
    plan.node_names.contains(name) || node.labels.are_selected_by(&plan.node_selector)
}
