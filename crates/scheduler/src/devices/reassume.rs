//! Devices of orders that are sent again: they are held all the time, whatever watches tell late.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_engine::placement::GpuParts;
use octavo_kube_io::objects::Claim;

use super::assume_cache::extended_key;
use super::pod_allocation::PodAllocation;
use super::{Devices, Invalidation};
use crate::bind::{Bind, ClaimWrite};

impl Devices {
    /// Whether all devices that an order gives are held by its claims, seen or assumed for its pod. Those of a
    /// claim that is gone nobody gives any more.
    pub fn are_devices_held(&self, bind: &Bind) -> bool {
        bind.claims
            .iter()
            .all(|write| self.is_written(write) || self.is_pending(bind, &write.claim.meta.uid))
            && (bind.extended.is_none()
                || self.is_extended_written(bind)
                || self.is_pending(bind, &extended_key(&bind.pod.uid)))
    }

    /// An order ended, and nobody has seen what it left: it may have written to its claims and taken that
    /// back.
    ///
    /// `is_pod_there`: of a pod that is gone nothing is decided any more.
    pub fn note_rollback(&mut self, bind: &Bind, is_pod_there: bool) {
        for write in &bind.claims {
            let meta = &write.claim.meta;
            if self.claim(&meta.name).is_some_and(|claim| claim.meta.uid == meta.uid) {
                self.assume_cache.note_rollback(Arc::clone(&meta.uid));
            }
        }
        if bind.extended.is_some() && is_pod_there {
            self.assume_cache.note_rollback(extended_key(&bind.pod.uid));
        }
    }

    /// What a pod's order was to allocate is one of these pods' from now on, if it uses it.
    pub fn transfer_assumed(&mut self, pod: &str, heirs: &BTreeSet<Arc<str>>) {
        self.assume_cache.transfer_assumed(pod, heirs);
    }

    /// A claim is taken back, or was.
    pub fn note_claim_rollback(&mut self, claim: &Claim) {
        self.assume_cache.note_rollback(Arc::clone(&claim.meta.uid));
    }

    /// Tells the time.
    pub fn tick(&mut self, now: u64) {
        self.assume_cache.tick(now);
    }

    /// All that was written of claims before this time was told.
    pub fn on_relist(&mut self, at: u64) {
        self.assume_cache.on_relist(at);
    }

    /// Whether a claim may have been taken back since it was seen.
    pub fn may_be_rolled_back(&self, claim: &Claim) -> bool {
        self.assume_cache.may_be_rolled_back(&claim.meta.uid)
    }

    /// Somebody else has bound a pod, or may have: what is seen of its claims is the truth.
    pub fn accept_observed(&mut self, pod: &str) -> Invalidation {
        let changed = self.assume_cache.accept_observed(pod);
        self.holdings(changed)
    }

    /// A pod is gone.
    pub fn pod_gone(&mut self, pod: &str) {
        self.assume_cache.pod_gone(pod);
    }

    /// Assumes again what an order gives and was seen given back. It was its own until this moment.
    pub fn reassume(&mut self, bind: &Bind) {
        if self.are_devices_held(bind) {
            return;
        }
        // What is seen holds its devices by itself.
        let is_unseen = |write: &&ClaimWrite| {
            let is_pending = self.is_pending(bind, &write.claim.meta.uid);
            !self.is_written(write) || is_pending || self.is_joining(bind, write)
        };
        let claims = bind.claims.iter().filter(is_unseen).cloned().collect();
        let extended = bind.extended.clone().filter(|_| {
            !self.is_extended_written(bind) || self.is_pending(bind, &extended_key(&bind.pod.uid))
        });
        self.assume(&PodAllocation {
            pod: bind.pod.uid.clone(),
            namespace: bind.pod.name.namespace.clone(),
            node: bind.node.clone(),
            claims,
            extended,
            parts: GpuParts::new(),
            matches_choice: true,
        });
    }

    /// Whether a claim is seen allocated, is another by now, or is not this order's to allocate.
    fn is_written(&self, write: &ClaimWrite) -> bool {
        let observed = self.assume_cache.claim(&write.claim.meta.name);
        write.allocation.is_none()
            || observed.is_none_or(|observed| {
                observed.meta.uid != write.claim.meta.uid || observed.claim.allocation.is_some()
            })
    }

    /// Whether the pod is to use a claim of others and is not seen among its users.
    fn is_joining(&self, bind: &Bind, write: &ClaimWrite) -> bool {
        let observed = self.assume_cache.claim(&write.claim.meta.name);
        write.allocation.is_none()
            && observed.is_some_and(|observed| {
                observed.meta.uid == write.claim.meta.uid
                    && observed.reserved_for.iter().all(|one| one.uid != bind.pod.uid)
            })
    }

    fn is_extended_written(&self, bind: &Bind) -> bool {
        let claim = self.assume_cache.extended_claim_of(&bind.pod.uid);
        claim.is_some_and(|claim| claim.claim.allocation.is_some())
    }

    fn is_pending(&self, bind: &Bind, key: &str) -> bool {
        self.assume_cache.pending(key).is_some_and(|assumed| assumed.pod == bind.pod.uid)
    }
}
