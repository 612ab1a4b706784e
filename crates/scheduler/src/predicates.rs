//! Whether a pod may run on a node, by Kubernetes' rules: the filters of kube-scheduler that do not
//! look at dynamic resources.
//!
//! The answer is exact: a differential test compares it with kube-scheduler's own filters. The
//! engine's picture is coarser (whole MiB, no ports) and never more generous.

use octavo_kube_io::objects::{Node, Pod};

/// Why a pod cannot run on a node, one filter's reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// Placeholder of the skeleton: see the module's owner.
    #[error("node {0} does not fit")]
    Node(String),
}

/// What pods take of a node, summed exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage;

/// Whether `pod` may run on `node` beside `usage`, leaving dynamic resources out.
pub fn check(_pod: &Pod, _node: &Node, _usage: &Usage) -> Result<(), Unfit> {
    Ok(())
}
