//! A claim's way from free to allocated and reserved, and back.

use octavo_dra::Allocation;
use octavo_kube_io::objects::{Claim, ObjectName};

use super::answers::ClaimView;
use super::bodies;
use super::call::{Call, Fault, Refusal};
use super::{ClaimWrite, FailureKind, PodRef, WrittenAllocation};

/// How often a claim that changes meanwhile is read anew before the order gives up.
const ATTEMPTS: u32 = 5;

/// Why an order goes no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) stage: &'static str,
    pub(super) message: String,
    pub(super) kind: FailureKind,
}

/// A claim of an order, and what the order may have written to it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) name: ObjectName,
    /// Empty where a claim was made and the answer that had it was lost.
    pub(super) uid: String,
    /// Whether the order made it.
    pub(super) is_made: bool,
    /// Whether something was written, or may have been.
    pub(super) is_touched: bool,
    /// Whether it stood allocated without any user before: it stays so.
    stays_allocated: bool,
    /// The devices that the order wants it to have: with others it is somebody else's.
    wanted: Option<Allocation>,
}

impl Stop {
    pub(super) fn new(stage: &'static str, kind: FailureKind, message: impl Into<String>) -> Self {
        Self { stage, message: message.into(), kind }
    }

    /// A fault that nothing more is known of.
    pub(super) fn of(stage: &'static str, fault: &Fault) -> Self {
        let kind = match fault {
            Fault::NotLeader => FailureKind::NotLeader,
            Fault::Unknown { .. } => FailureKind::Unreachable,
            Fault::Refused(refusal) => match refusal.code {
                409 | 404 => FailureKind::Conflict,
                429 => FailureKind::Unreachable,
                _ => FailureKind::Refused,
            },
        };
        Self::new(stage, kind, fault.to_string())
    }
}

impl Held {
    pub(super) fn seen(claim: &Claim) -> Self {
        Self {
            name: claim.meta.name.clone(),
            uid: claim.meta.uid.as_ref().to_owned(),
            is_made: false,
            is_touched: false,
            stays_allocated: claim.claim.allocation.is_some() && claim.reserved_for.is_empty(),
            wanted: None,
        }
    }

    pub(super) fn made(name: ObjectName, uid: &str) -> Self {
        let uid = uid.to_owned();
        Self { name, uid, is_made: true, is_touched: true, stays_allocated: false, wanted: None }
    }

    /// What an order of before may have written, which this one, its repetition, did not reach.
    pub(super) fn unreached(write: &ClaimWrite) -> Self {
        let wanted = write.allocation.as_ref().map(|written| written.allocation.clone());
        Self { is_touched: true, wanted, ..Self::seen(&write.claim) }
    }

    /// What an earlier scheduler left, for a pod that is not bound.
    pub(super) fn leftover(claim: &Claim, pod: &PodRef) -> Self {
        let is_owner = claim.meta.owner.as_ref().is_some_and(|owner| owner.uid == pod.uid);
        Self {
            is_made: claim.is_extended && is_owner,
            is_touched: true,
            stays_allocated: false,
            ..Self::seen(claim)
        }
    }

    /// Writes finalizer, allocation and reservation, as far as they are not there.
    ///
    /// `view` is how the claim was last seen.
    pub(super) async fn allocate(
        &mut self,
        call: Call<'_>,
        pod: &PodRef,
        allocation: &WrittenAllocation,
        mut view: ClaimView,
    ) -> Result<(), Stop> {
        const FINALIZER: &str = "adding the finalizer to the claim";
        const STATUS: &str = "allocating the claim";
        self.wanted = Some(allocation.allocation.clone());
        let mut backoff = Call::backoff();
        let mut last = None;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                let Some((stage, fault)) = last.take() else { break };
                view = self.look(call, stage, &fault).await?;
                // What was refused although nothing stands against it would be refused again.
                if let Fault::Refused(refusal) = &fault
                    && refusal.code != 409
                    && view.status.allocation.is_none()
                {
                    return Err(Stop::new(stage, FailureKind::Refused, refusal.to_string()));
                }
                if matches!(fault, Fault::Unknown { .. }) && !call.pause(&mut backoff).await {
                    return Err(Stop::of(stage, &fault));
                }
            }
            let is_others = view.status.allocation.is_some() && !view.has(&allocation.allocation);
            // An undoing that was cut short may have taken no more than the finalizer.
            if is_others || (view.status.allocation.is_some() && view.metadata.has_finalizer()) {
                return self.join(call, pod, &allocation.allocation, &view).await;
            }
            if !view.metadata.has_finalizer() {
                self.is_touched = true;
                let write = bodies::add_finalizer(&self.name, &self.uid);
                match call.write_object::<ClaimView>(&write).await {
                    Ok(answer) => view = answer,
                    Err(fault) => {
                        last = Some((FINALIZER, self.usable(FINALIZER, fault)?));
                        continue;
                    }
                }
                if view.status.allocation.is_some() {
                    return self.join(call, pod, &allocation.allocation, &view).await;
                }
            }
            self.is_touched = true;
            let version = &view.metadata.resource_version;
            let write = bodies::allocate(&self.name, &self.uid, version, allocation, pod);
            match call.write(&write).await {
                Ok(_) => return Ok(()),
                Err(fault) => last = Some((STATUS, self.usable(STATUS, fault)?)),
            }
        }
        let (stage, fault) = last.unwrap_or((STATUS, Fault::NotLeader));
        Err(Stop::of(stage, &fault))
    }

    /// Reserves a claim that is found allocated, if it has these devices.
    async fn join(
        &mut self,
        call: Call<'_>,
        pod: &PodRef,
        expected: &Allocation,
        view: &ClaimView,
    ) -> Result<(), Stop> {
        const STAGE: &str = "allocating the claim";
        if !view.has(expected) {
            let message = format!("claim {} was allocated by somebody else", self.name);
            return Err(Stop::new(STAGE, FailureKind::Conflict, message));
        }
        if view.is_reserved_for(pod) {
            return Ok(());
        }
        self.reserve(call, pod, Some(expected)).await
    }

    /// Writes the reservation of an allocated claim; `expected`: the devices that it must have.
    pub(super) async fn reserve(
        &mut self,
        call: Call<'_>,
        pod: &PodRef,
        expected: Option<&Allocation>,
    ) -> Result<(), Stop> {
        const STAGE: &str = "reserving the claim";
        let mut backoff = Call::backoff();
        let mut last = None;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                let Some(fault) = last.take() else { break };
                let view = self.look(call, STAGE, &fault).await?;
                self.check(expected, &view)?;
                if view.is_reserved_for(pod) {
                    return Ok(());
                }
                if let Fault::Refused(refusal) = &fault
                    && refusal.code != 409
                {
                    return Err(Stop::new(STAGE, FailureKind::Refused, refusal.to_string()));
                }
                if matches!(fault, Fault::Unknown { .. }) && !call.pause(&mut backoff).await {
                    return Err(Stop::of(STAGE, &fault));
                }
            }
            self.is_touched = true;
            let write = bodies::reserve(&self.name, &self.uid, pod);
            match call.write_object::<ClaimView>(&write).await {
                // It may have been given elsewhere since it was seen.
                Ok(answer) => return self.check(expected, &answer),
                Err(fault) => last = Some(self.usable(STAGE, fault)?),
            }
        }
        Err(Stop::of(STAGE, &last.unwrap_or(Fault::NotLeader)))
    }

    fn check(&self, expected: Option<&Allocation>, view: &ClaimView) -> Result<(), Stop> {
        let is_right =
            expected.map_or(view.status.allocation.is_some(), |expected| view.has(expected));
        if is_right {
            return Ok(());
        }
        let message = format!("claim {} no longer has the devices that were seen", self.name);
        Err(Stop::new("reserving the claim", FailureKind::Conflict, message))
    }

    /// A fault after which another look may help; others end the order.
    fn usable(&self, stage: &'static str, fault: Fault) -> Result<Fault, Stop> {
        match &fault {
            Fault::Unknown { .. } | Fault::Refused(Refusal { code: 409 | 422, .. }) => Ok(fault),
            Fault::Refused(Refusal { code: 404, .. }) => {
                let message = format!("claim {} is gone", self.name);
                Err(Stop::new(stage, FailureKind::Conflict, message))
            }
            _ => Err(Stop::of(stage, &fault)),
        }
    }

    /// Reads the claim after a fault: it must be this one still, and may not be on its way out.
    async fn look(
        &self,
        call: Call<'_>,
        stage: &'static str,
        fault: &Fault,
    ) -> Result<ClaimView, Stop> {
        let conflict = |message| Stop::new(stage, FailureKind::Conflict, message);
        let path = bodies::claim_path(&self.name);
        let read = call.read::<ClaimView>(&path, "resourceclaims").await;
        let view = read.map_err(|_| Stop::of(stage, fault))?;
        match view {
            Some(view) if view.metadata.uid != self.uid => {
                Err(conflict(format!("another claim has the name {}", self.name)))
            }
            Some(view) if view.metadata.is_deleted() => {
                Err(conflict(format!("claim {} is being deleted", self.name)))
            }
            Some(view) => Ok(view),
            None => Err(conflict(format!("claim {} is gone", self.name))),
        }
    }

    /// Takes back what was written for the pod: the reservation, the allocation if nobody else uses it,
    /// and the finalizer of what is not allocated. A claim that the order made is deleted.
    ///
    /// Every step names the version it is based on, so a write of before that is still under way at
    /// the server cannot land behind it.
    pub(super) async fn release(&self, call: Call<'_>, pod: &PodRef) -> Result<(), Fault> {
        let mut backoff = Call::backoff();
        loop {
            let fault = match self.release_once(call, pod).await {
                Ok(()) => return Ok(()),
                Err(fault) => fault,
            };
            let is_worth_another = match &fault {
                Fault::Unknown { .. } => true,
                Fault::Refused(refusal) => refusal.code == 409,
                Fault::NotLeader => false,
            };
            if !is_worth_another || !call.pause(&mut backoff).await {
                return Err(fault);
            }
        }
    }

    async fn release_once(&self, call: Call<'_>, pod: &PodRef) -> Result<(), Fault> {
        let path = bodies::claim_path(&self.name);
        let view = call.read::<ClaimView>(&path, "resourceclaims").await?;
        let Some(mut view) = view.filter(|view| self.is_this(view, pod)) else { return Ok(()) };
        // Another leader may have given it, and its pod may run with it.
        let is_given = view.status.allocation.is_some();
        if is_given && self.wanted.as_ref().is_some_and(|wanted| !view.has(wanted)) {
            return Ok(());
        }
        if self.is_made {
            return self.remove(call, &view).await;
        }
        let is_last = !view.has_others(pod) && !self.stays_allocated;
        let is_ours = view.is_reserved_for(pod);
        // An allocation without any user is a leftover, of this order or of the pod it shared with.
        if is_ours || (is_last && view.status.allocation.is_some() && self.is_touched) {
            let version = &view.metadata.resource_version;
            let write = bodies::release(&self.name, &self.uid, version, pod, is_last);
            view = match call.write_object(&write).await {
                Ok(view) => view,
                Err(fault) => return gone_is_good(fault),
            };
        }
        if view.status.allocation.is_none() && view.metadata.has_finalizer() {
            let version = &view.metadata.resource_version;
            let write = bodies::remove_finalizer(&self.name, &self.uid, version);
            return call.write(&write).await.map(drop).or_else(gone_is_good);
        }
        Ok(())
    }

    /// Deletes a claim that a scheduler made: nobody but its pod uses it. Without its finalizer it is gone
    /// at once, and its allocation with it.
    async fn remove(&self, call: Call<'_>, view: &ClaimView) -> Result<(), Fault> {
        if view.metadata.has_finalizer() {
            let version = &view.metadata.resource_version;
            let write = bodies::remove_finalizer(&self.name, &view.metadata.uid, version);
            call.write(&write).await.map(drop).or_else(gone_is_good)?;
        }
        let deleted = call.write(&bodies::delete_claim(&self.name, &view.metadata.uid)).await;
        deleted.map(drop).or_else(gone_is_good)
    }

    fn is_this(&self, view: &ClaimView, pod: &PodRef) -> bool {
        if !self.uid.is_empty() {
            return view.metadata.uid == self.uid;
        }
        view.metadata.owner_references.iter().any(|owner| *owner.uid == *pod.uid)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

fn gone_is_good(fault: Fault) -> Result<(), Fault> {
    match fault {
        Fault::Refused(Refusal { code: 404, .. }) => Ok(()),
        fault => Err(fault),
    }
}
