//! Devices of orders that are sent again: they are held all the time, whatever watches tell late.

use octavo_engine::placement::GpuParts;

use super::Devices;
use super::grant::Grant;
use super::ledger::extended_key;
use crate::bind::{Bind, ClaimWrite};

impl Devices {
    /// Whether all devices that an order gives are held by its claims, seen or assumed for its pod. Those of a
    /// claim that is gone nobody gives any more.
    pub fn are_held(&self, bind: &Bind) -> bool {
        bind.claims
            .iter()
            .all(|write| self.is_written(write) || self.is_pending(bind, &write.claim.meta.uid))
            && (bind.extended.is_none()
                || self.is_extended_written(bind)
                || self.is_pending(bind, &extended_key(&bind.pod.uid)))
    }

    /// Assumes again what an order gives and was seen given back. It was its own until this moment.
    pub fn hold_again(&mut self, bind: &Bind) {
        if self.are_held(bind) {
            return;
        }
        // What is seen holds its devices by itself.
        let is_unseen =
            |write: &&ClaimWrite| !self.is_written(write) || self.is_joining(bind, write);
        let claims = bind.claims.iter().filter(is_unseen).cloned().collect();
        let extended = bind.extended.clone().filter(|_| !self.is_extended_written(bind));
        self.assume(&Grant {
            pod: bind.pod.uid.clone(),
            namespace: bind.pod.name.namespace.clone(),
            node: bind.node.clone(),
            claims,
            extended,
            parts: GpuParts::new(),
            is_as_wanted: true,
        });
    }

    /// Whether a claim is seen allocated, is another by now, or is not this order's to allocate.
    fn is_written(&self, write: &ClaimWrite) -> bool {
        let known = self.ledger.claim(&write.claim.meta.name);
        write.allocation.is_none()
            || known.is_none_or(|known| {
                known.meta.uid != write.claim.meta.uid || known.claim.allocation.is_some()
            })
    }

    /// Whether the pod is to use a claim of others and is not seen among its users.
    fn is_joining(&self, bind: &Bind, write: &ClaimWrite) -> bool {
        let known = self.ledger.claim(&write.claim.meta.name);
        write.allocation.is_none()
            && known.is_some_and(|known| {
                known.meta.uid == write.claim.meta.uid
                    && known.reserved_for.iter().all(|one| one.uid != bind.pod.uid)
            })
    }

    fn is_extended_written(&self, bind: &Bind) -> bool {
        let claim = self.ledger.extended_of(&bind.pod.uid);
        claim.is_some_and(|claim| claim.claim.allocation.is_some())
    }

    fn is_pending(&self, bind: &Bind, key: &str) -> bool {
        self.ledger.pending(key).is_some_and(|assumed| assumed.pod == bind.pod.uid)
    }
}
