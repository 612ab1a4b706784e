//! Allocation paths: the functions by which a program can allocate GPU memory, and their results at
//! the limit.

mod arrays;
mod graphs;
mod list;
mod lookups;
mod plain;
mod pools;
mod settings;
mod virtual_memory;

use serde::Serialize;

use crate::driver::{AllocationProperties, Code, Cuda, CudaError, Handle};

pub(crate) use list::ALLOCATION_PATHS;

/// A GPU with its current context.
pub(crate) struct GpuContext<'a> {
    /// The driver.
    pub(crate) cuda: &'a Cuda,
    /// The GPU.
    pub(crate) device: i32,
    /// Its context.
    pub(crate) context: Handle,
}

/// Allocated memory, and how to free it.
pub(crate) struct Allocation<'a>(Box<dyn FnOnce() -> Result<(), CudaError> + 'a>);

impl<'a> Allocation<'a> {
    fn new(release: impl FnOnce() -> Result<(), CudaError> + 'a) -> Self {
        Self(Box::new(release))
    }

    /// Frees it.
    pub(crate) fn release(self) -> Result<(), CudaError> {
        (self.0)()
    }
}

/// Allocates a number of bytes.
type AllocateFn = for<'a> fn(&'a GpuContext<'a>, u64) -> Result<Allocation<'a>, CudaError>;

/// An allocation path.
pub(crate) struct AllocationPath {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// The functions that it calls.
    pub(crate) what: &'static str,
    take: AllocateFn,
    kind: Kind,
}

/// Behaviour of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It allocates memory in pieces until nothing fits.
    Pieces,
    /// Like pieces; without a limit the driver falls back to host memory.
    HostBacked,
    /// It sets a context limit once, which reserves memory.
    ContextLimit,
    /// Like pieces; without being named, only where a process may make such memory.
    Fabric,
    /// Like pieces, but only if it is named: it loads the driver a second time.
    OnRequest,
}

/// Result of one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    /// Name of the path.
    pub(crate) path: &'static str,
    /// Its verdict.
    pub(crate) verdict: Verdict,
    /// Peak of the allocated bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) granted_bytes: Option<u64>,
    /// Result of one allocation above the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) beyond: Option<Code>,
    /// Result of the allocation that ended the filling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at_limit: Option<Code>,
    /// Bytes that were free before and not after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lost_bytes: Option<u64>,
    /// Further explanation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

/// Verdict on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Verdict {
    /// No more than the limit was allocated, and more was refused as the driver does: out of
    /// memory.
    Holds,
    /// No more than the limit was allocated, but the refusal has another code than programs expect.
    RefusedOtherwise,
    /// More than the limit was allocated.
    Passes,
    /// The driver has no such function, or refuses it in general.
    Unsupported,
    /// It was not tried.
    Skipped,
}

/// Smallest piece: the driver's granularity.
const MIN_PIECE_BYTES: u64 = 2 << 20;
/// Number of pieces into which the limit is divided first.
const INITIAL_PIECES: u64 = 16;

/// Tries one path on a GPU with `limit` bytes. `is_share` tells whether that is a part of the GPU's
/// memory.
pub(crate) fn try_path(
    path: &AllocationPath,
    context: &GpuContext<'_>,
    limit: u64,
    is_share: bool,
) -> Finding {
    let mut finding = Finding {
        path: path.name,
        verdict: Verdict::Skipped,
        granted_bytes: None,
        beyond: None,
        at_limit: None,
        lost_bytes: None,
        note: None,
    };
    if path.kind == Kind::HostBacked && !is_share {
        finding.note =
            Some("a whole GPU: beyond its memory the driver uses host memory".to_owned());
        return finding;
    }
    let free_before = free(context.cuda);
    match (path.take)(context, limit.saturating_add(MIN_PIECE_BYTES)) {
        Ok(held) => {
            finding.verdict = Verdict::Passes;
            finding.granted_bytes = Some(limit.saturating_add(MIN_PIECE_BYTES));
            finding.note = held.release().err().map(|error| error.to_string());
            return finding;
        }
        Err(error) => match error.code() {
            Some(code) if code != Code::NOT_SUPPORTED => finding.beyond = Some(code),
            _ => {
                finding.verdict = Verdict::Unsupported;
                finding.note = Some(error.to_string());
                return finding;
            }
        },
    }
    if path.kind == Kind::ContextLimit {
        finding.verdict = as_expected(finding.beyond);
        return finding;
    }
    let (granted, at_limit, release_error) = fill(path, context, limit);
    finding.granted_bytes = Some(granted);
    finding.at_limit = at_limit.code();
    finding.note = release_error.map(|error| format!("free failed: {error}"));
    finding.verdict = match granted {
        0 => Verdict::Unsupported,
        granted if granted > limit => Verdict::Passes,
        _ if as_expected(finding.beyond) == Verdict::Holds => as_expected(finding.at_limit),
        _ => Verdict::RefusedOtherwise,
    };
    if granted == 0 {
        finding.note = Some(at_limit.to_string());
    }
    let lost =
        free_before.zip(free(context.cuda)).map(|(before, after)| before.saturating_sub(after));
    finding.lost_bytes = lost.filter(|lost| *lost > 0);
    finding
}

/// Whether a path is tried without being named.
pub(crate) fn is_default(path: &AllocationPath) -> bool {
    path.kind != Kind::OnRequest
}

/// Whether a GPU has the path at all.
pub(crate) fn is_possible(path: &AllocationPath, context: &GpuContext<'_>) -> bool {
    if path.kind != Kind::Fabric {
        return true;
    }
    // The device's attribute says nothing about channels: an H100 without one has it, too.
    let Ok(size) = usize::try_from(MIN_PIECE_BYTES) else { return false };
    let mut handle = 0;
    let properties = AllocationProperties::fabric(context.device);
    let made = context.cuda.create(&mut handle, size, &properties, 0);
    match made {
        Ok(()) => context.cuda.release(handle).is_ok(),
        // Any other refusal is one to report.
        Err(error) => error
            .code()
            .is_some_and(|code| ![Code::NOT_PERMITTED, Code::NOT_SUPPORTED].contains(&code)),
    }
}

/// Allocates pieces, smaller ones when larger ones are refused, until nothing fits or the limit is
/// exceeded. Then frees them. Returns the bytes, the last refusal, and an error of freeing.
fn fill(
    path: &AllocationPath,
    context: &GpuContext<'_>,
    limit: u64,
) -> (u64, CudaError, Option<CudaError>) {
    let mut piece =
        (limit / INITIAL_PIECES / MIN_PIECE_BYTES * MIN_PIECE_BYTES).max(MIN_PIECE_BYTES);
    let (mut granted, mut held) = (0_u64, Vec::new());
    let refusal = loop {
        match (path.take)(context, piece) {
            Ok(taken) => {
                held.push(taken);
                granted += piece;
                if granted > limit {
                    break CudaError::Failed { call: path.what, code: Code::SUCCESS };
                }
            }
            Err(error) if piece == MIN_PIECE_BYTES => break error,
            Err(_) => piece = (piece / 2 / MIN_PIECE_BYTES * MIN_PIECE_BYTES).max(MIN_PIECE_BYTES),
        }
    };
    let release_error = held.into_iter().filter_map(|held| held.release().err()).last();
    (granted, refusal, release_error)
}

fn as_expected(code: Option<Code>) -> Verdict {
    if code == Some(Code::OUT_OF_MEMORY) { Verdict::Holds } else { Verdict::RefusedOtherwise }
}

/// Free bytes as reported by the driver.
fn free(cuda: &Cuda) -> Option<u64> {
    let (mut free, mut total) = (0, 0);
    cuda.memory_info(&mut free, &mut total).ok().map(|()| free as u64)
}

/// A number of bytes in the driver's type.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
pub(crate) mod tests;
