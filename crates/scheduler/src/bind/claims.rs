//! The writes to one claim: from free to allocated and reserved, and back.

use octavo_dra::Allocation;
use octavo_kube_io::objects::{Claim, ObjectName};

use super::call::{ApiError, Call, Rejection};
use super::patches;
use super::responses::ClaimView;
use super::{ClaimWrite, FailureKind, PodRef, WrittenAllocation};

/// Attempts for a claim that keeps changing, each after a re-read.
const MAX_ATTEMPTS: u32 = 5;

/// Why an operation stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StepError {
    pub(super) step: &'static str,
    pub(super) message: String,
    pub(super) kind: FailureKind,
}

/// A claim of an operation, and what the operation may have written to it.
#[derive(Clone, Debug)]
pub(super) struct ClaimWriter {
    pub(super) name: ObjectName,
    /// Empty if the claim was created and the response with its UID was lost.
    pub(super) uid: String,
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

impl StepError {
    pub(super) fn new(step: &'static str, kind: FailureKind, message: impl Into<String>) -> Self {
        Self { step, message: message.into(), kind }
    }

    /// The step error of an API error without further information.
    pub(super) fn of(step: &'static str, error: &ApiError) -> Self {
        let kind = match error {
            ApiError::NotLeader => FailureKind::NotLeader,
            ApiError::Indeterminate { .. } => FailureKind::Unreachable,
            ApiError::Rejected(rejection) => match rejection.code {
                409 | 404 => FailureKind::Conflict,
                429 => FailureKind::Unreachable,
                _ => FailureKind::Rejected,
            },
        };
        Self::new(step, kind, error.to_string())
    }
}

impl ClaimWriter {
    pub(super) fn from_watch(claim: &Claim) -> Self {
        Self {
            name: claim.meta.name.clone(),
            uid: claim.meta.uid.as_ref().to_owned(),
            is_created: false,
            may_have_written: false,
            stays_allocated: claim.claim.allocation.is_some() && claim.reserved_for.is_empty(),
            wanted: None,
        }
    }

    pub(super) fn created(name: ObjectName, uid: &str) -> Self {
        let uid = uid.to_owned();
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
        let is_owner = claim.meta.owner.as_ref().is_some_and(|owner| *owner.uid == *pod.uid);
        Self {
            is_created: claim.is_extended && is_owner,
            may_have_written: true,
            stays_allocated: false,
            ..Self::from_watch(claim)
        }
    }

    /// Writes finalizer, allocation and reservation, as far as they are missing.
    ///
    /// `view` is the last known state of the claim.
    pub(super) async fn allocate(
        &mut self,
        call: Call<'_>,
        pod: &PodRef,
        allocation: &WrittenAllocation,
        mut view: ClaimView,
    ) -> Result<(), StepError> {
        const FINALIZER: &str = "adding the finalizer to the claim";
        const STATUS: &str = "allocating the claim";
        self.wanted = Some(allocation.allocation.clone());
        let mut backoff = Call::backoff();
        let mut last = None;
        for attempt in 0..MAX_ATTEMPTS {
            if attempt > 0 {
                let Some((step, error)) = last.take() else { break };
                view = self.reread(call, step, &error).await?;
                // A rejection that no state of the claim explains would be repeated.
                if let ApiError::Rejected(rejection) = &error
                    && rejection.code != 409
                    && view.status.allocation.is_none()
                {
                    return Err(StepError::new(step, FailureKind::Rejected, rejection.to_string()));
                }
                if matches!(error, ApiError::Indeterminate { .. })
                    && !call.pause(&mut backoff).await
                {
                    return Err(StepError::of(step, &error));
                }
            }
            let is_other_allocation =
                view.status.allocation.is_some() && !view.has_devices(&allocation.allocation);
            // An interrupted rollback may have removed no more than the finalizer.
            if is_other_allocation
                || (view.status.allocation.is_some() && view.metadata.has_finalizer())
            {
                return self.join(call, pod, &allocation.allocation, &view).await;
            }
            if !view.metadata.has_finalizer() {
                self.may_have_written = true;
                let write = patches::add_finalizer(&self.name, &self.uid);
                match call.write_object::<ClaimView>(&write).await {
                    Ok(answer) => view = answer,
                    Err(error) => {
                        last = Some((FINALIZER, self.retryable(FINALIZER, error)?));
                        continue;
                    }
                }
                if view.status.allocation.is_some() {
                    return self.join(call, pod, &allocation.allocation, &view).await;
                }
            }
            self.may_have_written = true;
            let version = &view.metadata.resource_version;
            let write = patches::allocate(&self.name, &self.uid, version, allocation, pod);
            match call.write(&write).await {
                Ok(_) => return Ok(()),
                Err(error) => last = Some((STATUS, self.retryable(STATUS, error)?)),
            }
        }
        let (step, error) = last.unwrap_or((STATUS, ApiError::NotLeader));
        Err(StepError::of(step, &error))
    }

    /// Reserves a claim that is already allocated, if it has these devices.
    async fn join(
        &mut self,
        call: Call<'_>,
        pod: &PodRef,
        expected: &Allocation,
        view: &ClaimView,
    ) -> Result<(), StepError> {
        const STEP: &str = "allocating the claim";
        if !view.has_devices(expected) {
            let message = format!("claim {} was allocated by another client", self.name);
            return Err(StepError::new(STEP, FailureKind::Conflict, message));
        }
        if view.is_reserved_for(pod) {
            return Ok(());
        }
        self.reserve(call, pod, Some(expected)).await
    }

    /// Writes the reservation of an allocated claim. `expected` are the devices that it must have.
    pub(super) async fn reserve(
        &mut self,
        call: Call<'_>,
        pod: &PodRef,
        expected: Option<&Allocation>,
    ) -> Result<(), StepError> {
        const STEP: &str = "reserving the claim";
        let mut backoff = Call::backoff();
        let mut last = None;
        for attempt in 0..MAX_ATTEMPTS {
            if attempt > 0 {
                let Some(error) = last.take() else { break };
                let view = self.reread(call, STEP, &error).await?;
                self.check_devices(expected, &view)?;
                if view.is_reserved_for(pod) {
                    return Ok(());
                }
                if let ApiError::Rejected(rejection) = &error
                    && rejection.code != 409
                {
                    return Err(StepError::new(STEP, FailureKind::Rejected, rejection.to_string()));
                }
                if matches!(error, ApiError::Indeterminate { .. })
                    && !call.pause(&mut backoff).await
                {
                    return Err(StepError::of(STEP, &error));
                }
            }
            self.may_have_written = true;
            let write = patches::reserve(&self.name, &self.uid, pod);
            match call.write_object::<ClaimView>(&write).await {
                // It may have been reallocated since it was observed.
                Ok(answer) => return self.check_devices(expected, &answer),
                Err(error) => last = Some(self.retryable(STEP, error)?),
            }
        }
        Err(StepError::of(STEP, &last.unwrap_or(ApiError::NotLeader)))
    }

    fn check_devices(
        &self,
        expected: Option<&Allocation>,
        view: &ClaimView,
    ) -> Result<(), StepError> {
        let is_right = expected
            .map_or(view.status.allocation.is_some(), |expected| view.has_devices(expected));
        if is_right {
            return Ok(());
        }
        let message = format!("claim {} no longer has the expected devices", self.name);
        Err(StepError::new("reserving the claim", FailureKind::Conflict, message))
    }

    /// Passes errors on after which a re-read may help. Others end the operation.
    fn retryable(&self, step: &'static str, error: ApiError) -> Result<ApiError, StepError> {
        match &error {
            ApiError::Indeterminate { .. }
            | ApiError::Rejected(Rejection { code: 409 | 422, .. }) => Ok(error),
            ApiError::Rejected(Rejection { code: 404, .. }) => {
                let message = format!("claim {} is gone", self.name);
                Err(StepError::new(step, FailureKind::Conflict, message))
            }
            _ => Err(StepError::of(step, &error)),
        }
    }

    /// Re-reads the claim after an error. It must be the same claim, and not be deleted.
    async fn reread(
        &self,
        call: Call<'_>,
        step: &'static str,
        error: &ApiError,
    ) -> Result<ClaimView, StepError> {
        let conflict = |message| StepError::new(step, FailureKind::Conflict, message);
        let path = patches::claim_path(&self.name);
        let read = call.read::<ClaimView>(&path, "resourceclaims").await;
        let view = read.map_err(|_| StepError::of(step, error))?;
        match view {
            Some(view) if view.metadata.uid != self.uid => {
                Err(conflict(format!("another claim now has the name {}", self.name)))
            }
            Some(view) if view.metadata.is_deleted() => {
                Err(conflict(format!("claim {} is being deleted", self.name)))
            }
            Some(view) => Ok(view),
            None => Err(conflict(format!("claim {} is gone", self.name))),
        }
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
        let path = patches::claim_path(&self.name);
        let view = call.read::<ClaimView>(&path, "resourceclaims").await?;
        let Some(mut view) = view.filter(|view| self.is_same_claim(view, pod)) else {
            return Ok(());
        };
        // Another leader may have allocated it, and its pod may run with it.
        let is_given = view.status.allocation.is_some();
        if is_given && self.wanted.as_ref().is_some_and(|wanted| !view.has_devices(wanted)) {
            return Ok(());
        }
        if self.is_created {
            return self.remove(call, &view).await;
        }
        let is_last = !view.has_other_consumers(pod) && !self.stays_allocated;
        let is_ours = view.is_reserved_for(pod);
        // An allocation without a consumer is left over from this operation, or from the pod it
        // shared the claim with.
        if is_ours || (is_last && view.status.allocation.is_some() && self.may_have_written) {
            let version = &view.metadata.resource_version;
            let write = patches::release(&self.name, &self.uid, version, pod, is_last);
            view = match call.write_object(&write).await {
                Ok(view) => view,
                Err(error) => return ok_if_gone(error),
            };
        }
        if view.status.allocation.is_none() && view.metadata.has_finalizer() {
            let version = &view.metadata.resource_version;
            let write = patches::remove_finalizer(&self.name, &self.uid, version);
            return call.write(&write).await.map(drop).or_else(ok_if_gone);
        }
        Ok(())
    }

    /// Deletes a claim that a scheduler created: only its pod uses it. Without the finalizer it is
    /// gone at once, and its allocation too.
    async fn remove(&self, call: Call<'_>, view: &ClaimView) -> Result<(), ApiError> {
        if view.metadata.has_finalizer() {
            let version = &view.metadata.resource_version;
            let write = patches::remove_finalizer(&self.name, &view.metadata.uid, version);
            call.write(&write).await.map(drop).or_else(ok_if_gone)?;
        }
        let deleted = call.write(&patches::delete_claim(&self.name, &view.metadata.uid)).await;
        deleted.map(drop).or_else(ok_if_gone)
    }

    fn is_same_claim(&self, view: &ClaimView, pod: &PodRef) -> bool {
        if !self.uid.is_empty() {
            return view.metadata.uid == self.uid;
        }
        view.metadata.owner_references.iter().any(|owner| *owner.uid == *pod.uid)
    }
}

impl std::fmt::Display for Rejection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

fn ok_if_gone(error: ApiError) -> Result<(), ApiError> {
    match error {
        ApiError::Rejected(Rejection { code: 404, .. }) => Ok(()),
        error => Err(error),
    }
}
