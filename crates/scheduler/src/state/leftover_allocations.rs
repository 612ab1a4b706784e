//! Work that an earlier scheduler left half done: finished where it can be, undone where it cannot.
//!
//! A claim that is allocated for a pod that is not bound says where the pod was to go. The pod is decided
//! on with that in view ([`crate::devices::AskedClaim::Allocated`]), so in most cases its binding is all
//! that is left. Where its node has no room any more the allocation is taken back.

use std::sync::Arc;

use super::Scheduler;
use super::pending_reason::PendingReason;
use super::queue::QueueKey;
use crate::devices::{AskError, AskedClaim};

impl Scheduler {
    /// Takes back what was allocated for the pods of a unit that was refused, where nobody else uses it.
    pub(super) fn roll_back_allocations(&mut self, key: &QueueKey) {
        for uid in self.pods_of(key) {
            let waits = self
                .pods
                .get(&uid)
                .is_some_and(|record| record.is_pending_for(&self.config.scheduler_name));
            if !waits || self.in_flight.values().any(|op| op.pod == uid) {
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
                Err(PendingReason::Claims(AskError::LeftBehind(claim))) => vec![claim],
                Err(_) => Vec::new(),
            };
            let Some(pod) = self.pods.get(&uid).map(super::PodRecord::reference) else { continue };
            for claim in claims {
                self.roll_back_claim(&pod, &claim);
            }
        }
    }
}
