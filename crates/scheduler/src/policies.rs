//! Placement policies by name.

use std::sync::Arc;

use octavo_engine::objective::policy::PlacementPolicy;
use octavo_kube_io::objects::{Delta, Pod, WatchedObject};

use crate::groups::GroupSpec;
use crate::status::Report;

/// All policies.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    default: Arc<PlacementPolicy>,
}

impl Policies {
    /// Takes in a change.
    pub fn apply(&mut self, _: &Delta<WatchedObject>) -> Vec<Report> {
        Vec::new()
    }

    /// The policy of a pod.
    pub fn of_pod(&self, _: &Pod) -> Result<Arc<PlacementPolicy>, String> {
        Ok(Arc::clone(&self.default))
    }

    /// The policy of a gang.
    pub fn of_group(&self, _: &GroupSpec) -> Result<Arc<PlacementPolicy>, String> {
        Ok(Arc::clone(&self.default))
    }
}
