//! The `Lease` that names the active scheduler, and the address at which a scheduler that is no pod
//! listens.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use octavo_api::names::ANNOTATION_ADDRESS;

use super::SchedulerAddress;
use crate::age::age;
use crate::error::ViewError;
use crate::snapshot::ObjectName;

/// Duration of a lease that gives none, in seconds: the default of Kubernetes' components.
const DEFAULT_LEASE_SECONDS: i32 = 15;

/// Name of a scheduler's `Lease`. The default is that of a scheduler without a config file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName(ObjectName);

/// The text is no name of a lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not the name of a Lease: give NAMESPACE/NAME, such as octavo-system/octavo-scheduler"
)]
pub struct LeaseNameError(String);

/// The holder of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseHolder {
    /// Its identity; a pod's name if it is a pod.
    pub(crate) identity: String,
    /// The address of its admin server, if it is no pod.
    pub(super) address: Option<SchedulerAddress>,
}

/// Why a lease names no scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseProblem {
    /// It does not exist.
    Missing,
    /// It has no holder: the scheduler has stopped.
    Released,
    /// The holder has not renewed it.
    Expired {
        /// The holder's identity.
        holder: String,
        /// The holder's address, if it is no pod.
        address: Option<String>,
        /// Time since the last renewal, as people write it; absent if it was never renewed.
        since: Option<String>,
    },
    /// The annotation with the holder's address is no address.
    Unparsable {
        /// The annotation's value.
        address: String,
    },
    /// The user may not read it.
    Forbidden {
        /// The API server's words.
        message: String,
    },
}

impl LeaseName {
    /// A lease by its name.
    pub(crate) fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self(ObjectName::new(namespace, name))
    }

    /// That of a controller of `ComputeDomains` without a config file.
    pub(crate) fn controller() -> Self {
        Self::new("octavo-system", "octavo-controller")
    }

    pub(crate) fn namespace(&self) -> &str {
        let Self(name) = self;
        &name.namespace
    }
}

impl Default for LeaseName {
    fn default() -> Self {
        Self::new("octavo-system", "octavo-scheduler")
    }
}

impl FromStr for LeaseName {
    type Err = LeaseNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name))
                if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
            {
                Ok(Self(ObjectName::new(namespace, name)))
            }
            _ => Err(LeaseNameError(text.to_owned())),
        }
    }
}

impl fmt::Display for LeaseName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        name.fmt(out)
    }
}

impl fmt::Display for LeaseProblem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => out.write_str("does not exist"),
            Self::Released => out.write_str("has no holder"),
            Self::Expired { holder, since: Some(since), .. } => {
                write!(out, "has expired: its holder {holder} renewed it {since} ago")
            }
            Self::Expired { holder, since: None, .. } => {
                write!(out, "has expired: its holder {holder} never renewed it")
            }
            Self::Unparsable { address } => {
                write!(
                    out,
                    "has the annotation {ANNOTATION_ADDRESS} {address:?}, which is no address"
                )
            }
            Self::Forbidden { message } => write!(out, "may not be read: {message}"),
        }
    }
}

impl LeaseProblem {
    /// What the user can do about it.
    pub(crate) fn hint(&self, lease: &LeaseName) -> String {
        match self {
            Self::Missing => "check that Octavo's scheduler runs; --scheduler-lease NAMESPACE/NAME names the Lease of \
                 its config file, and --scheduler HOST:PORT the address of its --metrics-listen"
                .to_owned(),
            Self::Released => "no scheduler is running: start Octavo's scheduler".to_owned(),
            Self::Expired { address: Some(address), .. } => format!(
                "the scheduler at {address} has stopped or does not reach the API server: start it, or read its log; \
                 --scheduler {address} asks it nevertheless"
            ),
            Self::Expired { address: None, .. } => {
                "the scheduler has stopped or does not reach the API server: start it, or read its log".to_owned()
            }
            Self::Unparsable { .. } => {
                "use the octavo of the scheduler's version (`octavo version`), or give --scheduler HOST:PORT".to_owned()
            }
            Self::Forbidden { .. } => format!(
                "ask an administrator for the right to get the Lease {lease}, or give --scheduler HOST:PORT"
            ),
        }
    }
}

/// The holder of a lease at a given time. Any failure but a missing right ends the command.
pub(crate) async fn holder(
    client: &Client,
    lease: &LeaseName,
    now: Timestamp,
) -> Result<Result<LeaseHolder, LeaseProblem>, ViewError> {
    let LeaseName(name) = lease;
    let leases: Api<Lease> = Api::namespaced(client.clone(), &name.namespace);
    match leases.get_opt(&name.name).await {
        Ok(Some(lease)) => Ok(holder_of(lease, now)),
        Ok(None) => Ok(Err(LeaseProblem::Missing)),
        Err(error) => {
            let error = ViewError::api("leases", error);
            match error.forbidden() {
                Some(message) => Ok(Err(LeaseProblem::Forbidden { message })),
                None => Err(error),
            }
        }
    }
}

/// The holder, unless the lease has expired. Its times are those of the holder's clock.
fn holder_of(lease: Lease, now: Timestamp) -> Result<LeaseHolder, LeaseProblem> {
    let spec = lease.spec.unwrap_or_default();
    let annotations = lease.metadata.annotations.unwrap_or_default();
    let address = annotations.get(ANNOTATION_ADDRESS).cloned();
    let Some(identity) = spec.holder_identity.filter(|holder| !holder.is_empty()) else {
        return Err(LeaseProblem::Released);
    };
    let seconds = spec.lease_duration_seconds.unwrap_or(DEFAULT_LEASE_SECONDS);
    let duration = SignedDuration::from_secs(seconds.into());
    let renewed = spec.renew_time.map(|time| time.0);
    let is_current = renewed.is_some_and(|at| now.duration_since(at) < duration);
    if !is_current {
        let since = renewed.map(|at| age(at, now));
        return Err(LeaseProblem::Expired { holder: identity, address, since });
    }
    let address = match address {
        Some(text) => Some(text.parse().map_err(|_| LeaseProblem::Unparsable { address: text })?),
        None => None,
    };
    Ok(LeaseHolder { identity, address })
}
