//! The folders with the limits of shares, on the host and in containers.
//!
//! ```text
//! <run root>/octavo/shares/<claim uid>_<share id>/limits.json   for people
//!                                                 limits state  for guards, see `share_files`
//! ```
//!
//! They last for one boot, as `/run` does. Nothing is flushed, and missing files are rewritten from the claim's record.
//! A container sees only the folder of its share, at the path of the usual run root.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use octavo_api::config::Strictness;
use octavo_api::names::SHARES_FOLDER;
use octavo_guard_abi::limits::{STRICT, Terms};
use octavo_guard_abi::uuid;
use serde::Serialize;

use super::claim_holds::ClaimHolds;
use crate::cdi::CdiDevice;
use crate::checkpoint::{HeldKind, HeldShare, HeldTerms, Record, StorageError, write_atomically};
use crate::enforcement::{share_files, share_mount};
use crate::node::NodePaths;
use crate::watchdog;

/// Version of the form of `limits.json`.
const VERSION: u32 = 1;
/// The file in a share's folder.
const FILE: &str = "limits.json";
/// Bytes charged for a CUDA context before it is created. The real size depends on GPU, driver and program; the agent
/// measures it and adds the surplus.
pub(crate) const CONTEXT_BYTES: u64 = 256 << 20;

/// The folder of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShareFolder {
    name: String,
}

/// The limits of a share in `limits.json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Limits<'a> {
    version: u32,
    claim: LimitedClaim<'a>,
    #[serde(rename = "shareId")]
    share_id: &'a str,
    device: &'a str,
    pool: &'a str,
    gpu: LimitedGpu<'a>,
    memory_bytes: u64,
    compute_milli_percent: u32,
}

/// The claim of a share.
#[derive(Serialize)]
struct LimitedClaim<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
}

/// Of which GPU it is.
#[derive(Serialize)]
struct LimitedGpu<'a> {
    uuid: &'a str,
    minor: u32,
}

/// The folder of a claim's share. Both arguments are plain names.
pub(crate) fn share_folder(uid: &str, share_id: &str) -> ShareFolder {
    ShareFolder { name: format!("{uid}_{share_id}") }
}

impl ShareFolder {
    /// Where it lies on the host.
    pub(crate) fn on_host(&self, run_root: &Path) -> PathBuf {
        parent(run_root).join(&self.name)
    }

    /// Where a container sees it.
    pub(crate) fn in_container(&self) -> PathBuf {
        Path::new(SHARES_FOLDER).join(&self.name)
    }
}

/// The terms of a share for its guards.
fn terms(share: HeldShare, held: &HeldTerms, gpu_uuid: &str) -> Terms {
    let is_strict = held.strictness == Strictness::Strict;
    Terms {
        generation: held.generation,
        // A malformed UUID matches no GPU, so the guard refuses everything.
        gpu: uuid::parse(gpu_uuid).unwrap_or_default(),
        memory_bytes: share.memory_bytes,
        context_bytes: CONTEXT_BYTES,
        compute_milli_percent: share.compute_milli_percent,
        flags: if is_strict { STRICT } else { 0 },
    }
}

/// Writes missing or changed limits of a claim's shares; returns whether any were written.
pub(super) fn write(
    paths: &NodePaths,
    record: &Record,
    cdi_devices: &[CdiDevice<'_>],
) -> Result<bool, StorageError> {
    let mut is_written = false;
    for part in cdi_devices {
        let HeldKind::Share(share) = part.held.kind else { continue };
        let Some(share_id) = part.held.share_id.as_deref() else { continue };
        let limits = Limits {
            version: VERSION,
            claim: LimitedClaim {
                namespace: &record.claim.namespace,
                name: &record.claim.name,
                uid: &record.claim.uid,
            },
            share_id,
            device: &part.held.device,
            pool: &part.held.pool,
            gpu: LimitedGpu { uuid: &part.gpu.uuid, minor: part.gpu.minor },
            memory_bytes: share.memory_bytes,
            compute_milli_percent: share.compute_milli_percent,
        };
        // The type holds strings and numbers only, so serialization cannot fail.
        let text = serde_json::to_vec(&limits).unwrap_or_default();
        let folder = share_folder(&record.claim.uid, share_id).on_host(&paths.run_root);
        if paths.share_tmpfs {
            share_mount::ensure(&folder)
                .map_err(StorageError::of("mount a file system on", &folder))?;
        }
        if let Some(held) = &part.held.terms {
            let terms = terms(share, held, &part.gpu.uuid);
            is_written |= share_files::write(&folder, &terms)?;
        }
        let path = folder.join(FILE);
        if fs::read(&path).is_ok_and(|found| found == text) {
            continue;
        }
        write_atomically(&path, &text, false)?;
        crate::failpoint::hit("share.written");
        is_written = true;
    }
    Ok(is_written)
}

/// Removes the folders of a claim's shares, whatever its record contains.
pub(super) fn remove(paths: &NodePaths, uid: &str) -> Result<(), StorageError> {
    remove_where(paths, |name| is_of(name, uid))
}

/// Removes the folders of shares that no claim holds. An unresolved claim keeps all of its own.
pub(super) fn remove_leftovers(paths: &NodePaths, holds: &ClaimHolds) -> Result<(), StorageError> {
    let records = holds.records();
    let is_held = |name: &str| {
        records.iter().any(|record| {
            let mut shares = record.shares();
            let is_named = shares.any(|(held, _)| {
                let id = held.share_id.as_deref();
                id.is_some_and(|id| share_folder(&record.claim.uid, id).name == name)
            });
            is_named || (record.is_unresolved() && is_of(name, &record.claim.uid))
        })
    };
    remove_where(paths, |name| !is_held(name))
}

/// Whether a folder is of a claim's share.
fn is_of(name: &str, uid: &str) -> bool {
    name.strip_prefix(uid).is_some_and(|rest| rest.starts_with('_'))
}

/// Removes the folders whose names match; a missing parent is fine. Frozen containers are thawed first, since only the
/// folder records them.
fn remove_where(paths: &NodePaths, is_meant: impl Fn(&str) -> bool) -> Result<(), StorageError> {
    let parent = parent(&paths.run_root);
    let entries = match fs::read_dir(&parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(StorageError::of("read", &parent))?,
    };
    for entry in entries {
        let entry = entry.map_err(StorageError::of("read", &parent))?;
        let is_meant = entry.file_name().to_str().is_some_and(&is_meant);
        // Files are records of frozen containers, which `thaw` removes.
        let is_folder = entry.file_type().map_err(StorageError::of("read", &parent))?.is_dir();
        if !is_meant || !is_folder {
            continue;
        }
        let path = entry.path();
        watchdog::thaw(&paths.cgroup_root, &path);
        share_mount::remove(&path).map_err(StorageError::of("unmount", &path))?;
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.map_err(StorageError::of("remove", &path))?,
        }
    }
    Ok(())
}

/// The folder of all shares on the host.
fn parent(run_root: &Path) -> PathBuf {
    run_root.join(Path::new(SHARES_FOLDER).strip_prefix("/run").unwrap_or(Path::new("shares")))
}
