//! The bind operation: claims first, then the binding. A failure is rolled back.

use std::sync::Arc;

use octavo_kube_io::objects::{NodeName, ObjectName, Pod};
use tokio::time::Instant;

use super::call::{ApiError, Call};
use super::claim_sequencer::{AllocationGuard, PendingAllocation};
use super::claims::ClaimWriter;
use super::patches;
use super::{Bind, ClaimVersions, Failure, FailureKind, PodRef, extended};

const BINDING_STEP: &str = "binding the pod";
/// Attempts of a binding after lost responses.
const MAX_ATTEMPTS: u32 = 4;

/// A bind operation with its place in the order of writes to its claims.
pub(super) struct SequencedBind {
    pub(super) bind: Bind,
    /// Claims that it allocates. Each guard is dropped when its claim is done, which releases
    /// waiting operations.
    pub(super) guards: Vec<AllocationGuard>,
    /// Per claim: the allocation that an earlier operation is writing.
    pub(super) pending: Vec<Option<PendingAllocation>>,
}

/// What the operation has written so far.
#[derive(Default)]
struct Progress {
    writers: Vec<ClaimWriter>,
    /// Claims that are allocated to the pod and reserved for it.
    versions: ClaimVersions,
    is_status_written: bool,
    /// Whether the pod may be bound and could not be read back. Then nothing may be rolled back.
    is_indeterminate: bool,
}

/// Runs the operation. Returns the versions of its claims.
///
/// `rollback_call` makes the calls of the rollback. They have their own retry timeout.
pub(super) async fn bind<'a>(
    call: Call<'a>,
    rollback_call: impl FnOnce() -> Call<'a>,
    sequenced: SequencedBind,
) -> Result<ClaimVersions, Failure> {
    let mut progress = Progress::default();
    let pod = sequenced.bind.pod.clone();
    let retried = sequenced.bind.is_retry.then(|| sequenced.bind.clone());
    let Err(failure) = run_steps(call, sequenced, &mut progress).await else {
        return Ok(progress.versions);
    };
    if let Some(bind) = &retried {
        progress.add_unreached(bind);
    }
    let unreleased: Vec<_> = if progress.is_indeterminate {
        progress.writers.into_iter().map(|writer| writer.name).collect()
    } else if retried.is_some() && failure.kind == FailureKind::AlreadyBound {
        // The pod runs with its claims: they stay allocated while it does.
        Vec::new()
    } else {
        rollback(rollback_call(), &pod, progress).await
    };
    if !unreleased.is_empty() || failure.kind == FailureKind::Indeterminate {
        // A reader of these claims, or a retry of this operation, must not meet a late write of it.
        call.barrier.wait().await;
    }
    Err(Failure { unreleased, ..failure })
}

impl Progress {
    /// Adds the claims that this retry did not reach. An earlier attempt may have written to them,
    /// so the rollback must include them.
    fn add_unreached(&mut self, bind: &Bind) {
        let is_unknown = |writer: &ClaimWriter| {
            bind.claims.iter().all(|write| write.claim.meta.name != writer.name)
        };
        if bind.extended.is_some() {
            self.is_status_written = true;
            if !self.writers.iter().any(is_unknown) {
                let name = extended::name(&bind.pod, 0);
                let name = ObjectName::new(bind.pod.name.namespace.clone(), name);
                self.writers.push(ClaimWriter::created(name, Arc::default()));
            }
        }
        for write in &bind.claims {
            if self.writers.iter().all(|writer| writer.name != write.claim.meta.name) {
                self.writers.push(ClaimWriter::unreached(write));
            }
        }
    }
}

/// Where the pod of a retried operation stands: bound to the node (`true`), or free to be bound.
/// The earlier attempt has settled, so none of its writes comes later.
async fn is_bound_already(
    call: Call<'_>,
    pod: &PodRef,
    node: &NodeName,
    progress: &mut Progress,
) -> Result<bool, Failure> {
    match read_pod(call, pod).await {
        Ok(found) => is_bound_to(found.as_ref(), node),
        Err(error) => {
            progress.is_indeterminate = true;
            let message = format!("{INDETERMINATE_MESSAGE}: {error}");
            Err(Failure::new(BINDING_STEP, FailureKind::Indeterminate, message))
        }
    }
}

/// Whether a pod is bound to the node, or free to be bound (`false`).
fn is_bound_to(pod: Option<&Pod>, node: &NodeName) -> Result<bool, Failure> {
    let (kind, message) = match pod {
        None => (FailureKind::PodGone, "the pod is gone".to_owned()),
        Some(Pod { node: Some(bound), .. }) if bound == node => return Ok(true),
        Some(Pod { node: Some(bound), .. }) => {
            (FailureKind::AlreadyBound, format!("the pod is bound to {bound} already"))
        }
        Some(pod) if pod.meta.deleted.is_some() => {
            (FailureKind::PodGone, "the pod is being deleted".to_owned())
        }
        Some(_) => return Ok(false),
    };
    Err(Failure::new(BINDING_STEP, kind, message))
}

async fn run_steps(
    call: Call<'_>,
    sequenced: SequencedBind,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let SequencedBind { bind, mut guards, pending } = sequenced;
    let Bind { pod, node, claims, extended, gang_placed, is_retry } = &bind;
    if *is_retry && is_bound_already(call, pod, node, progress).await? {
        return Ok(());
    }
    if let Some(extended) = extended {
        let view = extended::create(call, pod, extended, &mut progress.writers).await?;
        let name = Arc::clone(&view.meta.name.name);
        if let Some(writer) = progress.writers.last_mut() {
            let version = writer.allocate(call, pod, &extended.allocation, view).await?;
            progress.versions.extend(version.map(|version| (writer.uid.clone().into(), version)));
        }
        progress.is_status_written = true;
        extended::write_status(call, pod, &name, extended).await?;
    }
    for (write, pending) in claims.iter().zip(pending) {
        let mut writer = ClaimWriter::from_watch(&write.claim);
        let expected = match &pending {
            Some(pending) => {
                pending.wait().await;
                Some(&*pending.allocation)
            }
            None => write.claim.claim.allocation.as_ref(),
        };
        let taken = match &write.allocation {
            Some(allocation) => {
                writer.allocate(call, pod, allocation, Arc::clone(&write.claim)).await
            }
            // Also if it is observed as reserved: it may have been rolled back since.
            None => writer.reserve(call, pod, expected).await,
        };
        guards.retain(|guard| *guard.claim != *write.claim.meta.uid);
        if writer.may_have_written {
            progress.writers.push(writer);
        }
        let version = taken?;
        progress.versions.extend(version.map(|version| (write.claim.uid(), version)));
    }
    create_binding(call, pod, node, gang_placed.as_deref(), progress).await
}

/// Creates the binding. After a lost response it reads the pod back.
async fn create_binding(
    call: Call<'_>,
    pod: &PodRef,
    node: &NodeName,
    gang_placed: Option<&str>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    // When the last binding that was sent can no longer take effect.
    let mut settles_at: Option<Instant> = None;
    let write = patches::bind(pod, node, gang_placed);
    let mut backoff = Call::backoff();
    let mut last = ApiError::NotLeader;
    for _ in 0..MAX_ATTEMPTS {
        match call.send(&write).await {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
        match &last {
            ApiError::NotLeader | ApiError::Rejected(_) => break,
            ApiError::Indeterminate { settles_at: until, .. } => settles_at = Some(*until),
        }
        if let Ok(Some(found)) = read_pod(call, pod).await
            && found.node.as_ref() == Some(node)
        {
            return Ok(());
        }
        if !call.pause(&mut backoff).await {
            break;
        }
    }
    // A binding that takes effect later would bind a pod whose claims were rolled back.
    if let Some(until) = settles_at {
        tokio::time::sleep_until(until).await;
    }
    match read_pod(call, pod).await {
        Ok(found) if is_bound_to(found.as_ref(), node)? => Ok(()),
        // The pod may be bound, so nothing may be rolled back.
        Err(_) if settles_at.is_some() => {
            progress.is_indeterminate = true;
            Err(Failure::new(BINDING_STEP, FailureKind::Indeterminate, INDETERMINATE_MESSAGE))
        }
        Ok(_) | Err(_) => Err(Failure::of(BINDING_STEP, &last)),
    }
}

/// Message of a binding with an unknown outcome.
const INDETERMINATE_MESSAGE: &str =
    "the binding was sent, but the pod could not be read back: its outcome is unknown";

/// The pod as the API server has it; `None` if it is gone.
pub(super) async fn read_pod(call: Call<'_>, pod: &PodRef) -> Result<Option<Pod>, ApiError> {
    let found = call.read(patches::pod_path(&pod.name), "pods", Pod::from_json).await?;
    Ok(found.filter(|found| *found.meta.uid == *pod.uid))
}

/// What a rejected write to a pod means.
pub(super) async fn pod_write_error(
    call: Call<'_>,
    pod: &PodRef,
    step: &'static str,
    error: &ApiError,
) -> Failure {
    match read_pod(call, pod).await {
        Ok(None) => Failure::new(step, FailureKind::PodGone, "the pod is gone"),
        Ok(Some(_)) | Err(_) => Failure::of(step, error),
    }
}

/// Rolls the writes back, last first. Returns the claims that could not be released.
async fn rollback(call: Call<'_>, pod: &PodRef, progress: Progress) -> Vec<ObjectName> {
    let mut unreleased = Vec::new();
    // With the server away, one retry timeout is enough: the remaining claims are not tried in
    // turn.
    let is_hopeless = |error: ApiError| !matches!(error, ApiError::Rejected(_));
    let mut is_giving_up = false;
    if progress.is_status_written {
        is_giving_up = extended::clear_status(call, pod).await.is_err_and(is_hopeless);
    }
    for writer in progress.writers.iter().rev() {
        let released =
            if is_giving_up { Err(ApiError::NotLeader) } else { writer.release(call, pod).await };
        if let Err(error) = released {
            is_giving_up |= is_hopeless(error);
            unreleased.push(writer.name.clone());
        }
    }
    unreleased
}
