//! Orders about a pod alone: it must leave, or will run somewhere; and what earlier schedulers left.

use std::sync::Arc;

use octavo_kube_io::objects::Claim;

use super::answers::PodView;
use super::bodies;
use super::call::{Call, Fault, Write};
use super::claims::{Held, Stop};
use super::{Evict, Failure, FailureKind, PodRef, pod};

/// Attempts of a write whose answer was lost: all of these may be done twice.
const ATTEMPTS: u32 = 4;

/// Makes a pod leave. One that has left already is no failure.
pub(super) async fn evict(call: Call<'_>, evict: &Evict) -> Result<(), Failure> {
    const MARK: &str = "marking the pod as victim";
    const DELETE: &str = "deleting the pod";
    const EVICT: &str = "evicting the pod";
    if evict.is_bound_by_budgets {
        return match repeat(call, &bodies::evict(&evict.pod)).await {
            Ok(_) => Ok(()),
            Err(Fault::Refused(refusal)) if refusal.is_budget => {
                Err(failure(Stop::new(EVICT, FailureKind::Budget, refusal.to_string())))
            }
            Err(fault) => gone_is_good(call, &evict.pod, EVICT, fault).await,
        };
    }
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    match repeat(call, &bodies::mark_victim(evict, &now)).await {
        Ok(body) => {
            let view = serde_json::from_slice::<PodView>(&body).unwrap_or_default();
            if view.metadata.is_deleted() {
                return Ok(());
            }
        }
        Err(fault) => return gone_is_good(call, &evict.pod, MARK, fault).await,
    }
    match repeat(call, &bodies::delete_pod(&evict.pod)).await {
        Ok(_) => Ok(()),
        Err(fault) => gone_is_good(call, &evict.pod, DELETE, fault).await,
    }
}

/// Says where a pod will run.
pub(super) async fn nominate(
    call: Call<'_>,
    pod: &PodRef,
    node: Option<&str>,
) -> Result<(), Failure> {
    const STAGE: &str = "nominating a node for the pod";
    match repeat(call, &bodies::nominate(pod, node)).await {
        Ok(_) => Ok(()),
        Err(fault) => Err(failure(pod::meaning(call, pod, STAGE, &fault).await)),
    }
}

/// Takes back what an earlier scheduler wrote for a pod, if that is not bound.
pub(super) async fn undo(call: Call<'_>, pod: &PodRef, claim: &Arc<Claim>) -> Result<(), Failure> {
    const STAGE: &str = "taking a claim back";
    let held = Held::leftover(claim, pod);
    let left = |stop: Stop| Failure { left: vec![held.name.clone()], ..failure(stop) };
    match pod::bound_to(call, pod).await {
        Ok(None) => {}
        Ok(Some(node)) => {
            let message = format!("the pod is bound to {node} and uses the claim");
            return Err(failure(Stop::new(STAGE, FailureKind::BoundAlready, message)));
        }
        Err(fault) => return Err(left(Stop::of(STAGE, &fault))),
    }
    held.release(call, pod).await.map_err(|fault| left(Stop::of(STAGE, &fault)))
}

/// Writes what may be written twice, until it is known to be done.
async fn repeat(call: Call<'_>, write: &Write) -> Result<Vec<u8>, Fault> {
    let mut backoff = Call::backoff();
    let mut attempt = 1;
    loop {
        let fault = match call.write(write).await {
            Ok(body) => return Ok(body),
            Err(fault) => fault,
        };
        let is_final = !matches!(fault, Fault::Unknown { .. }) || attempt >= ATTEMPTS;
        if is_final || !call.pause(&mut backoff).await {
            return Err(fault);
        }
        attempt += 1;
    }
}

/// A pod that is gone, or whose name another has, has left.
async fn gone_is_good(
    call: Call<'_>,
    pod: &PodRef,
    stage: &'static str,
    fault: Fault,
) -> Result<(), Failure> {
    let stop = match &fault {
        Fault::Refused(refusal) if matches!(refusal.code, 404 | 409 | 422) => {
            pod::meaning(call, pod, stage, &fault).await
        }
        _ => Stop::of(stage, &fault),
    };
    if stop.kind == FailureKind::PodGone { Ok(()) } else { Err(failure(stop)) }
}

fn failure(stop: Stop) -> Failure {
    Failure { stage: stop.stage, message: stop.message, kind: stop.kind, left: Vec::new() }
}
