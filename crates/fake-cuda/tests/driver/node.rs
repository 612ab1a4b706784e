//! A machine with a copy of the library.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use libloading::Library;
use octavo_machine::{GpuState, Machine, State};
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

pub(crate) const OUT_OF_MEMORY: u32 = 2;
pub(crate) const INVALID_VALUE: u32 = 1;
pub(crate) const NOT_READY: u32 = 600;

/// Memory of a context.
pub(crate) const CONTEXT: u64 = 300 * MIB;

/// Calls a function of the library: `call!(cuda, cuMemFree_v2(address => u64))`.
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

/// A folder with a machine.
pub(crate) struct Node {
    pub(crate) folder: TempDir,
}

impl Node {
    /// A machine of the shipped description with that name.
    pub(crate) fn new(machine: &str) -> Self {
        Self::with(machine, |_| {})
    }

    pub(crate) fn with(machine: &str, change: impl FnOnce(&mut Machine)) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines").join(machine);
        let mut machine = Machine::read(&path.with_extension("yaml")).unwrap();
        change(&mut machine);
        let folder = tempfile::tempdir().unwrap();
        fs::copy(built("liboctavo_fake_cuda.so"), folder.path().join("libcuda.so.1")).unwrap();
        fs::write(folder.path().join("machine.yaml"), machine.to_yaml().unwrap()).unwrap();
        Self { folder }
    }

    /// The loaded library; each copy of the file is a separate driver.
    pub(crate) fn load(&self) -> Cuda {
        Cuda::load(self.folder.path())
    }

    /// The library, initialised.
    pub(crate) fn start(&self) -> Cuda {
        let cuda = self.load();
        assert_eq!(call!(cuda, cuInit(0 => u32)), 0);
        cuda
    }

    /// The library with a context on the first GPU.
    pub(crate) fn ready(&self) -> Cuda {
        let cuda = self.start();
        cuda.context(0);
        cuda
    }

    pub(crate) fn becomes(&self, state: &State) {
        state.write(&self.folder.path().join("state.json")).unwrap();
    }

    pub(crate) fn gpu_becomes(&self, gpu: GpuState) {
        self.becomes(&State { gpus: [(0, gpu)].into(), ..State::default() });
    }
}

/// A loaded library.
pub(crate) struct Cuda {
    pub(crate) library: Library,
}

impl Cuda {
    pub(crate) fn load(folder: &Path) -> Self {
        Self { library: unsafe { Library::new(folder.join("libcuda.so.1")) }.unwrap() }
    }

    /// A function by its zero-terminated name; the caller knows its type.
    pub(crate) fn function<T>(&self, name: &str) -> libloading::Symbol<'_, T> {
        unsafe { self.library.get(name.as_bytes()) }.unwrap()
    }

    /// Creates a context, which becomes current.
    pub(crate) fn context(&self, ordinal: i32) -> usize {
        let mut handle = 0_usize;
        let made =
            call!(self, cuCtxCreate_v2(&raw mut handle => *mut usize, 0 => u32, ordinal => i32));
        assert_eq!(made, 0);
        handle
    }

    pub(crate) fn allocate(&self, size: u64) -> Result<u64, u32> {
        let mut address = 0;
        match call!(self, cuMemAlloc_v2(&raw mut address => *mut u64, size => u64)) {
            0 => Ok(address),
            code => Err(code),
        }
    }

    pub(crate) fn free(&self, address: u64) -> u32 {
        call!(self, cuMemFree_v2(address => u64))
    }

    /// Free and total memory.
    pub(crate) fn info(&self) -> (u64, u64) {
        let (mut free, mut total) = (0, 0);
        let code =
            call!(self, cuMemGetInfo_v2(&raw mut free => *mut u64, &raw mut total => *mut u64));
        assert_eq!(code, 0);
        (free, total)
    }

    /// Used memory.
    pub(crate) fn used(&self) -> u64 {
        let (free, total) = self.info();
        total - free
    }

    pub(crate) fn upload(&self, to: u64, bytes: &[u8]) -> u32 {
        let (from, size) = (bytes.as_ptr(), bytes.len());
        call!(self, cuMemcpyHtoD_v2(to => u64, from => *const u8, size => usize))
    }

    pub(crate) fn download(&self, from: u64, size: usize) -> Result<Vec<u8>, u32> {
        let mut bytes = vec![0xee; size];
        let to = bytes.as_mut_ptr();
        match call!(self, cuMemcpyDtoH_v2(to => *mut u8, from => u64, size => usize)) {
            0 => Ok(bytes),
            code => Err(code),
        }
    }

    pub(crate) fn stream(&self) -> usize {
        let mut handle = 0_usize;
        assert_eq!(call!(self, cuStreamCreate(&raw mut handle => *mut usize, 1 => u32)), 0);
        handle
    }

    pub(crate) fn event(&self) -> usize {
        let mut handle = 0_usize;
        assert_eq!(call!(self, cuEventCreate(&raw mut handle => *mut usize, 0 => u32)), 0);
        handle
    }

    /// A kernel of that name.
    pub(crate) fn kernel(&self, name: &str) -> usize {
        let (mut module, mut function) = (0_usize, 0_usize);
        let image = b"\x7fELF\0";
        let loaded = call!(self, cuModuleLoadData(&raw mut module => *mut usize, image.as_ptr() => *const u8));
        assert_eq!(loaded, 0);
        let name = CString::new(name).unwrap();
        let found = call!(self, cuModuleGetFunction(
            &raw mut function => *mut usize,
            module => usize,
            name.as_ptr() => *const std::ffi::c_char,
        ));
        assert_eq!(found, 0);
        function
    }

    pub(crate) fn launch(&self, function: usize, stream: usize) -> u32 {
        call!(self, cuLaunchKernel(
            function => usize,
            1 => u32, 1 => u32, 1 => u32,
            32 => u32, 1 => u32, 1 => u32,
            0 => u32,
            stream => usize,
            0 => usize,
            0 => usize,
        ))
    }

    pub(crate) fn synchronize(&self) -> u32 {
        call!(self, cuCtxSynchronize())
    }
}

/// A library of this workspace, as built by cargo for this test.
pub(crate) fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let beside = [deps.join(name), deps.parent().unwrap().join(name)];
    let built = beside.iter().filter(|path| path.exists());
    built
        .max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap())
        .expect("cargo builds the library before its tests")
        .clone()
}
