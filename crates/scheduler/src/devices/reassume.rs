//! Devices of operations that are retried. They stay assumed throughout, whatever stale watch
//! events show.

use std::collections::BTreeSet;

use octavo_engine::placement::GpuParts;
use octavo_kube_io::objects::{Claim, PodUid};

use super::assume_cache::ClaimKey;
use super::pod_allocation::PodAllocation;
use super::{Devices, Invalidation};
use crate::bind::{Bind, ClaimWrite};

impl Devices {
    /// Whether all devices of an operation are held by its claims, observed or assumed for its pod.
    /// Devices of a deleted claim count as held: no operation can allocate it any more.
    pub fn are_devices_held(&self, bind: &Bind) -> bool {
        bind.claims
            .iter()
            .all(|write| self.is_written(write) || self.is_pending(bind, &write.claim.meta.uid))
            && (bind.extended.is_none()
                || self.is_extended_written(bind)
                || self.is_pending(bind, &ClaimKey::extended(&bind.pod.uid)))
    }

    /// Records that an operation ended and may have written to its claims and rolled back, with
    /// neither observed yet.
    ///
    /// `is_pod_there`: for a pod that is gone nothing is decided any more.
    pub fn note_rollback(&mut self, bind: &Bind, is_pod_there: bool) {
        for write in &bind.claims {
            let meta = &write.claim.meta;
            if self.claim(&meta.name).is_some_and(|claim| claim.meta.uid == meta.uid) {
                self.assume_cache.note_rollback(ClaimKey::of(&write.claim));
            }
        }
        if bind.extended.is_some() && is_pod_there {
            self.assume_cache.note_rollback(ClaimKey::extended(&bind.pod.uid));
        }
    }

    /// Transfers what a pod's operation was to allocate to one of these pods that uses the same
    /// claim.
    pub fn transfer_assumed(&mut self, pod: &str, heirs: &BTreeSet<PodUid>) {
        self.assume_cache.transfer_assumed(pod, heirs);
    }

    /// Records that a claim is being rolled back, or was.
    pub fn note_claim_rollback(&mut self, claim: &Claim) {
        self.assume_cache.note_rollback(ClaimKey::of(claim));
    }

    /// Advances the clock (monotonic, ms).
    pub fn tick(&mut self, now: u64) {
        self.assume_cache.tick(now);
    }

    /// Records a relist: all writes to claims before `at` are observed.
    pub fn on_relist(&mut self, at: u64) {
        self.assume_cache.on_relist(at);
    }

    /// Whether a claim may have been rolled back since it was observed.
    pub fn may_have_been_rolled_back(&self, claim: &Claim) -> bool {
        self.assume_cache.may_have_been_rolled_back(&claim.meta.uid)
    }

    /// Another client has bound the pod, or may have: the observed state of its claims is
    /// authoritative.
    pub fn accept_observed(&mut self, pod: &str) -> Invalidation {
        let changed = self.assume_cache.accept_observed(pod);
        self.holdings(changed)
    }

    /// Records that a pod is gone.
    pub fn pod_gone(&mut self, pod: &str) {
        self.assume_cache.pod_gone(pod);
    }

    /// Assumes the devices of an operation again after a watch showed them released. They were its
    /// own until this moment.
    pub fn reassume(&mut self, bind: &Bind) {
        if self.are_devices_held(bind) {
            return;
        }
        // Observed claims hold their devices by themselves.
        let is_unseen = |write: &&ClaimWrite| {
            let is_pending = self.is_pending(bind, &write.claim.meta.uid);
            !self.is_written(write) || is_pending || self.is_joining(bind, write)
        };
        let claims = bind.claims.iter().filter(is_unseen).cloned().collect();
        let extended = bind.extended.clone().filter(|_| {
            !self.is_extended_written(bind)
                || self.is_pending(bind, &ClaimKey::extended(&bind.pod.uid))
        });
        self.assume(&PodAllocation {
            pod: bind.pod.uid.clone(),
            namespace: bind.pod.name.namespace.clone(),
            node: bind.node.clone(),
            claims,
            extended,
            parts: GpuParts::new(),
        });
    }

    /// Whether a claim is observed allocated, was replaced, or is not this operation's to allocate.
    fn is_written(&self, write: &ClaimWrite) -> bool {
        let observed = self.assume_cache.claim(&write.claim.meta.name);
        write.allocation.is_none()
            || observed.is_none_or(|observed| {
                observed.meta.uid != write.claim.meta.uid || observed.claim.allocation.is_some()
            })
    }

    /// Whether the pod joins a claim that others allocate and is not yet observed as its consumer.
    fn is_joining(&self, bind: &Bind, write: &ClaimWrite) -> bool {
        let observed = self.assume_cache.claim(&write.claim.meta.name);
        write.allocation.is_none()
            && observed.is_some_and(|observed| {
                observed.meta.uid == write.claim.meta.uid
                    && observed.reserved_for.iter().all(|consumer| *consumer.uid != *bind.pod.uid)
            })
    }

    fn is_extended_written(&self, bind: &Bind) -> bool {
        let claim = self.assume_cache.extended_claim_of(&bind.pod.uid);
        claim.is_some_and(|claim| claim.claim.allocation.is_some())
    }

    fn is_pending(&self, bind: &Bind, key: &str) -> bool {
        self.assume_cache.pending(key).is_some_and(|assumed| *assumed.pod == *bind.pod.uid)
    }
}
