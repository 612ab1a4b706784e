//! The writes to one claim: from free to allocated and reserved, and back.

use std::sync::Arc;

use octavo_dra::Allocation;
use octavo_kube_io::Backoff;
use octavo_kube_io::objects::{Claim, ObjectName};

use super::call::{ApiError, ApiRequest, Call, Rejection};
use super::patches;
use super::responses::{has_devices, has_finalizer, has_other_consumers, is_reserved_for};
use super::{ClaimWrite, Failure, FailureKind, PodRef, WrittenAllocation};

/// Attempts for a claim that keeps changing, each after a re-read.
const MAX_ATTEMPTS: u32 = 5;

/// A claim of an operation, and what the operation may have written to it.
#[derive(Clone, Debug)]
pub(super) struct ClaimWriter {
    pub(super) name: ObjectName,
    /// Empty if the claim was created and the response with its UID was lost.
    pub(super) uid: Arc<str>,
    /// Whether the operation created it.
    pub(super) is_created: bool,
    /// Whether a write was done or may have been done.
    pub(super) may_have_written: bool,
    /// Whether the claim was allocated without any consumer before. Then a rollback keeps the
    /// allocation.
    stays_allocated: bool,
    /// The devices that the operation allocates. With other devices the allocation belongs to
    /// another client.
    wanted: Option<Allocation>,
}

impl ClaimWriter {
    pub(super) fn from_watch(claim: &Claim) -> Self {
        Self {
            name: claim.meta.name.clone(),
            uid: Arc::clone(&claim.meta.uid),
            is_created: false,
            may_have_written: false,
            stays_allocated: claim.claim.allocation.is_some() && claim.reserved_for.is_empty(),
            wanted: None,
        }
    }

    pub(super) fn created(name: ObjectName, uid: Arc<str>) -> Self {
        Self {
            name,
            uid,
            is_created: true,
            may_have_written: true,
            stays_allocated: false,
            wanted: None,
        }
    }

    /// A claim that an earlier attempt may have written to and that this retry did not reach.
    pub(super) fn unreached(write: &ClaimWrite) -> Self {
        let wanted = write.allocation.as_ref().map(|written| written.allocation.clone());
        Self { may_have_written: true, wanted, ..Self::from_watch(&write.claim) }
    }

    /// What a previous leader left, for a pod that is not bound.
    pub(super) fn leftover(claim: &Claim, pod: &PodRef) -> Self {
        Self {
            is_created: claim.is_extended && is_owned_by(claim, pod),
            may_have_written: true,
            stays_allocated: false,
            ..Self::from_watch(claim)
        }
    }

    /// Writes finalizer, allocation and reservation, as far as they are missing. Returns the claim's
    /// version with them.
    ///
    /// `view` is the last known state of the claim.
    pub(super) async fn allocate(
        &mut self,
        call: Call<'_>,
        pod: &PodRef,
        allocation: &WrittenAllocation,
        mut view: Arc<Claim>,
    ) -> Result<Option<u64>, Failure> {
        const FINALIZER: &str = "adding the finalizer to the claim";
        const STATUS: &str = "allocating the claim";
        self.wanted = Some(allocation.allocation.clone());
        let mut backoff = Call::backoff();
        let mut last: Option<(&'static str, ApiError)> = None;
        for _ in 0..MAX_ATTEMPTS {
            if let Some((step, error)) = &last {
                view = self.reread(call, step, error).await?.into();
                let is_explained = view.claim.allocation.is_some();
                before_retry(call, step, error, is_explained, &mut backoff).await?;
            }
            let is_allocated = view.claim.allocation.is_some();
            // An interrupted rollback may have removed no more than the finalizer.
            let is_whole = has_finalizer(&view) || !has_devices(&view, &allocation.allocation);
            if is_allocated && is_whole {
                return self.join(call, pod, &allocation.allocation, &view).await;
            }
            if !has_finalizer(&view) {
                self.may_have_written = true;
                let write = patches::add_finalizer(&self.name, &self.uid);
                match call.write_object(&write, Claim::from_json).await {
                    Ok(answer) => view = answer.into(),
                    Err(error) => {
                        last = Some((FINALIZER, self.retryable(FINALIZER, error)?));
                        continue;
                    }
                }
                if view.claim.allocation.is_some() {
                    return self.join(call, pod, &allocation.allocation, &view).await;
                }
            }
            self.may_have_written = true;
            let version = &view.meta.version;
            let write = patches::allocate(&self.name, &self.uid, version, allocation, pod);
            match call.write_object(&write, Claim::from_json).await {
                Ok(answer) => return Ok(answer.meta.version_number()),
                Err(error) => last = Some((STATUS, self.retryable(STATUS, error)?)),
            }
        }
        let (step, error) = last.unwrap_or((STATUS, ApiError::NotLeader));
        Err(Failure::of(step, &error))
    }

    /// Reserves a claim that is already allocated, if it has these devices.
    async fn join(
        &mut self,
        call: Call<'_>,
        pod: &PodRef,
        expected: &Allocation,
        view: &Claim,
    ) -> Result<Option<u64>, Failure> {
        if !has_devices(view, expected) {
            let message = format!("claim {} was allocated by another client", self.name);
            return Err(Failure::new("allocating the claim", FailureKind::Conflict, message));
        }
        if is_reserved_for(view, pod) {
            return Ok(view.meta.version_number());
        }
        self.reserve(call, pod, Some(expected)).await
    }

    /// Writes the reservation of an allocated claim, and returns the claim's version with it.
    /// `expected` are the devices that it must have.
    pub(super) async fn reserve(
        &mut self,
        call: Call<'_>,
        pod: &PodRef,
        expected: Option<&Allocation>,
    ) -> Result<Option<u64>, Failure> {
        const STEP: &str = "reserving the claim";
        let mut backoff = Call::backoff();
        let mut last = None;
        for _ in 0..MAX_ATTEMPTS {
            if let Some(error) = &last {
                let view = self.reread(call, STEP, error).await?;
                self.check_devices(expected, &view)?;
                if is_reserved_for(&view, pod) {
                    return Ok(view.meta.version_number());
                }
                before_retry(call, STEP, error, false, &mut backoff).await?;
            }
            self.may_have_written = true;
            let write = patches::reserve(&self.name, &self.uid, pod);
            match call.write_object(&write, Claim::from_json).await {
                // It may have been reallocated since it was observed.
                Ok(answer) => {
                    self.check_devices(expected, &answer)?;
                    return Ok(answer.meta.version_number());
                }
                Err(error) => last = Some(self.retryable(STEP, error)?),
            }
        }
        Err(Failure::of(STEP, &last.unwrap_or(ApiError::NotLeader)))
    }

    fn check_devices(&self, expected: Option<&Allocation>, view: &Claim) -> Result<(), Failure> {
        let is_right = expected
            .map_or(view.claim.allocation.is_some(), |expected| has_devices(view, expected));
        if is_right {
            return Ok(());
        }
        let message = format!("claim {} no longer has the expected devices", self.name);
        Err(Failure::new("reserving the claim", FailureKind::Conflict, message))
    }

    /// Passes errors on after which a re-read may help. Others end the operation.
    fn retryable(&self, step: &'static str, error: ApiError) -> Result<ApiError, Failure> {
        match &error {
            ApiError::Indeterminate { .. }
            | ApiError::Rejected(Rejection { code: 409 | 422, .. }) => Ok(error),
            ApiError::Rejected(Rejection { code: 404, .. }) => Err(self.gone(step)),
            _ => Err(Failure::of(step, &error)),
        }
    }

    fn gone(&self, step: &'static str) -> Failure {
        Failure::new(step, FailureKind::Conflict, format!("claim {} is gone", self.name))
    }

    /// Re-reads the claim after an error. It must be the same claim, and not be deleted.
    async fn reread(
        &self,
        call: Call<'_>,
        step: &'static str,
        error: &ApiError,
    ) -> Result<Claim, Failure> {
        let conflict = |message| Failure::new(step, FailureKind::Conflict, message);
        let view = self.read(call).await.map_err(|_| Failure::of(step, error))?;
        match view {
            Some(view) if view.meta.uid != self.uid => {
                Err(conflict(format!("another claim now has the name {}", self.name)))
            }
            Some(view) if view.meta.deleted.is_some() => {
                Err(conflict(format!("claim {} is being deleted", self.name)))
            }
            Some(view) => Ok(view),
            None => Err(self.gone(step)),
        }
    }

    async fn read(&self, call: Call<'_>) -> Result<Option<Claim>, ApiError> {
        call.read(patches::claim_path(&self.name), "resourceclaims", Claim::from_json).await
    }

    /// Rolls back what was written for the pod. It removes the reservation, the allocation if the
    /// claim has no other consumer, and the finalizer of a claim that is not allocated. A claim
    /// that the operation created is deleted.
    ///
    /// Every step names the version that it is based on. So an earlier write still in progress at
    /// the server cannot take effect after it.
    pub(super) async fn release(&self, call: Call<'_>, pod: &PodRef) -> Result<(), ApiError> {
        let mut backoff = Call::backoff();
        loop {
            let error = match self.release_once(call, pod).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let is_retryable = match &error {
                ApiError::Indeterminate { .. } => true,
                ApiError::Rejected(rejection) => rejection.code == 409,
                ApiError::NotLeader => false,
            };
            if !is_retryable || !call.pause(&mut backoff).await {
                return Err(error);
            }
        }
    }

    async fn release_once(&self, call: Call<'_>, pod: &PodRef) -> Result<(), ApiError> {
        let view = self.read(call).await?;
        let Some(mut view) = view.filter(|view| self.is_same_claim(view, pod)) else {
            return Ok(());
        };
        // Another leader may have allocated it, and its pod may run with it.
        let is_given = view.claim.allocation.is_some();
        if is_given && self.wanted.as_ref().is_some_and(|wanted| !has_devices(&view, wanted)) {
            return Ok(());
        }
        if self.is_created {
            return self.remove(call, &view).await;
        }
        let is_last = !has_other_consumers(&view, pod) && !self.stays_allocated;
        let is_ours = is_reserved_for(&view, pod);
        // An allocation without a consumer is left over from this operation, or from the pod it
        // shared the claim with.
        if is_ours || (is_last && is_given && self.may_have_written) {
            let version = &view.meta.version;
            let write = patches::release(&self.name, &self.uid, version, pod, is_last);
            view = match call.write_object(&write, Claim::from_json).await {
                Ok(view) => view,
                Err(error) => return error.if_gone(()),
            };
        }
        if view.claim.allocation.is_none() && has_finalizer(&view) {
            let version = &view.meta.version;
            let write = patches::remove_finalizer(&self.name, &self.uid, version);
            return send_unless_gone(call, &write).await;
        }
        Ok(())
    }

    /// Deletes a claim that a scheduler created: only its pod uses it. Without the finalizer it is
    /// gone at once, and its allocation too.
    async fn remove(&self, call: Call<'_>, view: &Claim) -> Result<(), ApiError> {
        if has_finalizer(view) {
            let version = &view.meta.version;
            let write = patches::remove_finalizer(&self.name, &view.meta.uid, version);
            send_unless_gone(call, &write).await?;
        }
        send_unless_gone(call, &patches::delete_claim(&self.name, &view.meta.uid)).await
    }

    fn is_same_claim(&self, view: &Claim, pod: &PodRef) -> bool {
        if self.uid.is_empty() { is_owned_by(view, pod) } else { view.meta.uid == self.uid }
    }
}

/// Whether the pod is the claim's controlling owner.
pub(super) fn is_owned_by(claim: &Claim, pod: &PodRef) -> bool {
    claim.meta.owner.as_ref().is_some_and(|owner| *owner.uid == *pod.uid)
}

/// Waits before another attempt. Fails if that would be rejected again, or at the deadline.
/// `is_explained`: the claim's state explains a rejection.
async fn before_retry(
    call: Call<'_>,
    step: &'static str,
    error: &ApiError,
    is_explained: bool,
    backoff: &mut Backoff,
) -> Result<(), Failure> {
    match error {
        ApiError::Rejected(rejection) if rejection.code != 409 && !is_explained => {
            Err(Failure::new(step, FailureKind::Rejected, rejection.to_string()))
        }
        ApiError::Indeterminate { .. } if !call.pause(backoff).await => {
            Err(Failure::of(step, error))
        }
        _ => Ok(()),
    }
}

async fn send_unless_gone(call: Call<'_>, request: &ApiRequest) -> Result<(), ApiError> {
    call.send(request).await.map(drop).or_else(|error| error.if_gone(()))
}
