//! The driver as seen by a program.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use libloading::{Library, Symbol};
use octavo_fake_gpu::{Clock, FakeGpu};
use octavo_guard_abi::limits::{UNTRACKED_OFFSET, UTILISATION_OFFSET};

use crate::container;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

pub(crate) const OUT_OF_MEMORY: u32 = 2;

/// Memory of a context.
pub(crate) const CONTEXT: u64 = 300 * MIB;

/// Calls a function of a library: `call!(cuda, cuMemFree_v2(address => u64))`.
#[macro_export]
macro_rules! call {
    ($cuda:expr, $name:ident($($value:expr => $kind:ty),* $(,)?)) => {{
        let function: libloading::Symbol<'_, unsafe extern "C" fn($($kind),*) -> u32> =
            $cuda.function(concat!(stringify!($name), "\0"));
        #[allow(clippy::macro_metavars_in_unsafe, reason = "the values are the tests' own")]
        let code = unsafe { function($($value),*) };
        code
    }};
}

/// Result of a successful call, else its code.
pub(crate) fn ok<T>(code: u32, value: T) -> Result<T, u32> {
    if code == 0 { Ok(value) } else { Err(code) }
}

/// The driver in a process with a context on the first GPU.
pub(crate) struct Cuda {
    library: Library,
    /// Folder of the container.
    pub(crate) folder: PathBuf,
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Location {
    pub(crate) kind: u32,
    pub(crate) id: i32,
}

pub(crate) const FIRST_GPU: Location = Location { kind: 1, id: 0 };
pub(crate) const HOST: Location = Location { kind: 2, id: 0 };

/// `CUmemAllocationProp`, also the first members of `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Prop {
    kind: u32,
    handle_types: u32,
    location: Location,
    windows: usize,
    /// Maximum size of a pool.
    pub(crate) max: u64,
    rest: [u8; 56],
}

impl Prop {
    pub(crate) fn at(location: Location) -> Self {
        Self { kind: 1, handle_types: 1, location, windows: 0, max: 0, rest: [0; 56] }
    }

    /// On the first GPU, for handles that other nodes can import.
    pub(crate) fn for_fabric() -> Self {
        Self { handle_types: 8, ..Self::at(FIRST_GPU) }
    }
}

impl Cuda {
    /// The driver with a context, in the current process.
    pub(crate) fn ready(folder: &Path) -> Self {
        let path = folder.join("driver/libcuda.so.1");
        let library = unsafe { Library::new(path) }.expect("the driver is loaded");
        let cuda = Self { library, folder: folder.to_owned() };
        assert_eq!(call!(cuda, cuInit(0 => u32)), 0);
        let mut context = 0_usize;
        assert_eq!(
            call!(cuda, cuDevicePrimaryCtxRetain(&raw mut context => *mut usize, 0 => i32)),
            0
        );
        assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
        cuda
    }

    /// A function by its zero-terminated name; the caller knows its type.
    pub(crate) fn function<T>(&self, name: &str) -> Symbol<'_, T> {
        unsafe { self.library.get(name.as_bytes()) }.expect(name)
    }

    /// Bytes charged to the share, without this process's first context.
    pub(crate) fn counted(&self) -> u64 {
        container::counted(&self.folder) - CONTEXT
    }

    /// Bytes allocated on the GPU, likewise.
    pub(crate) fn used(&self) -> u64 {
        self.chip_used() - CONTEXT
    }

    /// All bytes allocated on the GPU.
    pub(crate) fn chip_used(&self) -> u64 {
        let chip =
            FakeGpu::existing(&self.folder.join("driver"), 0, Clock::Virtual).expect("a chip");
        chip.used()
    }

    /// Sets the bytes that the driver counts outside the ledger, as the agent does.
    pub(crate) fn set_untracked(&self, bytes: u64) {
        self.write_limits(UNTRACKED_OFFSET, &bytes.to_ne_bytes());
    }

    /// Sets the share's utilisation, as the agent does.
    pub(crate) fn set_utilisation(&self, permille: Option<u32>) {
        let word = permille.map_or(0, |permille| permille + 1);
        self.write_limits(UTILISATION_OFFSET, &word.to_ne_bytes());
    }

    fn write_limits(&self, offset: usize, bytes: &[u8]) {
        let path = self.folder.join("octavo/shares/one/limits");
        let limits = std::fs::OpenOptions::new().write(true).open(path).expect("limits");
        limits.write_all_at(bytes, offset as u64).expect("written");
    }

    /// Free and total bytes as reported to a program.
    pub(crate) fn info(&self) -> (u64, u64) {
        let (mut free, mut total) = (0, 0);
        let code =
            call!(self, cuMemGetInfo_v2(&raw mut free => *mut u64, &raw mut total => *mut u64));
        assert_eq!(code, 0);
        (free, total)
    }

    pub(crate) fn allocate(&self, bytes: u64) -> Result<u64, u32> {
        let mut address = 0;
        ok(call!(self, cuMemAlloc_v2(&raw mut address => *mut u64, bytes => u64)), address)
    }

    pub(crate) fn free(&self, address: u64) -> u32 {
        call!(self, cuMemFree_v2(address => u64))
    }

    pub(crate) fn stream(&self) -> usize {
        let mut handle = 0_usize;
        assert_eq!(call!(self, cuStreamCreate(&raw mut handle => *mut usize, 1 => u32)), 0);
        handle
    }

    pub(crate) fn synchronize(&self) -> u32 {
        call!(self, cuCtxSynchronize())
    }

    pub(crate) fn create(&self, bytes: u64, location: Location) -> Result<u64, u32> {
        self.create_with(bytes, Prop::at(location))
    }

    pub(crate) fn create_with(&self, bytes: u64, prop: Prop) -> Result<u64, u32> {
        let mut handle = 0;
        ok(
            call!(self, cuMemCreate(
                &raw mut handle => *mut u64, bytes => u64, &raw const prop => *const Prop, 0 => u64)),
            handle,
        )
    }

    pub(crate) fn release(&self, handle: u64) -> u32 {
        call!(self, cuMemRelease(handle => u64))
    }

    pub(crate) fn reserve(&self, bytes: u64) -> u64 {
        let mut address = 0;
        let code = call!(self, cuMemAddressReserve(
            &raw mut address => *mut u64, bytes => u64, 0 => u64, 0 => u64, 0 => u64));
        assert_eq!(code, 0);
        address
    }

    pub(crate) fn map(&self, address: u64, bytes: u64, handle: u64) -> u32 {
        call!(self, cuMemMap(address => u64, bytes => u64, 0 => u64, handle => u64, 0 => u64))
    }

    pub(crate) fn unmap(&self, address: u64, bytes: u64) -> u32 {
        call!(self, cuMemUnmap(address => u64, bytes => u64))
    }

    pub(crate) fn pool(&self, location: Location) -> Result<usize, u32> {
        let mut pool = 0;
        let prop = Prop::at(location);
        ok(
            call!(self, cuMemPoolCreate(&raw mut pool => *mut usize, &raw const prop => *const Prop)),
            pool,
        )
    }

    /// Makes a pool keep its memory at synchronisations.
    pub(crate) fn keep_all(&self, pool: usize) {
        let all = u64::MAX;
        let code = call!(self, cuMemPoolSetAttribute(pool => usize, 4 => u32, &raw const all => *const u64));
        assert_eq!(code, 0);
    }

    /// Allocates from a pool, or from the current one.
    pub(crate) fn allocate_async(
        &self,
        bytes: u64,
        pool: Option<usize>,
        stream: usize,
    ) -> Result<u64, u32> {
        let mut address = 0;
        let place = &raw mut address;
        let code = if let Some(pool) = pool {
            call!(self, cuMemAllocFromPoolAsync(
                place => *mut u64, bytes => u64, pool => usize, stream => usize))
        } else {
            call!(self, cuMemAllocAsync(place => *mut u64, bytes => u64, stream => usize))
        };
        ok(code, address)
    }

    pub(crate) fn free_async(&self, address: u64, stream: usize) -> u32 {
        call!(self, cuMemFreeAsync(address => u64, stream => usize))
    }

    pub(crate) fn trim(&self, pool: usize) -> u32 {
        call!(self, cuMemPoolTrimTo(pool => usize, 0 => u64))
    }

    /// The default pool of the GPU.
    pub(crate) fn default_pool(&self) -> usize {
        let mut pool = 0;
        let code = call!(self, cuDeviceGetDefaultMemPool(&raw mut pool => *mut usize, 0 => i32));
        ok(code, pool).unwrap()
    }
}
