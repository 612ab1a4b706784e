//! The claim for a pod's extended resources. A bind operation creates it, and deletes it on
//! failure.

use std::sync::Arc;

use octavo_dra::{Ask, Count, Request};
use octavo_kube_io::objects::{Claim, ObjectName, Pod};
use uuid::Uuid;

use super::call::{ApiError, Call};
use super::claims::{ClaimWriter, is_owned_by};
use super::patches;
use super::{ExtendedWrite, Failure, FailureKind, PodRef};

const STEP: &str = "creating the claim for extended resources";
/// Names that are tried.
const MAX_NAMES: u32 = 4;
/// Attempts of one name.
const MAX_ATTEMPTS: u32 = 4;
/// Longest base of a name that the API server generates, and the alphabet of its suffixes
/// (`apiserver/pkg/storage/names/generate.go`, `apimachinery/pkg/util/rand/rand.go`).
const MAX_BASE_LEN: usize = 58;
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LEN: usize = 5;

/// Name of the claim, in the form of `generateName`. It is the same at every attempt, so that this
/// leader or the next finds a claim whose create response was lost.
pub(super) fn name(pod: &PodRef, number: u32) -> String {
    let base = format!("{}-extended-resources-", pod.name.name);
    let end = (0..=base.len().min(MAX_BASE_LEN)).rev().find(|end| base.is_char_boundary(*end));
    let key = format!("{}/{number}", pod.uid);
    let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes()).into_bytes();
    let ending = hash.iter().take(SUFFIX_LEN);
    let ending =
        ending.map(|byte| char::from(SUFFIX_ALPHABET[usize::from(*byte) % SUFFIX_ALPHABET.len()]));
    base[..end.unwrap_or(0)].chars().chain(ending).collect()
}

/// Creates the claim, or finds the one that an earlier attempt of the same pod created.
///
/// The claim is pushed to `writers` as soon as it may exist.
pub(super) async fn create(
    call: Call<'_>,
    pod: &PodRef,
    extended: &ExtendedWrite,
    writers: &mut Vec<ClaimWriter>,
) -> Result<Arc<Claim>, Failure> {
    let mut last = None;
    for number in 0..MAX_NAMES {
        let name = name(pod, number);
        if let Some(view) = create_named(call, pod, extended, &name, writers).await? {
            return Ok(view);
        }
        last = Some(name);
    }
    let name = last.unwrap_or_default();
    let message = format!("other claims have all names that were tried, the last being {name}");
    Err(Failure::new(STEP, FailureKind::Conflict, message))
}

/// `None`: the name belongs to another client, or to an earlier attempt with other requests.
async fn create_named(
    call: Call<'_>,
    pod: &PodRef,
    extended: &ExtendedWrite,
    name: &str,
    writers: &mut Vec<ClaimWriter>,
) -> Result<Option<Arc<Claim>>, Failure> {
    let full = ObjectName::new(pod.name.namespace.clone(), name);
    let write = patches::create_extended(pod, name, extended);
    let mut backoff = Call::backoff();
    for _ in 0..MAX_ATTEMPTS {
        let error = match call.write_object(&write, Claim::from_json).await {
            Ok(view) => {
                writers.push(ClaimWriter::created(full, Arc::clone(&view.meta.uid)));
                return Ok(Some(view.into()));
            }
            Err(error) => error,
        };
        let is_unknown = match &error {
            ApiError::Indeterminate { .. } => true,
            // The name is taken, most likely by an earlier attempt.
            ApiError::Rejected(rejection) if rejection.code == 409 => false,
            // The namespace is gone or being deleted, and the pod with it.
            ApiError::Rejected(rejection) if rejection.code == 404 => {
                return Err(Failure::new(STEP, FailureKind::PodGone, error.to_string()));
            }
            _ => return Err(Failure::of(STEP, &error)),
        };
        let path = patches::claim_path(&full);
        let view = match call.read(path, "resourceclaims", Claim::from_json).await {
            Ok(view) => view,
            Err(_) if is_unknown => {
                // The claim may exist; its UID is unknown.
                writers.push(ClaimWriter::created(full, Arc::default()));
                return Err(Failure::of(STEP, &error));
            }
            Err(_) => return Err(Failure::of(STEP, &error)),
        };
        match view {
            Some(view) if !view.is_extended || !is_owned_by(&view, pod) => return Ok(None),
            Some(view) => {
                let writer = ClaimWriter::created(full.clone(), Arc::clone(&view.meta.uid));
                if view.meta.deleted.is_none() && has_same_requests(&view, extended) {
                    writers.push(writer);
                    return Ok(Some(view.into()));
                }
                // It is from an attempt on another node. A pod must not have two such claims.
                if let Err(error) = writer.release(call, pod).await {
                    writers.push(writer);
                    return Err(Failure::of(STEP, &error));
                }
            }
            None => {}
        }
        if is_unknown && !call.pause(&mut backoff).await {
            return Err(Failure::of(STEP, &error));
        }
    }
    let message = format!("claim {full} could not be created within {MAX_ATTEMPTS} attempts");
    Err(Failure::new(STEP, FailureKind::Unreachable, message))
}

/// Whether the claim has the requests of this operation. The API server fills in defaults, so only
/// names, classes and counts are compared. Such claims have nothing else.
fn has_same_requests(claim: &Claim, extended: &ExtendedWrite) -> bool {
    claim.claim.requests.iter().map(key).eq(extended.claim.requests.iter().map(key))
}

fn key(request: &Request) -> (&str, Option<(&str, &Count)>) {
    let asked = match &request.ask {
        Ask::Exactly(asked) => Some((asked.class.as_str(), &asked.count)),
        Ask::FirstAvailable(_) => None,
    };
    (&request.name, asked)
}

/// Sets which claim has the pod's extended resources.
pub(super) async fn write_status(
    call: Call<'_>,
    pod: &PodRef,
    claim: &str,
    extended: &ExtendedWrite,
) -> Result<(), Failure> {
    const STEP: &str = "writing status.extendedResourceClaimStatus of the pod";
    let write = patches::set_extended_status(pod, claim, extended);
    let mut backoff = Call::backoff();
    for _ in 0..MAX_ATTEMPTS {
        let error = match call.write_object(&write, Pod::from_json).await {
            Ok(view) if names_claim(&view, claim) => return Ok(()),
            Ok(_) => {
                let message = "the API server drops status.extendedResourceClaimStatus: enable its feature gate DRAExtendedResource";
                return Err(Failure::new(STEP, FailureKind::Rejected, message));
            }
            Err(error) => error,
        };
        match &error {
            // Writing the same status twice does no harm.
            ApiError::Indeterminate { .. } => {}
            ApiError::Rejected(rejection) if rejection.code == 409 => {}
            ApiError::Rejected(rejection) if matches!(rejection.code, 404 | 422) => {
                return Err(super::pod::pod_write_error(call, pod, STEP, &error).await);
            }
            _ => return Err(Failure::of(STEP, &error)),
        }
        if !call.pause(&mut backoff).await {
            return Err(Failure::of(STEP, &error));
        }
    }
    let message = format!("the status was not written within {MAX_ATTEMPTS} attempts");
    Err(Failure::new(STEP, FailureKind::Unreachable, message))
}

/// Clears that status, if the pod exists.
pub(super) async fn clear_status(call: Call<'_>, pod: &PodRef) -> Result<(), ApiError> {
    let mut backoff = Call::backoff();
    loop {
        let Err(error) = call.send(&patches::clear_extended_status(pod)).await else {
            return Ok(());
        };
        match &error {
            // The pod is gone or replaced: it has no such status.
            ApiError::Rejected(rejection) if matches!(rejection.code, 404 | 422) => return Ok(()),
            ApiError::NotLeader | ApiError::Rejected(_) => return Err(error),
            ApiError::Indeterminate { .. } => {}
        }
        if !call.pause(&mut backoff).await {
            return Err(error);
        }
    }
}

fn names_claim(pod: &Pod, claim: &str) -> bool {
    pod.extended_claim.as_ref().is_some_and(|status| status.claim == claim)
}
