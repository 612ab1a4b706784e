//! Which pods leave a lost node: members of gangs of one scheduler.

use k8s_openapi::api::core::v1::Pod;
use octavo_api::names::REASON_NODE_LOST;
use octavo_kube_io::objects::Pod as SeenPod;

use super::{Victim, has_ended, tolerates_taint};
use crate::gangs::gang_of;
use crate::health::facts::{TAINTS_NOT_READY, unix};
use crate::health::lost_nodes::LostNode;
use crate::health::plan::Urgency;

/// A member of a gang on a lost node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GangMember {
    /// It leaves in its turn.
    Due(Victim),
    /// It may stay until a time, in seconds since 1970.
    Waits(u64),
    /// It leaves since a time, in seconds since 1970.
    Leaves(u64),
}

/// What becomes of a pod of a lost node at a time; `None` if it is no member of a gang.
pub fn member(pod: &Pod, node: &str, lost: &LostNode, now: u64) -> Option<GangMember> {
    let (metadata, spec) = (&pod.metadata, pod.spec.as_ref()?);
    if has_ended(pod) || spec.scheduler_name.as_deref() != Some(&lost.scheduler) {
        return None;
    }
    let seen = SeenPod::from_value(serde_json::to_value(pod).ok()?).ok()?;
    gang_of(&seen)?;
    if let Some(at) = &metadata.deletion_timestamp {
        // The time is that of the end of the grace period.
        let grace = metadata.deletion_grace_period_seconds.unwrap_or_default();
        let grace = u64::try_from(grace).unwrap_or_default();
        return Some(GangMember::Leaves(unix(at.0).saturating_sub(grace)));
    }
    let wait = if lost.after == 0 { 0 } else { lost.after.max(tolerated(pod)) };
    let due = lost.since.saturating_add(wait);
    if now < due {
        return Some(GangMember::Waits(due));
    }
    let note = format!("node {node} is lost; the gang gets a new member on another node");
    Some(GangMember::Due(Victim::new(pod, Urgency::Deleted, REASON_NODE_LOST, note)))
}

/// How long a pod tolerates that its node is lost, in seconds. The shortest toleration counts, as in Kubernetes. One without seconds is
/// for ever.
fn tolerated(pod: &Pod) -> u64 {
    let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    let matching = tolerations.filter(|toleration| {
        TAINTS_NOT_READY.iter().any(|key| tolerates_taint(toleration, key, "NoExecute"))
    });
    let seconds = matching.map(|toleration| match toleration.toleration_seconds {
        Some(seconds) => u64::try_from(seconds).unwrap_or_default(),
        None => u64::MAX,
    });
    seconds.min().unwrap_or_default()
}
