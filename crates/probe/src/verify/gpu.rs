//! A GPU under test: its context, its kernels, and a wait for each launch that ends.

use std::cell::Cell;
use std::ffi::CStr;
use std::ptr::null_mut;
use std::thread;
use std::time::{Duration, Instant};

use super::kernels::{BLOCK_THREADS, KERNELS};
use super::patterns::Pattern;
use super::report::{Check, CheckName, Numbers};
use crate::driver::{Code, Cuda, CudaError, Handle, Pointer, checked};
use crate::paths::GpuContext;
use crate::run::make_current;

/// Blocks of a launch for each multiprocessor.
const BLOCKS: u32 = 2;
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const MULTIPROCESSOR_COUNT: u32 = 16;
/// Time for which a wait is busy.
const BUSY_WAIT: Duration = Duration::from_millis(1);
/// Pause of a longer wait.
const PAUSE: Duration = Duration::from_micros(100);

/// Why a check ends early.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stop {
    /// A call failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// Work does not end.
    #[error("{what} did not end within {} s", deadline.as_secs())]
    Hang {
        /// Which work.
        what: &'static str,
        deadline: Duration,
    },
}

/// A GPU under test.
pub(super) struct TestGpu<'a> {
    pub(super) context: GpuContext<'a>,
    pub(super) multiprocessors: u32,
    fill: Handle,
    check: Handle,
    multiply: Handle,
    launch: crate::driver::Launch,
    deadline: Duration,
    /// Whether work did not end: then calls that wait for the GPU would not, either.
    hangs: Cell<bool>,
    /// Called after work that has ended.
    beat: &'a (dyn Fn() + 'a),
}

impl<'a> TestGpu<'a> {
    /// Makes a context on the GPU, which becomes current, and loads the kernels. `beat` is called after each launch.
    pub(super) fn open(
        cuda: &'a Cuda,
        number: i32,
        deadline: Duration,
        beat: &'a (dyn Fn() + 'a),
    ) -> Result<Self, CudaError> {
        let context = make_current(cuda, number)?;
        let mut count = 0;
        cuda.device_attribute(&mut count, MULTIPROCESSOR_COUNT, context.device)?;
        let mut module = null_mut();
        cuda.module_load(&mut module, KERNELS.as_ptr().cast())?;
        let find = |name: &CStr| {
            let mut function = null_mut();
            cuda.module_function(&mut function, module, name.as_ptr()).map(|()| function)
        };
        Ok(Self {
            multiprocessors: u32::try_from(count).unwrap_or(0).max(1),
            fill: find(c"octavo_verify_fill")?,
            check: find(c"octavo_verify_check")?,
            multiply: find(c"octavo_verify_multiply")?,
            launch: cuda.launcher()?,
            context,
            deadline,
            hangs: Cell::new(false),
            beat,
        })
    }

    /// Makes its context current.
    pub(super) fn select(&self) -> Result<(), CudaError> {
        self.context.cuda.context_set(self.context.context)
    }

    /// Fills memory with a pattern, as if it began at `origin`. Returns the time.
    pub(super) fn fill(
        &self,
        (place, bytes): (Pointer, u64),
        origin: u64,
        pattern: Pattern,
    ) -> Result<Duration, Stop> {
        let (kind, seed, invert) = pattern.numbers();
        let arguments = [place, bytes / 8, origin, kind.into(), seed, invert];
        self.run("a kernel that fills memory", self.fill, self.blocks_for(bytes), arguments)
    }

    /// Compares memory with a pattern. Mismatches are added to `result`. Returns the time.
    pub(super) fn check(
        &self,
        (place, bytes): (Pointer, u64),
        origin: u64,
        pattern: Pattern,
        result: &Buffer<'_>,
    ) -> Result<Duration, Stop> {
        let (kind, seed, invert) = pattern.numbers();
        let arguments = [place, bytes / 8, origin, kind.into(), seed, invert, result.pointer];
        self.run("a kernel that reads memory", self.check, self.blocks_for(bytes), arguments)
    }

    /// Multiplies matrices `rounds` times in each block, beginning with set `first`. Returns the number of products and the time.
    pub(super) fn multiply(
        &self,
        matrices: &Buffer<'_>,
        (first, rounds): (u32, u32),
        result: &Buffer<'_>,
        seen: &Buffer<'_>,
    ) -> Result<(u64, Duration), Stop> {
        let arguments =
            [matrices.pointer, first.into(), rounds.into(), result.pointer, seen.pointer];
        let blocks = self.multiprocessors * BLOCKS;
        let time = self.run("a kernel that multiplies", self.multiply, blocks, arguments)?;
        Ok((u64::from(blocks) * u64::from(rounds), time))
    }

    /// Copies to memory of another GPU. Returns the time.
    pub(super) fn copy(
        &self,
        (to, there): (Pointer, &Self),
        (from, here): (Pointer, &Self),
        bytes: u64,
    ) -> Result<Duration, Stop> {
        let began = Instant::now();
        let (there, here) = (there.context.context, here.context.context);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.context.cuda.copy_to_peer(to, there, from, here, bytes, null_mut())?;
        self.wait("a copy to another GPU", began)
    }

    /// Blocks that have work for as many bytes.
    fn blocks_for(&self, bytes: u64) -> u32 {
        let needed = (bytes / 8).div_ceil(BLOCK_THREADS.into());
        let most = self.multiprocessors * BLOCKS * 4;
        u32::try_from(needed).unwrap_or(most).clamp(1, most)
    }

    /// Launches a kernel of this crate and waits for its end.
    fn run<const COUNT: usize>(
        &self,
        what: &'static str,
        function: Handle,
        blocks: u32,
        mut arguments: [u64; COUNT],
    ) -> Result<Duration, Stop> {
        let mut places = arguments.each_mut().map(|argument| (&raw mut *argument).cast());
        let (places, stream): (_, Handle) = (places.as_mut_ptr(), null_mut());
        let began = Instant::now();
        // SAFETY: the callers above pass as many arguments as the kernel has. Each has 8 bytes, of which the driver copies the first 4
        // where the kernel wants no more. Memory that a kernel is given is allocated until its end.
        let code = unsafe {
            (self.launch)(
                function,
                blocks,
                1,
                1,
                BLOCK_THREADS,
                1,
                1,
                0,
                stream,
                places,
                null_mut(),
            )
        };
        checked("cuLaunchKernel", code)?;
        self.wait(what, began)
    }

    /// Waits for all work of the default stream, not longer than the deadline. Returns the time since `began`.
    ///
    /// A launch that does not return is for the supervisor to notice.
    fn wait(&self, what: &'static str, began: Instant) -> Result<Duration, Stop> {
        let submitted = Instant::now();
        loop {
            match self.context.cuda.stream_query(null_mut()) {
                Ok(()) => break,
                Err(error) if error.code() == Some(Code::NOT_READY) => {}
                Err(error) => return Err(error.into()),
            }
            let time = submitted.elapsed();
            if time > self.deadline {
                self.hangs.set(true);
                return Err(Stop::Hang { what, deadline: self.deadline });
            }
            if time < BUSY_WAIT { thread::yield_now() } else { thread::sleep(PAUSE) }
        }
        let time = began.elapsed();
        (self.beat)();
        Ok(time)
    }

    /// Releases the context, unless that would wait for ever.
    pub(super) fn close(&self) -> Result<(), CudaError> {
        if self.hangs.get() {
            Ok(())
        } else {
            self.context.cuda.primary_release(self.context.device)
        }
    }
}

/// Memory of a GPU, freed when it is dropped.
pub(super) struct Buffer<'a> {
    gpu: &'a TestGpu<'a>,
    pub(super) pointer: Pointer,
    pub(super) bytes: u64,
}

impl<'a> Buffer<'a> {
    /// Allocates memory on the GPU whose context is current.
    pub(super) fn allocate(gpu: &'a TestGpu<'a>, bytes: u64) -> Result<Self, CudaError> {
        let mut pointer = 0;
        gpu.context.cuda.allocate(&mut pointer, usize::try_from(bytes).unwrap_or(usize::MAX))?;
        Ok(Self { gpu, pointer, bytes })
    }

    /// The same with contents.
    pub(super) fn with(gpu: &'a TestGpu<'a>, contents: &[u8]) -> Result<Self, CudaError> {
        let buffer = Self::allocate(gpu, contents.len() as u64)?;
        buffer.write(contents)?;
        Ok(buffer)
    }

    /// Writes to its beginning.
    pub(super) fn write(&self, contents: &[u8]) -> Result<(), CudaError> {
        let bytes = contents.len().min(usize::try_from(self.bytes).unwrap_or(usize::MAX));
        self.gpu.context.cuda.copy_to_device(self.pointer, contents.as_ptr(), bytes)
    }

    /// Its contents.
    pub(super) fn read(&self) -> Result<Vec<u8>, CudaError> {
        let mut contents = vec![0; usize::try_from(self.bytes).unwrap_or(0)];
        self.gpu.context.cuda.copy_to_host(contents.as_mut_ptr(), self.pointer, contents.len())?;
        Ok(contents)
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        if !self.gpu.hangs.get() {
            // A broken context has freed it already.
            let _ = self.gpu.context.cuda.free(self.pointer);
        }
    }
}

impl Stop {
    /// The check that ended so.
    pub(super) fn check(&self, name: CheckName, numbers: Option<Numbers>) -> Check {
        match self {
            Self::Cuda(error) if is_no_verdict(error) => Check {
                numbers,
                ..Check::not_tried(
                    name,
                    format!(
                        "{error}: see that nothing else uses the GPU, and that the driver is whole"
                    ),
                )
            },
            Self::Cuda(error) => Check::failed(
                name,
                format!("{error}: the driver's log (dmesg) may have an XID"),
                numbers,
            ),
            Self::Hang { .. } => Check::failed(name, self.to_string(), numbers),
        }
    }
}

/// Whether an error says nothing of the GPU's hardware.
fn is_no_verdict(error: &CudaError) -> bool {
    const OTHER_CAUSES: [Code; 10] = [
        Code::OUT_OF_MEMORY,
        Code::DEVICE_UNAVAILABLE,
        Code::INVALID_IMAGE,
        Code::NO_BINARY_FOR_GPU,
        Code::INVALID_PTX,
        Code::JIT_COMPILER_NOT_FOUND,
        Code::UNSUPPORTED_PTX_VERSION,
        Code::NOT_PERMITTED,
        Code::NOT_SUPPORTED,
        Code::SYSTEM_NOT_READY,
    ];
    error.code().is_none_or(|code| OTHER_CAUSES.contains(&code))
}
