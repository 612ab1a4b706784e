//! What a lease says, and since when by our own clock.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::Instant;

use super::LeaseOptions;

/// A lease as it was last seen.
#[derive(Clone, Debug)]
pub(super) struct ObservedLease {
    /// The whole object: what others wrote there is kept.
    pub(super) lease: Lease,
    /// When what it says was first seen. A new version that says the same does not count.
    pub(super) since: Instant,
}

impl ObservedLease {
    /// Sees a lease after another.
    pub(super) fn after(old: Option<Self>, lease: Lease) -> Self {
        match old {
            Some(old) if old.lease.spec == lease.spec => Self { lease, since: old.since },
            _ => Self { lease, since: Instant::now() },
        }
    }

    /// Who holds it; `None`: nobody.
    pub(super) fn holder(&self) -> Option<&str> {
        let holder = self.spec()?.holder_identity.as_deref();
        holder.filter(|holder| !holder.is_empty())
    }

    /// Whether somebody else holds it and may still renew it.
    pub(super) fn is_held_by_other(&self, options: &LeaseOptions) -> bool {
        let duration = self.spec().and_then(|spec| spec.lease_duration_seconds);
        let duration = duration.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = duration.map_or(options.duration, Duration::from_secs);
        self.holder().is_some_and(|holder| holder != options.identity)
            && self.since.elapsed() < duration
    }

    /// How often it has changed hands.
    pub(super) fn transitions(&self) -> i32 {
        self.spec().and_then(|spec| spec.lease_transitions).unwrap_or(0)
    }

    /// The lease in our hands.
    pub(super) fn taken(&self, options: &LeaseOptions) -> Lease {
        let is_ours = self.holder() == Some(options.identity.as_str());
        let mut lease = self.lease.clone();
        let spec = lease.spec.get_or_insert_default();
        let now = MicroTime(Timestamp::now());
        if !is_ours {
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        spec.holder_identity = Some(options.identity.clone());
        spec.lease_duration_seconds = Some(seconds(options.duration));
        spec.renew_time = Some(now);
        lease
    }

    /// The lease in nobody's hands: others need not wait.
    pub(super) fn released(&self) -> Lease {
        let mut lease = self.lease.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        lease
    }

    fn spec(&self) -> Option<&LeaseSpec> {
        self.lease.spec.as_ref()
    }
}

/// A lease that nobody made before.
pub(super) fn new_lease(options: &LeaseOptions) -> Lease {
    let now = MicroTime(Timestamp::now());
    Lease {
        metadata: ObjectMeta {
            namespace: Some(options.namespace.clone()),
            name: Some(options.name.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(options.identity.clone()),
            lease_duration_seconds: Some(seconds(options.duration)),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        }),
    }
}

/// Options were checked to fit.
fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}
