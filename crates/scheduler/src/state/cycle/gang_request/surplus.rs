//! Members of a repaired gang above its minimum: they take no spare nodes.

use octavo_kube_io::objects::PodUid;

use super::MemberOrder;
use crate::groups::{GroupName, GroupSpec};
use crate::state::cache::Cache;

impl Cache {
    /// Leaves out pending members above the minimum, where spare nodes are used for the others.
    /// Segments are placed as a whole.
    pub(super) fn leave_out_surplus(
        &self,
        members: &mut Vec<MemberOrder>,
        group: &GroupName,
        spec: &GroupSpec,
    ) {
        let policy = self.policies().find(spec.policy.as_deref());
        if !policy.is_ok_and(|policy| self.repair_policy(group, spec, policy).is_some()) {
            return;
        }
        let is_placed = |uid: &PodUid| self.pod(uid).is_some_and(|record| record.place.is_some());
        let mut lacks: Vec<u32> = spec.subs.iter().map(|sub| sub.min).collect();
        for member in members.iter().filter(|member| is_placed(&member.uid)) {
            lacks[member.sub] = lacks[member.sub].saturating_sub(1);
        }
        members.retain(|member| {
            let is_kept = is_placed(&member.uid)
                || spec.subs[member.sub].segment.is_some()
                || lacks[member.sub] > 0;
            if is_kept && !is_placed(&member.uid) {
                lacks[member.sub] = lacks[member.sub].saturating_sub(1);
            }
            is_kept
        });
    }
}
