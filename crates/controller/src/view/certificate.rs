//! The Secret with the certificate of daemons, without its content.

use jiff::{Span, Timestamp};

use super::OwnedObject;

/// Days after which the certificate of an IMEX domain without daemons is replaced.
const RENEW_AFTER_DAYS: i64 = 365;
/// Days before the end of a certificate from which its daemons should be started with another.
const LATE_DAYS: i64 = 90;

/// A Secret with the name of that of a domain's daemons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSecret {
    /// Its metadata. The hash is that of the names in the certificate.
    pub object: OwnedObject,
    /// UID of the domain in its name.
    pub domain: String,
    /// UID of the `DaemonSet` that owns it: it disappears with that.
    pub owner: Option<String>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// When its certificate ends.
    pub expires: Option<Timestamp>,
}

impl CertificateSecret {
    /// Whether it is another owner's. Those of the controller have the label of the domain, and an owner.
    pub fn is_foreign(&self) -> bool {
        !self.object.is_of(&self.domain) || self.owner.is_none()
    }

    /// Whether its certificate is old enough for another one.
    pub fn is_old(&self, now: Timestamp) -> bool {
        self.created.is_some_and(|created| now >= after_days(created, RENEW_AFTER_DAYS))
            || self.near_end(now).is_some()
    }

    /// The end of its certificate, if that is near or was.
    pub fn near_end(&self, now: Timestamp) -> Option<Timestamp> {
        self.expires.filter(|expires| after_days(now, LATE_DAYS) >= *expires)
    }
}

fn after_days(time: Timestamp, days: i64) -> Timestamp {
    time.checked_add(Span::new().hours(24 * days)).unwrap_or(Timestamp::MAX)
}
