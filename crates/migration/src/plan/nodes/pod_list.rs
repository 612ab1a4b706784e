//! Pods, of which a few are named.

use std::fmt;

use serde::Serialize;

/// Pods that are named; the rest is a count.
const MAX_NAMED: usize = 5;

/// Pods, of which a few are named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodList {
    /// The first five, `namespace/name`.
    pub names: Vec<String>,
    /// All of them.
    pub count: usize,
}

/// Pods by their names.
pub(super) fn pod_list(pods: &[String]) -> PodList {
    PodList { names: pods.iter().take(MAX_NAMED).cloned().collect(), count: pods.len() }
}

impl fmt::Display for PodList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names.join(", "))?;
        match self.count.saturating_sub(self.names.len()) {
            0 => Ok(()),
            rest => write!(f, " and {rest} more"),
        }
    }
}
