//! An order to bind: claims, then the binding; what fails is undone.

use std::sync::Arc;

use octavo_kube_io::objects::ObjectName;
use tokio::time::Instant;

use super::answers::{ClaimView, PodView};
use super::bodies;
use super::call::{Call, Fault};
use super::claims::{Held, Stop};
use super::turns::{Allocating, Awaited};
use super::{Bind, Failure, FailureKind, PodRef, extended};

const BINDING: &str = "binding the pod";
/// Attempts of a binding whose answer was lost.
const ATTEMPTS: u32 = 4;

/// An order with its turns at claims.
pub(super) struct Ordered {
    pub(super) bind: Bind,
    /// Claims that it allocates: dropped one by one, so that who waits goes on.
    pub(super) allocating: Vec<Allocating>,
    /// By claim: what an earlier order writes to it.
    pub(super) awaited: Vec<Option<Awaited>>,
}

/// What an order has done so far.
#[derive(Default)]
struct Progress {
    held: Vec<Held>,
    is_told: bool,
    /// Whether the pod may be bound and nobody could be asked: then nothing may be undone.
    is_undecided: bool,
}

/// Carries the order out.
///
/// `undoing` is what calls are made with once it has failed: it has a patience of its own.
pub(super) async fn bind<'a>(
    call: Call<'a>,
    undoing: impl FnOnce() -> Call<'a>,
    ordered: Ordered,
) -> Result<(), Failure> {
    let mut progress = Progress::default();
    let pod = ordered.bind.pod.clone();
    let again = ordered.bind.is_again.then(|| ordered.bind.clone());
    let Err(stop) = steps(call, ordered, &mut progress).await else { return Ok(()) };
    if let Some(bind) = &again {
        progress.add_unreached(bind);
    }
    let left: Vec<_> = if progress.is_undecided {
        progress.held.into_iter().map(|held| held.name).collect()
    } else if again.is_some() && stop.kind == FailureKind::BoundAlready {
        // It runs with them: they are its own for as long as it does.
        Vec::new()
    } else {
        undo(undoing(), &pod, progress).await
    };
    if !left.is_empty() || stop.kind == FailureKind::Undecided {
        // Who reads what is left, or sends the order again, must not meet a write of this one later.
        call.sent.settle().await;
    }
    Err(Failure { stage: stop.stage, message: stop.message, kind: stop.kind, left })
}

impl Progress {
    /// What an earlier sending of an order may have written is undone with the rest, also where this one did
    /// not get so far.
    fn add_unreached(&mut self, bind: &Bind) {
        let is_made = |held: &Held| bind.claims.iter().all(|one| one.claim.meta.name != held.name);
        if bind.extended.is_some() {
            self.is_told = true;
            if !self.held.iter().any(is_made) {
                let name = extended::name(&bind.pod, 0);
                let name = ObjectName::new(bind.pod.name.namespace.clone(), name);
                self.held.push(Held::made(name, ""));
            }
        }
        for write in &bind.claims {
            if self.held.iter().all(|held| held.name != write.claim.meta.name) {
                self.held.push(Held::unreached(write));
            }
        }
    }
}

/// Where the pod of an order stands that was sent before: bound by it (`true`), or free to be bound. What was
/// sent before is settled, so nothing of it comes later.
async fn is_done(
    call: Call<'_>,
    pod: &PodRef,
    node: &Arc<str>,
    progress: &mut Progress,
) -> Result<bool, Stop> {
    match look(call, pod).await {
        Ok(Look::Here(view)) => match view.spec.node_name.as_deref() {
            Some(bound) if *bound == **node => Ok(true),
            Some(bound) => {
                let message = format!("the pod is bound to {bound} already");
                Err(Stop::new(BINDING, FailureKind::BoundAlready, message))
            }
            None if view.metadata.is_deleted() => {
                Err(Stop::new(BINDING, FailureKind::PodGone, "the pod is being deleted"))
            }
            None => Ok(false),
        },
        Ok(Look::Gone) => Err(Stop::new(BINDING, FailureKind::PodGone, "the pod is gone")),
        Err(fault) => {
            progress.is_undecided = true;
            let message = format!("{UNDECIDED}: {fault}");
            Err(Stop::new(BINDING, FailureKind::Undecided, message))
        }
    }
}

async fn steps(call: Call<'_>, ordered: Ordered, progress: &mut Progress) -> Result<(), Stop> {
    let Ordered { bind, mut allocating, awaited } = ordered;
    let Bind { pod, node, claims, extended, is_again } = &bind;
    if *is_again && is_done(call, pod, node, progress).await? {
        return Ok(());
    }
    if let Some(extended) = extended {
        let view = extended::create(call, pod, extended, &mut progress.held).await?;
        let name = view.metadata.name.clone();
        if let Some(held) = progress.held.last_mut() {
            held.allocate(call, pod, &extended.allocation, view).await?;
        }
        extended_told(call, pod, &name, extended, progress).await?;
    }
    for (write, awaited) in claims.iter().zip(awaited) {
        let mut held = Held::seen(&write.claim);
        let expected = match &awaited {
            Some(awaited) => {
                awaited.wait().await;
                Some(&*awaited.allocation)
            }
            None => write.claim.claim.allocation.as_ref(),
        };
        let view = ClaimView::seen(&write.claim);
        let taken = match &write.allocation {
            Some(allocation) => held.allocate(call, pod, allocation, view).await,
            // An order that is sent again may have taken it back itself since it was seen.
            None if view.is_reserved_for(pod) && !is_again => {
                // Finished by an earlier scheduler; it is this order's to undo, too.
                held.is_touched = true;
                Ok(())
            }
            None => held.reserve(call, pod, expected).await,
        };
        allocating.retain(|turn| *turn.claim() != *write.claim.meta.uid);
        if held.is_touched {
            progress.held.push(held);
        }
        taken?;
    }
    post(call, pod, node, progress).await
}

async fn extended_told(
    call: Call<'_>,
    pod: &PodRef,
    claim: &str,
    extended: &super::ExtendedWrite,
    progress: &mut Progress,
) -> Result<(), Stop> {
    progress.is_told = true;
    extended::tell(call, pod, claim, extended).await
}

/// Binds; an answer that was lost is looked for on the pod.
async fn post(
    call: Call<'_>,
    pod: &PodRef,
    node: &Arc<str>,
    progress: &mut Progress,
) -> Result<(), Stop> {
    // Until when a binding that was sent may still land.
    let mut settled: Option<Instant> = None;
    let write = bodies::bind(pod, node);
    let mut backoff = Call::backoff();
    let mut last = Fault::NotLeader;
    for _ in 0..ATTEMPTS {
        match call.write(&write).await {
            Ok(_) => return Ok(()),
            Err(fault) => last = fault,
        }
        match &last {
            Fault::NotLeader | Fault::Refused(_) => break,
            Fault::Unknown { settled: until, .. } => settled = Some(*until),
        }
        if is_bound(call, pod, node).await == Some(true) {
            return Ok(());
        }
        if !call.pause(&mut backoff).await {
            break;
        }
    }
    // A binding that may still land would bind a pod whose claims were taken back.
    if let Some(until) = settled {
        tokio::time::sleep_until(until).await;
    }
    Err(match look(call, pod).await {
        Ok(Look::Here(view)) => match view.spec.node_name.as_deref() {
            Some(bound) if *bound == **node => return Ok(()),
            Some(bound) => {
                let message = format!("the pod is bound to {bound} already");
                Stop::new(BINDING, FailureKind::BoundAlready, message)
            }
            None if view.metadata.is_deleted() => {
                Stop::new(BINDING, FailureKind::PodGone, "the pod is being deleted")
            }
            None => Stop::of(BINDING, &last),
        },
        Ok(Look::Gone) => Stop::new(BINDING, FailureKind::PodGone, "the pod is gone"),
        // Whether it is bound is not known: it may not be undone.
        Err(_) if settled.is_some() => {
            progress.is_undecided = true;
            return Err(Stop::new(BINDING, FailureKind::Undecided, UNDECIDED));
        }
        Err(_) => Stop::of(BINDING, &last),
    })
}

/// Message of a binding of which nobody knows.
const UNDECIDED: &str =
    "the binding was sent, and the API server could not be asked what became of it";

enum Look {
    Here(Box<PodView>),
    Gone,
}

async fn look(call: Call<'_>, pod: &PodRef) -> Result<Look, Fault> {
    let view = call.read::<PodView>(&bodies::pod_path(&pod.name), "pods").await?;
    let view = view.filter(|view| *view.metadata.uid == *pod.uid);
    Ok(view.map_or(Look::Gone, |view| Look::Here(Box::new(view))))
}

async fn is_bound(call: Call<'_>, pod: &PodRef, node: &str) -> Option<bool> {
    match look(call, pod).await {
        Ok(Look::Here(view)) => Some(view.spec.node_name.as_deref() == Some(node)),
        Ok(Look::Gone) => Some(false),
        Err(_) => None,
    }
}

/// Where the pod of an order stands, for orders that undo: the node it is bound to.
pub(super) async fn bound_to(call: Call<'_>, pod: &PodRef) -> Result<Option<String>, Fault> {
    Ok(match look(call, pod).await? {
        Look::Here(view) => view.spec.node_name.filter(|node| !node.is_empty()),
        Look::Gone => None,
    })
}

/// What a refused write to a pod means.
pub(super) async fn meaning(
    call: Call<'_>,
    pod: &PodRef,
    stage: &'static str,
    fault: &Fault,
) -> Stop {
    match look(call, pod).await {
        Ok(Look::Gone) => Stop::new(stage, FailureKind::PodGone, "the pod is gone"),
        Ok(Look::Here(_)) | Err(_) => Stop::of(stage, fault),
    }
}

/// Takes back what was written, last first; returns what could not be.
async fn undo(call: Call<'_>, pod: &PodRef, progress: Progress) -> Vec<ObjectName> {
    let mut left = Vec::new();
    // Nobody waits for every claim's patience in turn when the server is away.
    let is_hopeless = |fault: Fault| !matches!(fault, Fault::Refused(_));
    let mut gives_up = false;
    if progress.is_told {
        gives_up = extended::untell(call, pod).await.is_err_and(is_hopeless);
    }
    for held in progress.held.iter().rev() {
        let undone = if gives_up { Err(Fault::NotLeader) } else { held.release(call, pod).await };
        if let Err(fault) = undone {
            gives_up |= is_hopeless(fault);
            left.push(held.name.clone());
        }
    }
    left
}
