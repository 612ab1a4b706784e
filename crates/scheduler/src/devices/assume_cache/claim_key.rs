//! The key of a claim that may not exist yet.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use octavo_kube_io::objects::Claim;

/// What follows the pod's UID in the key of an extended claim.
const EXTENDED_SUFFIX: &str = "/extended";

/// The key of a claim: its UID, or a stand-in for the UID of a pod's extended claim.
///
/// An extended claim is assumed before it is created, so it has no UID then. Its stand-in is
/// `<pod's UID>/extended`, which is the UID of no object. Both kinds of keys order as one text, and
/// a claim's UID finds its key.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimKey(Arc<str>);

impl ClaimKey {
    /// The key of an existing claim.
    pub fn of(claim: &Claim) -> Self {
        Self(Arc::clone(&claim.meta.uid))
    }

    /// The key of the extended claim of a pod, by the pod's UID.
    pub fn extended(pod: &str) -> Self {
        Self(format!("{pod}{EXTENDED_SUFFIX}").into())
    }

    /// Whether it stands in for the extended claim of a pod.
    pub fn is_extended_of(&self, pod: &str) -> bool {
        self.0.strip_suffix(EXTENDED_SUFFIX) == Some(pod)
    }
}

impl Deref for ClaimKey {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ClaimKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
