//! The claim for a pod's extended resources: made by the order, deleted by it when it fails.

use octavo_kube_io::objects::ObjectName;
use uuid::Uuid;

use super::answers::{ClaimView, EXTENDED, PodView};
use super::bodies;
use super::call::{Call, Fault};
use super::claims::{Held, Stop};
use super::{ExtendedWrite, FailureKind, PodRef};

const STAGE: &str = "creating the claim for extended resources";
/// Names that are tried before the order gives up.
const NAMES: u32 = 4;
/// Attempts of one name.
const ATTEMPTS: u32 = 4;
/// Longest base of a name that the API server makes itself, and the letters of its endings
/// (`apiserver/pkg/storage/names/generate.go`, `apimachinery/pkg/util/rand/rand.go`).
const LONGEST_BASE: usize = 58;
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const ENDING: usize = 5;

/// Name of the claim: as `generateName` makes them, but the same at every attempt, so that a create
/// whose answer was lost is found again, also by the next leader.
pub(super) fn name(pod: &PodRef, number: u32) -> String {
    let base = format!("{}-extended-resources-", pod.name.name);
    let end = (0..=base.len().min(LONGEST_BASE)).rev().find(|end| base.is_char_boundary(*end));
    let key = format!("{}/{number}", pod.uid);
    let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes()).into_bytes();
    let ending = hash.iter().take(ENDING);
    let ending = ending.map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]));
    base[..end.unwrap_or(0)].chars().chain(ending).collect()
}

/// Creates the claim, or finds the one that an earlier attempt of the same pod made.
///
/// What was made is pushed to `held` as soon as it may be there.
pub(super) async fn create(
    call: Call<'_>,
    pod: &PodRef,
    extended: &ExtendedWrite,
    held: &mut Vec<Held>,
) -> Result<ClaimView, Stop> {
    let mut last = None;
    for number in 0..NAMES {
        let name = name(pod, number);
        match create_named(call, pod, extended, &name, held).await? {
            Made::Here(view) => return Ok(view),
            Made::Taken => last = Some(name),
        }
    }
    let name = last.unwrap_or_default();
    let message = format!("claims of others have all names that were tried, {name} the last");
    Err(Stop::new(STAGE, FailureKind::Conflict, message))
}

enum Made {
    Here(ClaimView),
    /// The name is somebody else's, or one's own of an earlier attempt that asked for something else.
    Taken,
}

async fn create_named(
    call: Call<'_>,
    pod: &PodRef,
    extended: &ExtendedWrite,
    name: &str,
    held: &mut Vec<Held>,
) -> Result<Made, Stop> {
    let full = ObjectName::new(pod.name.namespace.clone(), name);
    let write = bodies::create_extended(pod, name, extended);
    let path = bodies::claim_path(&full);
    let mut backoff = Call::backoff();
    for _ in 0..ATTEMPTS {
        let fault = match call.write_object::<ClaimView>(&write).await {
            Ok(view) => {
                held.push(Held::made(full, &view.metadata.uid));
                return Ok(Made::Here(view));
            }
            Err(fault) => fault,
        };
        let is_unknown = match &fault {
            Fault::Unknown { .. } => true,
            // Its name is taken: by an attempt of before, most likely.
            Fault::Refused(refusal) if refusal.code == 409 => false,
            // The namespace is gone or on its way out, and the pod with it.
            Fault::Refused(refusal) if refusal.code == 404 => {
                return Err(Stop::new(STAGE, FailureKind::PodGone, fault.to_string()));
            }
            _ => return Err(Stop::of(STAGE, &fault)),
        };
        let view = match call.read::<ClaimView>(&path, "resourceclaims").await {
            Ok(view) => view,
            Err(_) if is_unknown => {
                // It may be there; its UID is not known.
                held.push(Held::made(full, ""));
                return Err(Stop::of(STAGE, &fault));
            }
            Err(_) => return Err(Stop::of(STAGE, &fault)),
        };
        match view {
            Some(view) if !is_of(&view, pod) => return Ok(Made::Taken),
            Some(view) => {
                let made = Held::made(full.clone(), &view.metadata.uid);
                if !view.metadata.is_deleted() && asks_the_same(&view, extended) {
                    held.push(made);
                    return Ok(Made::Here(view));
                }
                // Of an attempt on another node. Two claims of one pod would be one too many.
                if let Err(fault) = made.release(call, pod).await {
                    held.push(made);
                    return Err(Stop::of(STAGE, &fault));
                }
            }
            None => {}
        }
        if is_unknown && !call.pause(&mut backoff).await {
            return Err(Stop::of(STAGE, &fault));
        }
    }
    let message = format!("claim {full} could not be created within {ATTEMPTS} attempts");
    Err(Stop::new(STAGE, FailureKind::Unreachable, message))
}

fn is_of(view: &ClaimView, pod: &PodRef) -> bool {
    let is_extended = view.metadata.annotations.get(EXTENDED).is_some_and(|value| value == "true");
    is_extended && view.metadata.owner_references.iter().any(|owner| *owner.uid == *pod.uid)
}

/// Whether the requests are those of the order. The API server fills in defaults, so names, classes and
/// counts are compared, which is all that such claims have.
fn asks_the_same(view: &ClaimView, extended: &ExtendedWrite) -> bool {
    let there = view.spec.pointer("/devices/requests").and_then(serde_json::Value::as_array);
    let there = there.map(Vec::as_slice).unwrap_or_default();
    let wanted: Vec<_> = extended.claim.requests.iter().map(super::bodies::request).collect();
    let key = |request: &serde_json::Value| {
        ["/name", "/exactly/deviceClassName", "/exactly/count"]
            .map(|path| request.pointer(path).cloned().unwrap_or_default())
    };
    there.iter().map(key).eq(wanted.iter().map(key))
}

/// Tells the pod which claim has its extended resources.
pub(super) async fn tell(
    call: Call<'_>,
    pod: &PodRef,
    claim: &str,
    extended: &ExtendedWrite,
) -> Result<(), Stop> {
    const STAGE: &str = "telling the pod of its claim for extended resources";
    let write = bodies::tell_extended(pod, claim, extended);
    let mut backoff = Call::backoff();
    for _ in 0..ATTEMPTS {
        let fault = match call.write_object::<PodView>(&write).await {
            Ok(view) if names(&view, claim) => return Ok(()),
            Ok(_) => {
                let message = "the API server keeps no status.extendedResourceClaimStatus: turn its \
                               feature gate DRAExtendedResource on";
                return Err(Stop::new(STAGE, FailureKind::Refused, message));
            }
            Err(fault) => fault,
        };
        match &fault {
            // The same is written again: nothing is lost by doing it twice.
            Fault::Unknown { .. } => {}
            Fault::Refused(refusal) if refusal.code == 409 => {}
            Fault::Refused(refusal) if matches!(refusal.code, 404 | 422) => {
                return Err(super::pod::meaning(call, pod, STAGE, &fault).await);
            }
            _ => return Err(Stop::of(STAGE, &fault)),
        }
        if !call.pause(&mut backoff).await {
            return Err(Stop::of(STAGE, &fault));
        }
    }
    let message = format!("it did not succeed within {ATTEMPTS} attempts");
    Err(Stop::new(STAGE, FailureKind::Unreachable, message))
}

/// Takes back what was told, if the pod is there.
pub(super) async fn untell(call: Call<'_>, pod: &PodRef) -> Result<(), Fault> {
    let mut backoff = Call::backoff();
    loop {
        let fault = match call.write(&bodies::untell_extended(pod)).await {
            Ok(_) => return Ok(()),
            Err(fault) => fault,
        };
        match &fault {
            // Gone, or another pod: nothing was told to it.
            Fault::Refused(refusal) if matches!(refusal.code, 404 | 422) => return Ok(()),
            Fault::NotLeader | Fault::Refused(_) => return Err(fault),
            Fault::Unknown { .. } => {}
        }
        if !call.pause(&mut backoff).await {
            return Err(fault);
        }
    }
}

fn names(view: &PodView, claim: &str) -> bool {
    let told = view.status.extended_resource_claim_status.as_ref();
    told.is_some_and(|told| told.resource_claim_name == claim)
}
