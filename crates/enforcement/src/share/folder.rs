//! The folders with the limits of shares, on the host and in containers.
//!
//! ```text
//! <run root>/octavo/shares/<claim uid>_<share id>/limits.json   for people
//!                                                 limits state  for guards
//! ```
//!
//! They last for one boot, as `/run` does. Nothing is flushed, and missing files are rewritten from the claim's record.
//! A container sees only the folder of its share, at the path of the usual run root.

use std::fs;
use std::path::{Path, PathBuf};

use octavo_api::config::{Strictness, SwapUnit};
use octavo_api::names::SHARES_FOLDER;
use octavo_guard_abi::limits::{PAGES, STRICT, Terms};
use octavo_guard_abi::uuid;
use octavo_node::files::{StorageError, write_atomically};
use octavo_node::{ClaimRef, NodePaths, failpoint};
use serde::Serialize;

use super::{CONTEXT_BYTES, files, mount};

/// Version of the form of `limits.json`.
const VERSION: u32 = 1;
/// The file in a share's folder.
const FILE: &str = "limits.json";

/// The folder of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareFolder {
    name: String,
}

/// What a share may have, for its files.
#[derive(Clone, Copy, Debug)]
pub struct LimitedShare<'a> {
    /// The claim.
    pub claim: &'a ClaimRef,
    /// The share of the device.
    pub share_id: &'a str,
    /// The device.
    pub device: &'a str,
    /// Pool of the device.
    pub pool: &'a str,
    /// `GPU-...` of the GPU.
    pub gpu_uuid: &'a str,
    /// The GPU's minor number.
    pub gpu_minor: u32,
    /// Memory that it may have, in bytes.
    pub memory_bytes: u64,
    /// Memory that it has whenever it wants, in bytes: `memory_bytes`, or less.
    pub memory_request: u64,
    /// Guaranteed compute time in thousandths of a percent.
    pub compute_milli_percent: u32,
    /// For guards; `None` if the share was prepared before memory enforcement existed.
    pub guarded: Option<GuardedShare>,
}

/// What guards need to know beside the amounts.
#[derive(Clone, Copy, Debug)]
pub struct GuardedShare {
    /// The writing of the files.
    pub generation: u64,
    /// Action on driver functions unknown to the guard.
    pub strictness: Strictness,
    /// How memory beyond the request is moved to the host.
    pub swap_unit: SwapUnit,
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
    /// Only if it is less.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_request_bytes: Option<u64>,
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
pub fn share_folder(uid: &str, share_id: &str) -> ShareFolder {
    ShareFolder { name: format!("{uid}_{share_id}") }
}

impl ShareFolder {
    /// Its name in the folder of all shares.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it lies on the host.
    pub fn on_host(&self, run_root: &Path) -> PathBuf {
        parent(run_root).join(&self.name)
    }

    /// Where a container sees it.
    pub fn in_container(&self) -> PathBuf {
        Path::new(SHARES_FOLDER).join(&self.name)
    }
}

/// Writes missing or changed files of a share; returns whether any were written.
///
/// # Errors
///
/// A file that could not be written, or a file system that could not be mounted.
pub fn write(paths: &NodePaths, share: &LimitedShare<'_>) -> Result<bool, StorageError> {
    let mut is_written = false;
    let limits = Limits {
        version: VERSION,
        claim: LimitedClaim {
            namespace: &share.claim.namespace,
            name: &share.claim.name,
            uid: &share.claim.uid,
        },
        share_id: share.share_id,
        device: share.device,
        pool: share.pool,
        gpu: LimitedGpu { uuid: share.gpu_uuid, minor: share.gpu_minor },
        memory_bytes: share.memory_bytes,
        memory_request_bytes: Some(share.memory_request).filter(|it| *it != share.memory_bytes),
        compute_milli_percent: share.compute_milli_percent,
    };
    // The type holds strings and numbers only, so serialization cannot fail.
    let text = serde_json::to_vec(&limits).unwrap_or_default();
    let folder = share_folder(&share.claim.uid, share.share_id).on_host(&paths.run_root);
    if paths.share_tmpfs {
        mount::ensure(&folder).map_err(StorageError::of("mount a file system on", &folder))?;
    }
    if let Some(guarded) = &share.guarded {
        // Of an elastic share the watchdog grants even the request, since others may have it now.
        let is_elastic = share.memory_request < share.memory_bytes;
        let withheld = if is_elastic { share.memory_bytes } else { 0 };
        is_written |= files::write(&folder, &terms(share, guarded), withheld)?;
    }
    let path = folder.join(FILE);
    if fs::read(&path).is_ok_and(|found| found == text) {
        return Ok(is_written);
    }
    write_atomically(&path, &text, false)?;
    failpoint::hit("share.written");
    Ok(true)
}

/// The terms of a share for its guards.
fn terms(share: &LimitedShare<'_>, guarded: &GuardedShare) -> Terms {
    Terms {
        generation: guarded.generation,
        // A malformed UUID matches no GPU, so the guard refuses everything.
        gpu: uuid::parse(share.gpu_uuid).unwrap_or_default(),
        memory_bytes: share.memory_bytes,
        context_bytes: CONTEXT_BYTES,
        compute_milli_percent: share.compute_milli_percent,
        flags: flags(share, guarded),
    }
}

fn flags(share: &LimitedShare<'_>, guarded: &GuardedShare) -> u32 {
    let is_elastic = share.memory_request < share.memory_bytes;
    let all = [
        (STRICT, guarded.strictness == Strictness::Strict),
        (PAGES, is_elastic && guarded.swap_unit == SwapUnit::Pages),
    ];
    all.into_iter().filter(|(_, is_set)| *is_set).fold(0, |flags, (flag, _)| flags | flag)
}

/// The folder of all shares on the host.
pub(crate) fn parent(run_root: &Path) -> PathBuf {
    run_root.join(Path::new(SHARES_FOLDER).strip_prefix("/run").unwrap_or(Path::new("shares")))
}
