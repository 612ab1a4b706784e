//! A client of the CUDA driver API for the benchmarks of memory enforcement. It reads one command
//! per line and answers each with one line. The benchmarks start it with and without enforcement,
//! and command both in turn.
//!
//! | command | action | answer |
//! |---|---|---|
//! | (start) | a context on GPU 0, a kernel | `ready` |
//! | `launch N` | N launches of an empty kernel | nanoseconds of all |
//! | `pair N BYTES` | N times `cuMemAlloc` and `cuMemFree` | nanoseconds of all |
//! | `async N BYTES` | N times `cuMemAllocAsync` and `cuMemFreeAsync` | nanoseconds of all |
//! | `question N` | N times `cuMemGetInfo` | nanoseconds of all |
//! | `take BYTES` | `cuMemAlloc`; the memory is kept | the driver's code |
//! | `give` | frees all kept memory | the driver's code |
//! | `memory` | `cuMemGetInfo` | free and total bytes |
//! | `race WISHES SECONDS SEED LIMIT FILE` | random allocations, up to a number or a time | granted, refused, over, peak |
//!
//! In a race, all processes count their allocations in a mapped file. Each adds to a word after an
//! allocation and subtracts from it before a free, so that the word never exceeds what is held. An
//! allocation after which the word is above the limit is one too many, whatever any ledger says.

use std::ffi::{c_int, c_uint, c_void};
use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

type Handle = *mut c_void;
type Init = unsafe extern "C" fn(c_uint) -> c_int;
type Retain = unsafe extern "C" fn(&mut Handle, c_int) -> c_int;
type SetCurrent = unsafe extern "C" fn(Handle) -> c_int;
type ModuleLoad = unsafe extern "C" fn(&mut Handle, *const c_void) -> c_int;
type ModuleFunction = unsafe extern "C" fn(&mut Handle, Handle, *const i8) -> c_int;
type Synchronize = unsafe extern "C" fn() -> c_int;
type Allocate = unsafe extern "C" fn(&mut u64, usize) -> c_int;
type Free = unsafe extern "C" fn(u64) -> c_int;
type AllocateAsync = unsafe extern "C" fn(&mut u64, usize, Handle) -> c_int;
type FreeAsync = unsafe extern "C" fn(u64, Handle) -> c_int;
type Info = unsafe extern "C" fn(&mut usize, &mut usize) -> c_int;
type Launch = unsafe extern "C" fn(
    Handle,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Handle,
    *mut Handle,
    *mut Handle,
) -> c_int;

/// A kernel that does nothing, for any GPU since Maxwell.
const KERNEL: &[u8] = b".version 6.0\n.target sm_50\n.address_size 64\n\
    .visible .entry octavo_nothing()\n{\n    ret;\n}\n\0";

const OUT_OF_MEMORY: c_int = 2;

/// Granule of the driver. Half of the allocations of a race are whole granules, and the others end in one's second half:
/// smaller ones would share granules.
const PIECE: u64 = 2 << 20;
/// Largest allocation of a race, in pieces.
const MAX_PIECES: u64 = 64;
/// Maximum number of allocations of a process in a race.
const MAX_HELD: usize = 32;

/// Driver functions that the program uses.
struct Cuda {
    launch: Launch,
    synchronize: Synchronize,
    allocate: Allocate,
    free: Free,
    allocate_async: AllocateAsync,
    free_async: FreeAsync,
    info: Info,
    function: Handle,
    _library: Library,
}

fn main() -> anyhow::Result<()> {
    let cuda = Cuda::start()?;
    let mut kept = Vec::new();
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready")?;
    out.flush()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words.as_slice() {
            ["launch", count] => writeln!(out, "{}", cuda.launches(count.parse()?)?)?,
            ["pair", count, bytes] => {
                writeln!(out, "{}", cuda.pairs(count.parse()?, bytes.parse()?)?)?;
            }
            ["async", count, bytes] => {
                writeln!(out, "{}", cuda.pairs_in_stream(count.parse()?, bytes.parse()?)?)?;
            }
            ["question", count] => writeln!(out, "{}", cuda.questions(count.parse()?)?)?,
            ["take", bytes] => {
                let mut pointer = 0;
                let code = cuda.take(&mut pointer, bytes.parse()?);
                if code == 0 {
                    kept.push(pointer);
                }
                writeln!(out, "{code}")?;
            }
            ["give"] => {
                let codes = kept.drain(..).map(|pointer| cuda.give(pointer));
                writeln!(out, "{}", codes.max().unwrap_or(0))?;
            }
            ["memory"] => {
                let (free, total) = cuda.memory()?;
                writeln!(out, "{free} {total}")?;
            }
            ["race", wishes, seconds, seed, limit, file] => {
                let sum = Sum::open(Path::new(file))?;
                let time = Duration::from_secs(seconds.parse()?);
                let race = Race { wishes: wishes.parse()?, time, limit: limit.parse()? };
                let [granted, refused, over] = race.run(&cuda, sum, seed.parse()?)?;
                writeln!(out, "{granted} {refused} {over} {}", sum.highest.load(SeqCst))?;
            }
            _ => anyhow::bail!("unknown command {line:?}"),
        }
        out.flush()?;
    }
    Ok(())
}

impl Cuda {
    fn start() -> anyhow::Result<Self> {
        // SAFETY: it is the driver's library or a replacement of it.
        let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_LOCAL) }?;
        // SAFETY: their types in cuda.h.
        let init = unsafe { find::<Init>(&library, "cuInit") }?;
        // SAFETY: as above.
        let retain = unsafe { find::<Retain>(&library, "cuDevicePrimaryCtxRetain") }?;
        // SAFETY: as above.
        let set = unsafe { find::<SetCurrent>(&library, "cuCtxSetCurrent") }?;
        // SAFETY: as above.
        let load = unsafe { find::<ModuleLoad>(&library, "cuModuleLoadData") }?;
        // SAFETY: as above.
        let named = unsafe { find::<ModuleFunction>(&library, "cuModuleGetFunction") }?;
        let (mut context, mut module, mut function) = (null_mut(), null_mut(), null_mut());
        // SAFETY: it has no pointers.
        done("cuInit", unsafe { init(0) })?;
        // SAFETY: the result is this function's own.
        done("cuDevicePrimaryCtxRetain", unsafe { retain(&mut context, 0) })?;
        // SAFETY: the context is the driver's own.
        done("cuCtxSetCurrent", unsafe { set(context) })?;
        // SAFETY: the image ends with a zero.
        done("cuModuleLoadData", unsafe { load(&mut module, KERNEL.as_ptr().cast()) })?;
        // SAFETY: the name ends with a zero.
        let code = unsafe { named(&mut function, module, c"octavo_nothing".as_ptr().cast()) };
        done("cuModuleGetFunction", code)?;
        Ok(Self {
            // SAFETY: their types in cuda.h.
            launch: unsafe { find(&library, "cuLaunchKernel") }?,
            // SAFETY: as above.
            synchronize: unsafe { find(&library, "cuCtxSynchronize") }?,
            // SAFETY: as above.
            allocate: unsafe { find(&library, "cuMemAlloc_v2") }?,
            // SAFETY: as above.
            free: unsafe { find(&library, "cuMemFree_v2") }?,
            // SAFETY: as above.
            allocate_async: unsafe { find(&library, "cuMemAllocAsync") }?,
            // SAFETY: as above.
            free_async: unsafe { find(&library, "cuMemFreeAsync") }?,
            // SAFETY: as above.
            info: unsafe { find(&library, "cuMemGetInfo_v2") }?,
            function,
            _library: library,
        })
    }

    fn launches(&self, count: u32) -> anyhow::Result<u128> {
        let (launch, function) = (self.launch, self.function);
        let mut code = 0;
        let begun = Instant::now();
        for _ in 0..count {
            // SAFETY: the function is the module's own and has no arguments.
            code |= unsafe {
                launch(function, 1, 1, 1, 1, 1, 1, 0, null_mut(), null_mut(), null_mut())
            };
        }
        let time = begun.elapsed();
        done("cuLaunchKernel", code)?;
        // SAFETY: it has no arguments.
        done("cuCtxSynchronize", unsafe { (self.synchronize)() })?;
        Ok(time.as_nanos())
    }

    fn pairs(&self, count: u32, bytes: usize) -> anyhow::Result<u128> {
        let mut code = 0;
        let begun = Instant::now();
        for _ in 0..count {
            let mut pointer = 0;
            code |= self.take(&mut pointer, bytes);
            code |= self.give(pointer);
        }
        let time = begun.elapsed();
        done("cuMemAlloc and cuMemFree", code)?;
        Ok(time.as_nanos())
    }

    fn pairs_in_stream(&self, count: u32, bytes: usize) -> anyhow::Result<u128> {
        let mut code = 0;
        let begun = Instant::now();
        for _ in 0..count {
            let mut pointer = 0;
            // SAFETY: the result is this function's own; the default stream has no handle.
            code |= unsafe { (self.allocate_async)(&mut pointer, bytes, null_mut()) };
            // SAFETY: the driver checks the pointer.
            code |= unsafe { (self.free_async)(pointer, null_mut()) };
        }
        let time = begun.elapsed();
        done("cuMemAllocAsync and cuMemFreeAsync", code)?;
        // The pool gives its memory back.
        // SAFETY: it has no arguments.
        done("cuCtxSynchronize", unsafe { (self.synchronize)() })?;
        Ok(time.as_nanos())
    }

    fn questions(&self, count: u32) -> anyhow::Result<u128> {
        let mut code = 0;
        let begun = Instant::now();
        for _ in 0..count {
            let (mut free, mut total) = (0, 0);
            // SAFETY: the results are this function's own.
            code |= unsafe { (self.info)(&mut free, &mut total) };
        }
        let time = begun.elapsed();
        done("cuMemGetInfo", code)?;
        Ok(time.as_nanos())
    }

    fn memory(&self) -> anyhow::Result<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the results are this function's own.
        done("cuMemGetInfo", unsafe { (self.info)(&mut free, &mut total) })?;
        Ok((free, total))
    }

    fn take(&self, pointer: &mut u64, bytes: usize) -> c_int {
        // SAFETY: its type in cuda.h.
        unsafe { (self.allocate)(pointer, bytes) }
    }

    fn give(&self, pointer: u64) -> c_int {
        // SAFETY: its type in cuda.h; the driver checks the pointer.
        unsafe { (self.free)(pointer) }
    }
}

/// # Safety
/// `T` must be the function's type.
unsafe fn find<T: Copy>(library: &Library, name: &'static str) -> anyhow::Result<T> {
    // SAFETY: the caller guarantees it.
    let symbol = unsafe { library.get::<T>(name.as_bytes()) };
    symbol.map(|symbol| *symbol).with_context(|| format!("the driver has no {name}"))
}

fn done(call: &str, code: c_int) -> anyhow::Result<()> {
    ensure!(code == 0, "{call}: {code}");
    Ok(())
}

/// Memory held by all processes of a race, in a file that they map.
#[repr(C)]
struct Sum {
    held: AtomicU64,
    highest: AtomicU64,
}

impl Sum {
    fn open(path: &Path) -> anyhow::Result<&'static Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        let size = size_of::<Self>();
        file.set_len(u64::try_from(size)?)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let fd = file.as_raw_fd();
        // SAFETY: a new mapping of a file that is open for reading and writing; it is never
        // unmapped.
        let place = unsafe { libc::mmap(null_mut(), size, access, libc::MAP_SHARED, fd, 0) };
        ensure!(place != libc::MAP_FAILED, "{} cannot be mapped", path.display());
        // SAFETY: the mapping is whole and page-aligned, and any bytes are atomics.
        Ok(unsafe { &*place.cast::<Self>() })
    }
}

/// Parameters of a race.
struct Race {
    wishes: u64,
    time: Duration,
    limit: u64,
}

impl Race {
    /// Returns grants, refusals, and grants after which the limit was exceeded.
    fn run(&self, cuda: &Cuda, sum: &Sum, seed: u64) -> anyhow::Result<[u64; 3]> {
        let end = Instant::now() + self.time;
        let (mut held, mut random) = (Vec::with_capacity(MAX_HELD), Random(seed));
        let [mut granted, mut refused, mut over] = [0; 3];
        let give_back = |(pointer, bytes)| {
            sum.held.fetch_sub(bytes, SeqCst);
            done("cuMemFree", cuda.give(pointer))
        };
        for _ in 0..self.wishes {
            while held.len() == MAX_HELD || (!held.is_empty() && random.below(100) < 45) {
                let index = usize::try_from(random.below(held.len() as u64))?;
                give_back(held.swap_remove(index))?;
            }
            let whole = (1 + random.below(MAX_PIECES)) * PIECE;
            let bytes = whole - random.below(2) * random.below(PIECE / 2);
            let mut pointer = 0;
            match cuda.take(&mut pointer, usize::try_from(bytes)?) {
                0 => {
                    held.push((pointer, bytes));
                    granted += 1;
                    let together = sum.held.fetch_add(bytes, SeqCst) + bytes;
                    sum.highest.fetch_max(together, SeqCst);
                    over += u64::from(together > self.limit);
                }
                OUT_OF_MEMORY => refused += 1,
                code => done("cuMemAlloc", code)?,
            }
            if Instant::now() > end {
                break;
            }
        }
        for piece in held {
            give_back(piece)?;
        }
        Ok([granted, refused, over])
    }
}

/// `SplitMix64`, a small random number generator.
struct Random(u64);

impl Random {
    /// A number below `bound`, which must not be zero.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
