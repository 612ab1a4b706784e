//! Operations for a pod other than its binding: eviction, nomination, requests of volumes, and the
//! rollback of what a previous leader left.

use std::sync::Arc;

use octavo_kube_io::objects::{Claim, PersistentVolume, Pod};

use super::call::{ApiError, ApiRequest, Call};
use super::claims::ClaimWriter;
use super::patches;
use super::{Evict, Failure, FailureKind, PodRef, VolumeWrite, pod};

/// Attempts of a write with lost responses. All writes here are idempotent.
const MAX_ATTEMPTS: u32 = 4;

/// Evicts a pod. A pod that is gone already is no failure.
pub(super) async fn evict(call: Call<'_>, evict: &Evict) -> Result<(), Failure> {
    const MARK: &str = "marking the pod as victim";
    const DELETE: &str = "deleting the pod";
    const EVICT: &str = "evicting the pod";
    if evict.is_bound_by_budgets {
        return match write_idempotent(call, &patches::evict(&evict.pod)).await {
            Ok(_) => Ok(()),
            Err(ApiError::Rejected(rejection)) if rejection.is_budget => {
                Err(Failure::new(EVICT, FailureKind::Budget, rejection.to_string()))
            }
            Err(error) => ok_if_gone(call, &evict.pod, EVICT, error).await,
        };
    }
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    match write_idempotent(call, &patches::mark_victim(evict, &now)).await {
        Ok(body) => {
            if Pod::from_json(&body).is_ok_and(|pod| pod.meta.deleted.is_some()) {
                return Ok(());
            }
        }
        Err(error) => return ok_if_gone(call, &evict.pod, MARK, error).await,
    }
    match write_idempotent(call, &patches::delete_pod(&evict.pod)).await {
        Ok(_) => Ok(()),
        Err(error) => ok_if_gone(call, &evict.pod, DELETE, error).await,
    }
}

/// Sets or clears a pod's nominated node.
pub(super) async fn nominate(
    call: Call<'_>,
    pod: &PodRef,
    node: Option<&str>,
) -> Result<(), Failure> {
    const STEP: &str = "nominating a node for the pod";
    match write_idempotent(call, &patches::nominate(pod, node)).await {
        Ok(_) => Ok(()),
        Err(error) => Err(pod::pod_write_error(call, pod, STEP, &error).await),
    }
}

/// Requests volumes for a pod on a node. What was requested stays if a later request fails: the pod
/// is then decided again for the same node.
pub(super) async fn request_volumes(
    call: Call<'_>,
    pod: &PodRef,
    node: &str,
    writes: &[VolumeWrite],
) -> Result<(), Failure> {
    const STEP: &str = "requesting a volume";
    for write in writes {
        if let Err(error) = write_idempotent(call, &patches::request_volume(write, node)).await
            && !is_reserved(call, write, &error).await
        {
            return Err(pod::pod_write_error(call, pod, STEP, &error).await);
        }
    }
    Ok(())
}

/// Whether a volume is reserved for the claim although the write was rejected: an earlier attempt may
/// have made it, whose response was lost.
async fn is_reserved(call: Call<'_>, write: &VolumeWrite, error: &ApiError) -> bool {
    let VolumeWrite::Bind { volume, claim_uid, .. } = write else { return false };
    if !matches!(error, ApiError::Rejected(rejection) if rejection.code == 409) {
        return false;
    }
    let path = patches::volume_path(volume);
    let found = call.read(path, "persistentvolumes", PersistentVolume::from_json).await;
    let holder = found.ok().flatten().and_then(|volume| volume.claim);
    holder.is_some_and(|(_, uid)| uid == *claim_uid)
}

/// Rolls back what a previous leader wrote for a pod, if the pod is not bound.
pub(super) async fn rollback(
    call: Call<'_>,
    pod: &PodRef,
    claim: &Arc<Claim>,
) -> Result<(), Failure> {
    const STEP: &str = "rolling back a claim";
    let writer = ClaimWriter::leftover(claim, pod);
    let unreleased = |error: ApiError| {
        let unreleased = vec![writer.name.clone()];
        Failure { unreleased, ..Failure::of(STEP, &error) }
    };
    let found = pod::read_pod(call, pod).await.map_err(unreleased)?;
    if let Some(node) = found.and_then(|found| found.node) {
        let message = format!("the pod is bound to {node} and uses the claim");
        return Err(Failure::new(STEP, FailureKind::AlreadyBound, message));
    }
    writer.release(call, pod).await.map_err(unreleased)
}

/// Retries an idempotent write until its outcome is known.
async fn write_idempotent(call: Call<'_>, write: &ApiRequest) -> Result<Vec<u8>, ApiError> {
    let mut backoff = Call::backoff();
    let mut attempt = 1;
    loop {
        let error = match call.send(write).await {
            Ok(body) => return Ok(body),
            Err(error) => error,
        };
        let is_final = !matches!(error, ApiError::Indeterminate { .. }) || attempt >= MAX_ATTEMPTS;
        if is_final || !call.pause(&mut backoff).await {
            return Err(error);
        }
        attempt += 1;
    }
}

/// Succeeds if the pod is gone or another pod has its name.
async fn ok_if_gone(
    call: Call<'_>,
    pod: &PodRef,
    step: &'static str,
    error: ApiError,
) -> Result<(), Failure> {
    let failure = match &error {
        ApiError::Rejected(rejection) if matches!(rejection.code, 404 | 409 | 422) => {
            pod::pod_write_error(call, pod, step, &error).await
        }
        _ => Failure::of(step, &error),
    };
    if failure.kind == FailureKind::PodGone { Ok(()) } else { Err(failure) }
}
