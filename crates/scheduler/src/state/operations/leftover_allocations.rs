//! Allocations that an earlier leader left without a binding: adopted where possible, rolled back
//! otherwise.
//!
//! An allocated claim of an unbound pod names the node where the pod was to go. The decision takes
//! that into account ([`crate::devices::AskedClaim::Allocated`]). So usually only the binding is
//! left to write. If the pod no longer fits its node, the allocation is rolled back.

use std::sync::Arc;

use crate::devices::{AskError, AskedClaim};
use crate::state::Scheduler;
use crate::state::cache::pod::PodRecord;
use crate::state::queue::QueueKey;
use crate::state::reporter::pending_reason::PendingReason;

impl Scheduler {
    /// Rolls back allocations for the pods of an unschedulable entry, unless other pods use them.
    pub(in crate::state) fn roll_back_allocations(&mut self, key: &QueueKey) {
        for uid in self.cache.pods_of(key) {
            if !self.cache.is_pending(&uid) || self.operations.is_in_flight_for(&uid) {
                continue;
            }
            let claims: Vec<_> = match self.ask(&uid) {
                Ok(ask) => ask
                    .claims
                    .iter()
                    .filter_map(|claim| match claim {
                        AskedClaim::Allocated {
                            claim,
                            allocating: None,
                            is_reserved: true,
                            ..
                        } => (claim.reserved_for.len() == 1).then(|| Arc::clone(claim)),
                        _ => None,
                    })
                    .collect(),
                Err(PendingReason::Claims(AskError::LeftFromEarlierAttempt(claim))) => vec![claim],
                Err(_) => Vec::new(),
            };
            let Some(pod) = self.cache.pod(&uid).map(PodRecord::reference) else { continue };
            for claim in claims {
                self.roll_back_claim(&pod, &claim);
            }
        }
    }
}
