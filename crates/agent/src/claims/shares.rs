//! The files of a claim's shares.

use octavo_enforcement::release_shares;
use octavo_enforcement::share::{self, GuardedShare, LimitedShare, share_folder};
use octavo_node::NodePaths;
use octavo_node::files::StorageError;

use super::claim_holds::ClaimHolds;
use crate::cdi::CdiDevice;
use crate::checkpoint::{HeldKind, Record};

/// Writes missing or changed limits of a claim's shares; returns whether any were written.
pub(super) fn write(
    paths: &NodePaths,
    record: &Record,
    cdi_devices: &[CdiDevice<'_>],
) -> Result<bool, StorageError> {
    let mut is_written = false;
    for part in cdi_devices {
        let HeldKind::Share(amounts) = part.held.kind else { continue };
        let share_id = part.held.share_id.as_deref().filter(|_| !amounts.is_unlimited());
        let Some(share_id) = share_id else { continue };
        let limited = LimitedShare {
            claim: &record.claim,
            share_id,
            device: &part.held.device,
            pool: &part.held.pool,
            gpu_uuid: &part.gpu.uuid,
            gpu_minor: part.minor,
            memory_bytes: part.held.memory_limit().unwrap_or(amounts.memory_bytes),
            memory_request: amounts.memory_bytes,
            compute_milli_percent: amounts.compute_milli_percent,
            guarded: part.held.terms.map(|terms| GuardedShare {
                generation: terms.generation,
                strictness: terms.strictness,
                swap_unit: terms.swap_unit,
            }),
        };
        is_written |= share::write(paths, &limited)?;
    }
    Ok(is_written)
}

/// Removes the folders of a claim's shares, whatever its record contains.
pub(super) fn remove(paths: &NodePaths, uid: &str) -> Result<(), StorageError> {
    release_shares(paths, |name| is_of(name, uid))
}

/// Removes the folders of shares that no claim holds. An unresolved claim keeps all of its own.
pub(super) fn remove_leftovers(paths: &NodePaths, holds: &ClaimHolds) -> Result<(), StorageError> {
    let records = holds.records();
    let is_held = |name: &str| {
        records.iter().any(|record| {
            let mut shares = record.shares();
            let is_named = shares.any(|(held, _)| {
                let id = held.share_id.as_deref();
                id.is_some_and(|id| share_folder(&record.claim.uid, id).name() == name)
            });
            is_named || (record.is_unresolved() && is_of(name, &record.claim.uid))
        })
    };
    release_shares(paths, |name| !is_held(name))
}

/// Whether a folder is of a claim's share.
fn is_of(name: &str, uid: &str) -> bool {
    name.strip_prefix(uid).is_some_and(|rest| rest.starts_with('_'))
}
