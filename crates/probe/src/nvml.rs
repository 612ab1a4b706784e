//! NVML's report in this container.

use std::ffi::{CString, c_char, c_int, c_void};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde::Serialize;

/// Memory of a GPU as shown by `nvidia-smi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Memory {
    /// In bytes.
    pub(crate) total_bytes: u64,
    /// In bytes.
    pub(crate) used_bytes: u64,
}

/// `nvmlMemory_t`.
#[derive(Default)]
#[repr(C)]
struct MemoryInfo {
    total: u64,
    free: u64,
    used: u64,
}

/// The open library.
pub(crate) struct Nvml {
    library: Library,
}

type Init = unsafe extern "C" fn() -> c_int;
type ByUuid = unsafe extern "C" fn(*const c_char, &mut *mut c_void) -> c_int;
type Info = unsafe extern "C" fn(*mut c_void, &mut MemoryInfo) -> c_int;

impl Nvml {
    /// Opens and initialises the library; `None` if the container has none or initialisation fails.
    pub(crate) fn open() -> Option<Self> {
        // SAFETY: it is the driver's library or a replacement of it; every program of the driver
        // runs its initialisers.
        let library = unsafe { Library::open(Some("libnvidia-ml.so.1"), RTLD_NOW | RTLD_LOCAL) };
        let library = library.ok()?;
        // SAFETY: its type in nvml.h.
        let init = unsafe { library.get::<Init>(b"nvmlInit_v2\0") }.ok()?;
        // SAFETY: it has no arguments.
        let code = unsafe { init() };
        (code == 0).then_some(Self { library })
    }

    /// Memory of a GPU; `None` if NVML does not report it.
    pub(crate) fn memory(&self, uuid: &str) -> Option<Memory> {
        // SAFETY: its type in nvml.h.
        let find = unsafe { self.library.get::<ByUuid>(b"nvmlDeviceGetHandleByUUID\0") }.ok()?;
        // SAFETY: its type in nvml.h.
        let info = unsafe { self.library.get::<Info>(b"nvmlDeviceGetMemoryInfo\0") }.ok()?;
        let uuid = CString::new(uuid).ok()?;
        let mut device = std::ptr::null_mut();
        // SAFETY: the text lives through the call.
        let code = unsafe { find(uuid.as_ptr(), &mut device) };
        if code != 0 {
            return None;
        }
        let mut memory = MemoryInfo::default();
        // SAFETY: the handle is the library's own.
        let code = unsafe { info(device, &mut memory) };
        (code == 0).then_some(Memory { total_bytes: memory.total, used_bytes: memory.used })
    }
}
