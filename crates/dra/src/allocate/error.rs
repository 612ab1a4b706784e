//! Why claims get nothing on a node.

use std::fmt;

use crate::claim::{Claim, Rule};
use crate::features::Feature;
use crate::node::NodeSelectorError;
use crate::pools::{PoolDefect, PoolRef};
use octavo_cel::CelError;

/// Most results that a claim may have.
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

/// Why claims get nothing on a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// No choice of devices serves all claims together.
    #[error("the node's free devices do not serve all claims")]
    NoFit,
    /// As [`AllocateError::NoFit`], and one of the node's pools is left out because it contradicts itself.
    #[error(
        "the node's free devices do not serve all claims, and pool {pool} is invalid: {defect}"
    )]
    InvalidPool {
        /// The pool.
        pool: PoolRef,
        /// What is wrong with it.
        defect: PoolDefect,
    },
    /// The search was given up.
    #[error(
        "no answer after {limit} steps of search; ask for fewer devices or fewer alternatives in one pod"
    )]
    Steps {
        /// How many steps it was allowed.
        limit: u64,
    },
    /// A claim needs more results than it may have.
    #[error("claim {claim} asks for {wanted} devices; a claim may have {MAX_RESULTS_PER_CLAIM}")]
    TooManyDevices {
        /// The claim.
        claim: ClaimRef,
        /// How many it needs at least.
        wanted: usize,
        /// Whether it asks for all devices that match: another node may have fewer.
        is_node_specific: bool,
    },
    /// A request cannot be served as long as something is not repaired.
    #[error("claim {claim}, request {request}: {error}")]
    Request {
        /// The claim.
        claim: ClaimRef,
        /// `<request>` or `<request>/<alternative>`.
        request: String,
        /// What is wrong.
        error: Box<RequestError>,
    },
    /// A slice selects its nodes in an unsound way.
    #[error("slice {slice}: {error}")]
    NodeSelector {
        /// Name of the slice.
        slice: String,
        /// What is wrong.
        error: NodeSelectorError,
    },
    /// A slice selects its nodes with several terms, which an allocation cannot carry on.
    #[error("slice {slice} selects nodes with {terms} terms; one is allowed")]
    NodeSelectorTerms {
        /// Name of the slice.
        slice: String,
        /// How many terms it has.
        terms: usize,
    },
}

/// What is wrong with a request, or with what it needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// There is no such class.
    #[error("there is no device class {0}")]
    UnknownClass(String),
    /// It uses a feature that is off in the cluster.
    #[error("it needs {0:?}, which is off in this cluster")]
    FeatureOff(Feature),
    /// It asks for all devices, but a pool is not complete.
    #[error("it asks for all devices, but pool {0} is being updated")]
    PoolIncomplete(PoolRef),
    /// It asks for all devices, but a pool contradicts itself.
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
    /// It asks for all devices, but a constraint keeps one of them out.
    #[error("it asks for all devices, but with {device} they do not {}", agreement(rule))]
    ConstraintOfAll {
        /// The device.
        device: DeviceRef,
        /// What does not hold.
        rule: Rule,
    },
}

impl AllocateError {
    /// Whether it is about this node only, so that another node may serve the claims. Otherwise a
    /// claim, a class or a slice has to be repaired first.
    pub fn is_node_specific(&self) -> bool {
        matches!(self, Self::NoFit | Self::InvalidPool { .. } | Self::Steps { .. })
    }

    /// Whether it is about the claims or their classes alone, so that no node can serve the claims.
    pub fn is_claim_specific(&self) -> bool {
        match self {
            Self::TooManyDevices { is_node_specific, .. } => !is_node_specific,
            Self::Request { error, .. } => {
                matches!(**error, RequestError::UnknownClass(_) | RequestError::FeatureOff(_))
            }
            _ => false,
        }
    }

    /// Whether a selector is not understood here. The API server compiles selectors before it takes
    /// them, so Kubernetes may have an answer.
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
    /// The name of a claim.
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

/// Names the class whose selector is spoken of.
pub(super) fn of_class(class: Option<&str>) -> String {
    class.map(|class| format!("class {class}: ")).unwrap_or_default()
}

/// What devices should do under a rule.
pub(super) fn agreement(rule: &Rule) -> String {
    match rule {
        Rule::Match(attribute) => format!("agree in {attribute}"),
        Rule::Distinct(attribute) => format!("differ in {attribute}"),
    }
}
