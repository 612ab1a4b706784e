//! Function lookup by name and version (`cuGetProcAddress`).

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

use crate::code::Code;
use crate::exports;
use crate::library;
use crate::state::base_of;
use crate::table::lock;
use crate::thunk;

/// Name and address of a function.
pub(crate) type Export = (&'static str, *const ());

/// Result of a lookup (`CUdriverProcAddressQueryResult`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Yes = 0,
    No = 1,
    OnlyNewer = 2,
}

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: u64 = 2;
/// All known flags.
const FLAGS: u64 = 3;

/// One version of a function.
struct FunctionVersion {
    name: &'static str,
    /// CUDA version that introduced it, in the format of `cuDriverGetVersion`.
    since: i32,
    /// Its version number: 1 unless its name has a suffix.
    number: u32,
    is_per_thread: bool,
    address: usize,
}

/// All functions, by subject.
const LISTS: [&[Export]; 33] = [
    exports::arrays::CALLS,
    exports::checkpoint::CALLS,
    exports::context::CALLS,
    exports::context::HOT,
    exports::copy::SYNC,
    exports::copy::ASYNC,
    exports::copy::PLAIN,
    exports::device::CALLS,
    exports::device::PRIMARY,
    exports::event::CALLS,
    exports::event::STREAM,
    exports::graph::CALLS,
    exports::graph::STREAM,
    exports::graph::MEMORY,
    exports::graph_nodes::CALLS,
    exports::ipc::CALLS,
    exports::launch::HOT,
    exports::launch::STREAM,
    exports::launch::OLD,
    exports::lifecycle::BARE,
    exports::lifecycle::CALLS,
    exports::logs::CALLS,
    exports::memory::HOT,
    exports::memory::CALLS,
    exports::memory::STREAM,
    exports::module::CALLS,
    exports::pool::CALLS,
    exports::pool::STREAM,
    exports::stream::CALLS,
    exports::stream::STREAM,
    exports::stream::CAPTURE,
    exports::vmm::CALLS,
    exports::vmm::STREAM,
];

/// Functions that are newer than their version number tells: otherwise 1 is as old as CUDA, and 2
/// as CUDA 3.2.
const SINCE: [(&str, i32); 97] = [
    ("cuArrayGetMemoryRequirements", 11060),
    ("cuCheckpointProcessCheckpoint", 12080),
    ("cuCheckpointProcessGetRestoreThreadId", 12080),
    ("cuCheckpointProcessGetState", 12080),
    ("cuCheckpointProcessLock", 12080),
    ("cuCheckpointProcessRestore", 12080),
    ("cuCheckpointProcessUnlock", 12080),
    ("cuCtxCreate_v3", 11040),
    ("cuCtxCreate_v4", 12050),
    ("cuCtxFromGreenCtx", 12040),
    ("cuCtxGetDevResource", 12040),
    ("cuCtxGetDevice_v2", 13000),
    ("cuCtxRecordEvent", 12050),
    ("cuCtxSynchronize_v2", 13000),
    ("cuDevResourceGenerateDesc", 12040),
    ("cuDevSmResourceSplitByCount", 12040),
    ("cuDeviceGetDefaultMemPool", 11020),
    ("cuDeviceGetDevResource", 12040),
    ("cuDeviceGetGraphMemAttribute", 11040),
    ("cuDeviceGetMemPool", 11020),
    ("cuDeviceGetUuid", 9020),
    ("cuDeviceGetUuid_v2", 11040),
    ("cuDeviceGraphMemTrim", 11040),
    ("cuDevicePrimaryCtxRelease_v2", 11000),
    ("cuDevicePrimaryCtxReset_v2", 11000),
    ("cuDevicePrimaryCtxSetFlags_v2", 11000),
    ("cuDeviceSetGraphMemAttribute", 11040),
    ("cuDeviceSetMemPool", 11020),
    ("cuEventDestroy_v2", 4000),
    ("cuEventElapsedTime_v2", 12080),
    ("cuEventRecordWithFlags", 11010),
    ("cuGetProcAddress", 11030),
    ("cuGetProcAddress_v2", 12000),
    ("cuGraphAddKernelNode_v2", 12000),
    ("cuGraphAddMemAllocNode", 11040),
    ("cuGraphAddMemFreeNode", 11040),
    ("cuGraphAddNode", 12020),
    ("cuGraphAddNode_v2", 12030),
    ("cuGraphExecUpdate", 10020),
    ("cuGraphExecUpdate_v2", 12000),
    ("cuGraphInstantiateWithFlags", 11040),
    ("cuGraphInstantiateWithParams", 12000),
    ("cuGraphInstantiate_v2", 11000),
    ("cuGraphMemAllocNodeGetParams", 11040),
    ("cuGraphUpload", 11010),
    ("cuGreenCtxCreate", 12040),
    ("cuGreenCtxDestroy", 12040),
    ("cuGreenCtxStreamCreate", 12050),
    ("cuIpcOpenMemHandle_v2", 11000),
    ("cuKernelGetFunction", 12000),
    ("cuLaunchKernelEx", 11060),
    ("cuLibraryGetKernel", 12000),
    ("cuLibraryGetModule", 12000),
    ("cuLibraryLoadData", 12000),
    ("cuLibraryUnload", 12000),
    ("cuLogsCurrent", 12090),
    ("cuLogsDumpToFile", 12090),
    ("cuLogsDumpToMemory", 12090),
    ("cuLogsRegisterCallback", 12090),
    ("cuLogsUnregisterCallback", 12090),
    ("cuMemAddressReserve", 10020),
    ("cuMemAdvise_v2", 12020),
    ("cuMemAllocAsync", 11020),
    ("cuMemAllocFromPoolAsync", 11020),
    ("cuMemCreate", 10020),
    ("cuMemFreeAsync", 11020),
    ("cuMemGetDefaultMemPool", 13000),
    ("cuMemGetHandleForAddressRange", 11070),
    ("cuMemGetMemPool", 13000),
    ("cuMemHostRegister_v2", 6050),
    ("cuMemPoolCreate", 11020),
    ("cuMemPoolExportPointer", 11020),
    ("cuMemPoolExportToShareableHandle", 11020),
    ("cuMemPoolImportFromShareableHandle", 11020),
    ("cuMemPoolImportPointer", 11020),
    ("cuMemPrefetchAsync_v2", 12020),
    ("cuMemRetainAllocationHandle", 11000),
    ("cuMemSetMemPool", 13000),
    ("cuMipmappedArrayGetMemoryRequirements", 11060),
    ("cuMulticastBindAddr", 12010),
    ("cuMulticastBindAddr_v2", 13010),
    ("cuMulticastBindMem", 12010),
    ("cuMulticastBindMem_v2", 13010),
    ("cuMulticastCreate", 12010),
    ("cuPointerSetAttribute", 6000),
    ("cuStreamBeginCaptureToGraph", 12030),
    ("cuStreamBeginCapture_v2", 10010),
    ("cuStreamDestroy_v2", 4000),
    ("cuStreamGetCaptureInfo_v2", 11030),
    ("cuStreamGetCaptureInfo_v3", 12030),
    ("cuStreamGetCtx", 9020),
    ("cuStreamGetCtx_v2", 12050),
    ("cuStreamWriteValue32", 8000),
    ("cuStreamWriteValue32_v2", 11070),
    ("cuStreamWriteValue64", 9000),
    ("cuStreamWriteValue64_v2", 11070),
    ("cuThreadExchangeStreamCaptureMode", 10010),
];

/// The address of a function for programs of a CUDA version, and whether there is one; 0 if not.
pub(crate) fn find(symbol: &str, version: i32, flags: u64) -> Result<(usize, Found), Code> {
    if flags & !FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let state = library::opened().map(|driver| {
        driver.state.refresh();
        driver.state.with(Clone::clone)
    });
    let state = state.unwrap_or_default();
    if state.extra_functions.contains(symbol) {
        let allocate = address_of("cuMemAlloc_v2").ok_or(Code::UNKNOWN)?;
        return Ok((thunk::jump(symbol, allocate)?, Found::Yes));
    }
    let is_missing = |name: &str| {
        state.missing_functions.contains(name) || state.missing_functions.contains(base_of(name))
    };
    let forms = by_name().get(symbol).map_or(&[][..], Vec::as_slice);
    let available: Vec<&FunctionVersion> =
        forms.iter().filter(|form| !is_missing(form.name)).collect();
    if available.is_empty() {
        return Ok((0, Found::No));
    }
    let number =
        available.iter().filter(|form| form.since <= version).map(|form| form.number).max();
    let Some(number) = number else { return Ok((0, Found::OnlyNewer)) };
    let mut same = available.iter().filter(|form| form.number == number);
    let wants_own = flags & PER_THREAD != 0;
    // Functions without a stream have one version only.
    let form = same.clone().find(|form| form.is_per_thread == wants_own).or_else(|| same.next());
    let form = form.ok_or(Code::UNKNOWN)?;
    if state.pointer_identity == Some(false) {
        return Ok((thunk::jump(form.name, form.address)?, Found::Yes));
    }
    Ok((form.address, Found::Yes))
}

fn address_of(name: &str) -> Option<usize> {
    by_name().get(base_of(name))?.iter().find(|form| form.name == name).map(|form| form.address)
}

/// All versions by name without suffix.
fn by_name() -> &'static BTreeMap<&'static str, Vec<FunctionVersion>> {
    static BY_NAME: OnceLock<BTreeMap<&str, Vec<FunctionVersion>>> = OnceLock::new();
    BY_NAME.get_or_init(|| {
        let mut all: BTreeMap<&str, Vec<FunctionVersion>> = BTreeMap::new();
        for &(name, address) in LISTS.iter().copied().flatten() {
            let plain = name.strip_suffix("_ptsz").or(name.strip_suffix("_ptds")).unwrap_or(name);
            let base = base_of(name);
            let number = plain[base.len()..].trim_start_matches("_v").parse().unwrap_or(1);
            let late = SINCE.iter().find(|(known, _)| *known == plain);
            let since = late.map_or(if number == 1 { 2000 } else { 3020 }, |(_, since)| *since);
            let is_per_thread = plain != name;
            let address = address.expose_provenance();
            let form = FunctionVersion { name, since, number, is_per_thread, address };
            all.entry(base).or_default().push(form);
        }
        all
    })
}

/// Addresses returned before, by name.
pub(crate) static ISSUED: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// The address returned before for a name, or a new one from `make`.
pub(crate) fn issue_once(
    name: &str,
    make: impl FnOnce() -> Result<usize, Code>,
) -> Result<usize, Code> {
    let mut issued = lock(&ISSUED);
    if let Some(address) = issued.get(name) {
        return Ok(*address);
    }
    let address = make()?;
    issued.insert(name.to_owned(), address);
    Ok(address)
}

#[cfg(test)]
mod tests;
