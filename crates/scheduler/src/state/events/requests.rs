//! Requests of pending pods in the engine's terms, and when they are computed again.

use std::sync::Arc;

use octavo_engine::Shape;
use octavo_kube_io::objects::PodUid;

use crate::devices::Ask;
use crate::state::Scheduler;
use crate::state::cache::node_mask::NodeMask;

impl Scheduler {
    /// The shape of a pending pod, and how its node requirement is checked.
    pub(in crate::state) fn shape_of_waiting(
        &mut self,
        uid: &PodUid,
        ask: &Ask,
    ) -> Option<(Arc<Shape>, NodeMask)> {
        let (shape, mask, is_new) = self.cache.shape_of_waiting(uid, ask)?;
        if is_new {
            // Cached refusals used the former requirement of this bit.
            self.refusals.forget_mask(mask);
        }
        Some((shape, mask))
    }

    /// Forgets the request of a pod, which is then computed again.
    pub(in crate::state) fn forget_request(&mut self, uid: &PodUid) {
        self.cache.forget_request(uid);
        self.wake(uid);
    }

    /// Forgets the requests of all pending pods, after a change of `DeviceClass`es.
    pub(in crate::state) fn forget_all_requests(&mut self) {
        self.requeue_changed_gangs();
        let pending: Vec<_> =
            self.queue.in_order().flat_map(|entry| self.cache.pods_of(&entry.key)).collect();
        for uid in pending {
            self.forget_request(&uid);
        }
        self.refusals.clear();
    }
}
