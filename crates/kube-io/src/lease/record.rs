//! The content of a lease, and its age by the local clock.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use octavo_api::names::ANNOTATION_ADDRESS;
use tokio::time::Instant;

use super::LeaseOptions;

/// A lease as last observed.
#[derive(Clone, Debug)]
pub(super) struct ObservedLease {
    /// The whole object, to keep the fields of others.
    pub(super) lease: Lease,
    /// When this content was first observed. A new version with the same content does not count.
    pub(super) since: Instant,
}

impl ObservedLease {
    /// Observes a lease after an earlier observation.
    pub(super) fn after(old: Option<Self>, lease: Lease) -> Self {
        match old {
            Some(old) if old.lease.spec == lease.spec => Self { lease, since: old.since },
            _ => Self { lease, since: Instant::now() },
        }
    }

    /// The holder; `None` for a released lease.
    pub(super) fn holder(&self) -> Option<&str> {
        let holder = self.spec()?.holder_identity.as_deref();
        holder.filter(|holder| !holder.is_empty())
    }

    /// Whether another program holds it and may still renew it.
    pub(super) fn is_held_by_other(&self, options: &LeaseOptions) -> bool {
        let duration = self.spec().and_then(|spec| spec.lease_duration_seconds);
        let duration = duration.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = duration.map_or(options.duration, Duration::from_secs);
        self.holder().is_some_and(|holder| holder != options.identity)
            && self.since.elapsed() < duration
    }

    /// How often the holder has changed.
    pub(super) fn transitions(&self) -> i32 {
        self.spec().and_then(|spec| spec.lease_transitions).unwrap_or(0)
    }

    /// The lease with this program as holder.
    pub(super) fn taken(&self, options: &LeaseOptions) -> Lease {
        let is_ours = self.holder() == Some(options.identity.as_str());
        let mut lease = self.lease.clone();
        set_address(&mut lease.metadata, options.address.as_deref());
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

    /// The lease without holder: others need not wait.
    pub(super) fn released(&self) -> Lease {
        let mut lease = self.lease.clone();
        set_address(&mut lease.metadata, None);
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

/// A lease for which no object exists yet.
pub(super) fn new_lease(options: &LeaseOptions) -> Lease {
    let now = MicroTime(Timestamp::now());
    let mut metadata = ObjectMeta {
        namespace: Some(options.namespace.clone()),
        name: Some(options.name.clone()),
        ..ObjectMeta::default()
    };
    set_address(&mut metadata, options.address.as_deref());
    Lease {
        metadata,
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

/// Sets the annotation with the holder's address, or removes it.
fn set_address(metadata: &mut ObjectMeta, address: Option<&str>) {
    let key = ANNOTATION_ADDRESS.to_owned();
    match (address, &mut metadata.annotations) {
        (Some(address), annotations) => {
            annotations.get_or_insert_default().insert(key, address.to_owned());
        }
        (None, Some(annotations)) => {
            annotations.remove(&key);
        }
        (None, None) => {}
    }
}

/// Options are checked to fit.
fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}
