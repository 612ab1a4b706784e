//! Why claims cannot be allocated on a node.

use std::fmt;

use crate::claim::{Claim, Rule};
use crate::features::Feature;
use crate::node::NodeSelectorError;
use crate::pools::{PoolDefect, PoolRef};
use octavo_cel::CelError;

/// Limit of the results in an allocation (`AllocationResultsMaxSize` of `resource.k8s.io`).
pub const MAX_RESULTS_PER_CLAIM: usize = 32;

/// A claim by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A device by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceRef {
    /// Its driver.
    pub driver: String,
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub device: String,
}

/// Why claims cannot be allocated on a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// No choice of free devices satisfies all claims.
    #[error("the node's free devices do not serve all claims")]
    NoFit,
    /// As [`AllocateError::NoFit`], and a pool of the node was skipped because it contradicts
    /// itself.
    #[error(
        "the node's free devices do not serve all claims, and pool {pool} is invalid: {defect}"
    )]
    InvalidPool {
        /// The pool.
        pool: PoolRef,
        /// What is wrong with it.
        defect: PoolDefect,
    },
    /// The search reached its step limit.
    #[error(
        "gave up after {limit} search steps; request fewer devices or fewer alternatives in one pod"
    )]
    Steps {
        /// The limit.
        limit: u64,
    },
    /// A claim needs more results than it may have.
    #[error("claim {claim} asks for {wanted} devices; a claim may have {MAX_RESULTS_PER_CLAIM}")]
    TooManyDevices {
        /// The claim.
        claim: ClaimRef,
        /// The least number of results that it needs.
        wanted: usize,
        /// Whether a request asks for all matching devices; another node may have fewer.
        is_node_specific: bool,
    },
    /// A request cannot be allocated until its cause is repaired.
    #[error("claim {claim}, request {request}: {error}")]
    Request {
        /// The claim.
        claim: ClaimRef,
        /// `<request>` or `<request>/<alternative>`.
        request: String,
        /// What is wrong.
        error: Box<RequestError>,
    },
    /// The node selector of a slice is malformed.
    #[error("slice {slice}: {error}")]
    NodeSelector {
        /// Name of the slice.
        slice: String,
        /// What is wrong.
        error: NodeSelectorError,
    },
    /// The node selector of a slice has several terms, which an allocation cannot express.
    #[error("slice {slice} selects nodes with {terms} terms; one is allowed")]
    NodeSelectorTerms {
        /// Name of the slice.
        slice: String,
        /// Number of terms.
        terms: usize,
    },
}

/// Why a request cannot be allocated on any choice of devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// There is no such class.
    #[error("there is no device class {0}")]
    UnknownClass(String),
    /// It uses a feature that is off in the cluster.
    #[error("it needs the feature {0:?}, which is off in this cluster")]
    FeatureOff(Feature),
    /// The request asks for all devices, but a pool is incomplete.
    #[error("it asks for all devices, but pool {0} is being updated")]
    PoolIncomplete(PoolRef),
    /// The request asks for all devices, but a pool contradicts itself.
    #[error("it asks for all devices, but pool {pool} is invalid: {defect}")]
    PoolInvalid {
        /// The pool.
        pool: PoolRef,
        /// What is wrong with it.
        defect: PoolDefect,
    },
    /// A selector does not compile, or fails on a device.
    #[error("{}{error}", of_class(class.as_deref()))]
    Cel {
        /// The class whose selector it is; `None`: the request's own.
        class: Option<String>,
        /// What is wrong.
        error: CelError,
    },
    /// The request asks for all devices, but a constraint excludes one of them.
    #[error("it asks for all devices, but with {device} they do not {}", agreement(rule))]
    ConstraintOfAll {
        /// The device.
        device: DeviceRef,
        /// The constraint.
        rule: Rule,
    },
}

impl AllocateError {
    /// Whether another node may satisfy the claims. Otherwise a claim, a class or a slice must be
    /// repaired first.
    pub fn is_node_specific(&self) -> bool {
        matches!(self, Self::NoFit | Self::InvalidPool { .. } | Self::Steps { .. })
    }

    /// Whether only the claims or their classes are at fault, so that no node can satisfy the
    /// claims.
    pub fn is_claim_specific(&self) -> bool {
        match self {
            Self::TooManyDevices { is_node_specific, .. } => !is_node_specific,
            Self::Request { error, .. } => {
                matches!(**error, RequestError::UnknownClass(_) | RequestError::FeatureOff(_))
            }
            _ => false,
        }
    }

    /// Whether [`octavo_cel`] could not compile a selector. The API server compiles selectors at
    /// admission, so Kubernetes may evaluate it.
    pub fn is_unsupported_selector(&self) -> bool {
        let Self::Request { error, .. } = self else { return false };
        let RequestError::Cel { error, .. } = &**error else { return false };
        matches!(error, CelError::Compile { .. } | CelError::TooLong { .. })
    }

    pub(super) fn request(claim: &Claim, request: String, error: RequestError) -> Self {
        Self::Request { claim: ClaimRef::of(claim), request, error: Box::new(error) }
    }
}

impl ClaimRef {
    /// The reference to a claim.
    pub fn of(claim: &Claim) -> Self {
        Self { namespace: claim.namespace.clone(), name: claim.name.clone() }
    }
}

impl fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for DeviceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// A prefix that names the class of a selector.
pub(super) fn of_class(class: Option<&str>) -> String {
    class.map(|class| format!("class {class}: ")).unwrap_or_default()
}

/// The relation that a constraint requires.
pub(super) fn agreement(rule: &Rule) -> String {
    match rule {
        Rule::Match(attribute) => format!("agree in {attribute}"),
        Rule::Distinct(attribute) => format!("differ in {attribute}"),
    }
}
