//! Loans: while a victim takes its time to leave, other pods use the room that is kept.
//!
//! A victim may have hours to leave. Meanwhile the room that others have left would serve no pod.
//! So a single pod that finds no other place may borrow it, if it can yield: it has lower priority
//! and a short grace period, and no disruption budget delays its eviction. A borrower counts as a
//! victim that has not left: usage by present pods includes it, the engine cache does not. GPUs are
//! lent from those that are kept, so other pods find the same GPUs as without it. Of CPU and memory
//! a borrower may take more than is kept. A single pod of higher priority that lacks these, and has no
//! other place, ends the loans of that lender. A node lends for one nomination only.
//!
//! Borrowers are evicted once the last victim has left, or the place suffices beside the victims
//! that still run. From then on nothing is lent, so borrowers delay the nominated pods once, by one
//! short grace period. If the nomination ends before, they stay as ordinary pods.

use std::collections::BTreeSet;

use octavo_kube_io::objects::{NodeName, PodUid};

use super::{Nomination, VICTIM_TIMEOUT_MS};
use crate::devices::{Ask, AskedClaim};
use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::queue::QueueKey;
use crate::state::reporter::pending_reason::Reason;

/// Longest grace period of a borrower in seconds: Kubernetes' default.
const MAX_BORROWER_GRACE_SECONDS: i64 = 30;
/// Milliseconds of its grace period that the slowest victim must have left for another loan.
const MIN_LOAN_MS: u64 = 60_000;

impl Nomination {
    /// Whether its places may be lent: its slowest victim may still take long.
    fn is_lending(&self, now: u64) -> bool {
        let until = now.saturating_add(VICTIM_TIMEOUT_MS + MIN_LOAN_MS);
        !self.victims.is_empty() && !self.is_reclaiming && until <= self.deadline
    }

    /// Pods that use its places and must leave them: victims and borrowers.
    pub(super) fn leaving(&self) -> impl Iterator<Item = &PodUid> {
        self.victims.iter().chain(&self.borrowers)
    }
}

impl Scheduler {
    /// Binds a refused pod to a place that is lent. Returns whether it got one.
    pub(in crate::state) fn borrow_place(&mut self, uid: &PodUid, key: &QueueKey) -> bool {
        let nodes = self.lending_nodes();
        if nodes.is_empty() || !self.cache.can_yield(uid) {
            return false;
        }
        let Ok(ask) = self.ask(uid) else { return false };
        let is_wanted = |claim: &AskedClaim| matches!(claim, AskedClaim::Wanted(_));
        if self.cache.has_uncounted(uid, &ask) || !ask.claims.iter().all(is_wanted) {
            // How much of what is kept it would take is not known, or it has its devices already.
            return false;
        }
        for node in nodes {
            let lent_below = self.lent_below(&node);
            if !self.may_borrow_on(uid, &node, lent_below) {
                continue;
            }
            self.cache.set_leaving(uid, true);
            match self.reserve_lent(uid, &ask, &node) {
                Ok(assumed) => {
                    self.lend(uid, &node);
                    self.finish_placement(key, vec![assumed]);
                    return true;
                }
                Err(_) => self.cache.keep_victims([uid].into_iter()),
            }
        }
        false
    }

    /// Whether a pod that can yield has lower priority than all nominated pods of a node,
    /// and fits into this room.
    pub(in crate::state) fn may_borrow_on(
        &self,
        uid: &PodUid,
        node: &NodeName,
        lent_below: Option<i32>,
    ) -> bool {
        let priority = self.cache.pod(uid).map(|record| record.pod.spec.priority);
        lent_below.is_some_and(|below| priority.is_some_and(|priority| priority < below))
            && self.cache.check_node_rules(uid, node).is_ok()
            && self.check_lent_fit(uid, node).is_ok()
            // Places are not lent while volumes are provisioned.
            && self.cache.choose_volumes(uid, node).is_ok_and(|choices| choices.is_empty())
    }

    /// The priority below which pods may borrow on a node: the lowest of the nominated pods there.
    /// `None` if nothing is lent.
    pub(in crate::state) fn lent_below(&self, node: &str) -> Option<i32> {
        self.lender_on(node)?;
        let priority =
            |uid: &PodUid| Some(self.cache.engine().desired(uid)?.workload.profile.priority);
        self.nominated_on(node).map(priority).min()?
    }

    /// The entry whose nomination lends on a node. If several keep room there, none lends, so that
    /// each borrower has one lender.
    fn lender_on(&self, node: &str) -> Option<QueueKey> {
        if self.reservations.has_no_nomination() {
            return None;
        }
        let mut keys: BTreeSet<_> =
            self.nominated_on(node).map(|uid| self.cache.queue_key_of(uid)).collect();
        let key = keys.pop_first()?;
        let nomination = self.reservations.nomination(&key)?;
        (keys.is_empty() && nomination.is_lending(self.cache.now())).then_some(key)
    }

    /// Nominated pods with a place on a node.
    fn nominated_on(&self, node: &str) -> impl Iterator<Item = &PodUid> {
        self.cache.pods_on(node).filter(|uid| self.cache.is_nominated(uid))
    }

    /// Nodes with places of nominations that lend.
    fn lending_nodes(&self) -> BTreeSet<NodeName> {
        let now = self.cache.now();
        let nominations = self.reservations.nominations.values();
        let members = nominations.filter(|one| one.is_lending(now)).flat_map(|one| &one.members);
        let nominated = members.filter(|uid| self.cache.is_nominated(uid));
        let places = nominated.filter_map(|uid| self.cache.pod(uid)?.place.as_ref());
        places.map(|place| place.node.clone()).collect()
    }

    /// Records a borrower with the nomination that lends on its node.
    fn lend(&mut self, uid: &PodUid, node: &NodeName) {
        let Some(key) = self.lender_on(node) else { return };
        if let Some(nomination) = self.reservations.nominations.get_mut(&key) {
            nomination.borrowers.insert(uid.clone());
        }
    }

    /// Evicts borrowers on nodes that others need now. Their lenders lend nothing any more.
    pub(in crate::state) fn reclaim_loans_on(&mut self, nodes: &BTreeSet<&NodeName>) {
        let is_there = |uid: &PodUid| {
            let place = self.cache.pod(uid).and_then(|record| record.place.as_ref());
            place.is_some_and(|place| nodes.contains(&place.node))
        };
        let nominations = self.reservations.nominations.iter();
        let lenders =
            nominations.filter(|(_, nomination)| nomination.borrowers.iter().any(is_there));
        for key in lenders.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.reclaim_loans(&key);
        }
    }

    /// Whether a node would have room for a pod now, but for borrowers.
    pub(in crate::state) fn only_borrowers_keep_away(&self, uid: &PodUid, node: &NodeName) -> bool {
        let borrowers = self.borrowers_on(node);
        !borrowers.is_empty() && self.would_fit_without(uid, node, &borrowers)
    }

    /// Notes a node on which only borrowers keep a pod away, if all of that lender have a priority
    /// below this one. They are evicted if the decision finds no other place. Returns whether they
    /// would be.
    pub(in crate::state) fn note_loans(
        &mut self,
        uid: &PodUid,
        ask: &Ask,
        node: &NodeName,
        below: Option<i32>,
    ) -> bool {
        let on_node = self.borrowers_on(node);
        let lenders = self.reservations.nominations.values();
        let lenders =
            lenders.filter(|lender| lender.borrowers.iter().any(|one| on_node.contains(&one)));
        // A lender takes all its loans back, or none.
        let is_lower = lenders.flat_map(|lender| &lender.borrowers).all(|borrower| {
            let record = self.cache.pod(borrower);
            below.zip(record).is_some_and(|(below, record)| record.pod.spec.priority < below)
        });
        // A victim may still have the devices that it needs.
        let is_helped = is_lower
            && (ask.is_empty() || self.cache.devices().allocate(ask, node, None).is_ok())
            && self.only_borrowers_keep_away(uid, node);
        if is_helped {
            self.refusals.last.lent.insert(node.clone());
        }
        is_helped
    }

    /// Whether a borrower runs on a node that a pod with this scope of preemption may not evict.
    pub(in crate::state) fn has_protected_borrower(
        &self,
        node: &NodeName,
        below: Option<i32>,
    ) -> bool {
        self.borrowers_on(node)
            .into_iter()
            .filter_map(|uid| self.cache.pod(uid))
            .any(|record| below.is_none_or(|below| record.pod.spec.priority >= below))
    }

    /// Borrowers with a place on a node.
    fn borrowers_on(&self, node: &NodeName) -> Vec<&PodUid> {
        let is_there = |uid: &&PodUid| {
            let record = self.cache.pod(uid).filter(|record| record.is_present());
            let place = record.and_then(|record| record.place.as_ref());
            place.is_some_and(|place| place.node == *node)
        };
        let nominations = self.reservations.nominations.values();
        nominations.flat_map(|nomination| &nomination.borrowers).filter(is_there).collect()
    }

    /// Evicts the borrowers of a nomination, which lends nothing any more. Those whose binds are in
    /// flight follow once they are bound.
    pub(super) fn reclaim_loans(&mut self, key: &QueueKey) {
        let Some(mut nomination) = self.reservations.nominations.get(key).cloned() else { return };
        nomination.is_reclaiming = true;
        let (bound, others) = std::mem::take(&mut nomination.borrowers)
            .into_iter()
            .partition(|uid| self.cache.pod(uid).is_some_and(|record| record.pod.node.is_some()));
        nomination.borrowers = others;
        let bound: BTreeSet<PodUid> = bound;
        if !bound.is_empty() {
            let beneficiary = self.cache.beneficiary(key);
            for uid in &bound {
                self.reporter.metrics().preempted(&self.cache.queue_key_of(uid));
                let message = format!("ran in a place that was kept for {beneficiary}");
                self.evict(uid, Reason::Preempted, message);
            }
            let deadline = self.cache.victims_deadline(bound.iter()).unwrap_or(0);
            nomination.deadline = nomination.deadline.max(deadline);
            nomination.victims.extend(bound);
        }
        self.reservations.nominations.insert(key.clone(), nomination);
    }

    /// Ends the loan of a pod that does not run in the lent place after all. With the next tick its
    /// nominations do without it.
    pub(in crate::state) fn end_loan(&mut self, uid: &PodUid) {
        let mut nominations = self.reservations.nominations.values_mut();
        if nominations.any(|nomination| nomination.borrowers.remove(uid)) {
            self.cache.keep_victims([uid].into_iter());
        }
    }

    /// For a borrower: the entry that its place is kept for, and when the pod is evicted.
    pub(in crate::state) fn loan_text(&self, uid: &PodUid) -> Option<String> {
        let nominations = self.reservations.nominations.iter();
        let mut lenders = nominations.filter(|(_, nomination)| nomination.borrowers.contains(uid));
        let beneficiary = self.cache.beneficiary(lenders.next()?.0);
        Some(format!(
            "runs in a place that is kept for {beneficiary}: it is evicted once the pods that must \
             leave for that have left, or when a higher priority needs its CPU or memory"
        ))
    }
}

impl Cache {
    /// Whether a pending pod may run in a place that it must give back: it is in no gang, ends
    /// within Kubernetes' default grace period, and is in no disruption budget. Its claims must be
    /// its own, because a shared one would stay allocated.
    pub(in crate::state) fn can_yield(&self, uid: &PodUid) -> bool {
        self.pod(uid).is_some_and(|record| {
            let spec = &record.pod.spec;
            record.member.is_none()
                && spec.grace_seconds <= MAX_BORROWER_GRACE_SECONDS
                && spec.claims.iter().all(|claim| claim.claim.is_none())
                && self.budget_name_of(record).is_none()
                && !self.has_limits(&QueueKey::Pod(uid.clone()), &[(uid, record)])
        })
    }
}
