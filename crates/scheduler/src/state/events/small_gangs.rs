//! Gangs that run with fewer members than their minimum: after a time that their policy sets, the
//! other members are evicted.
//!
//! Such a gang makes no progress, and its GPUs serve no other pod. The members leave through the Eviction
//! API. Their owner creates them again, and the gang waits for places as a whole.

use octavo_kube_io::objects::PodUid;

use crate::groups::GroupName;
use crate::state::Scheduler;
use crate::state::queue::QueueKey;
use crate::state::reporter::pending_reason::Reason;

impl Scheduler {
    /// Evicts the members of gangs that have been below their minimum for too long. A gang with a
    /// nomination is about to get members. Only called while leading.
    pub(in crate::state) fn release_small_gangs(&mut self) {
        let now = self.cache.now();
        let due = |(group, since): (&GroupName, &u64)| {
            let spec = self.cache.spec_of(group)?;
            let seconds = self.cache.policies().below_minimum_seconds(spec.policy.as_deref())?;
            let at = since.saturating_add(seconds.saturating_mul(1000));
            let is_nominated = self.reservations.is_nominated(&QueueKey::Group(group.clone()));
            (at <= now && !is_nominated).then(|| (group.clone(), seconds))
        };
        let due: Vec<_> = self.cache.gangs_below_minimum().iter().filter_map(due).collect();
        for (group, seconds) in due {
            let members: Vec<PodUid> = self.cache.running_members(&group);
            let message = format!(
                "its gang {group} has had fewer members than its minimum for {seconds} s, and waits \
                 for places as a whole"
            );
            // Others may have the places at once.
            self.forget_restarts(|other| *other == group);
            self.cache.end_full_run(&group, false);
            for uid in members {
                self.remove_member(&uid, Reason::GangBelowMinimum, message.clone(), true);
            }
        }
    }
}
