//! Kernel launches.

use std::sync::Arc;

use octavo_fake_gpu::ENDLESS;
use octavo_machine::KernelFault;

use crate::code::{CallResult, Code};
use crate::context;
use crate::execution::capture;
use crate::execution::graph::Op;
use crate::execution::module::{self, FUNCTIONS};
use crate::execution::ptx::run::Place;
use crate::execution::ptx::{self, Program};
use crate::execution::stream::{self, Default, STREAMS, Stream};
use crate::library;
use crate::pointers::In;
use crate::table::Handle;

/// Maximum threads of a block.
const MAX_THREADS_PER_BLOCK: u64 = 1024;

/// A kernel to launch.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) function: Handle,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) nanos: u64,
    /// What it computes, if anything.
    work: Option<Arc<Work>>,
}

/// Code with the arguments of a launch.
#[derive(Debug)]
struct Work {
    program: Arc<Program>,
    arguments: Vec<u64>,
}

/// Checks the shape of a kernel, and reads its arguments if it is computed: a list of their addresses.
pub(crate) fn kernel(
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    arguments: usize,
) -> Result<Kernel, Code> {
    let threads: u64 = block.iter().map(|side| u64::from(*side)).product();
    if grid.contains(&0) || threads == 0 || threads > MAX_THREADS_PER_BLOCK {
        return Err(Code::INVALID_VALUE);
    }
    let (nanos, is_computed) = module::traits_of_function(function)?;
    let work = if is_computed { Some(work_of(function, grid, block, arguments)?) } else { None };
    Ok(Kernel { function, grid, block, shared_bytes, nanos, work })
}

#[cold]
fn work_of(
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    arguments: usize,
) -> Result<Arc<Work>, Code> {
    let program = FUNCTIONS.with(function, |function| Ok(function.program.clone()))?;
    let program = program.ok_or(Code::UNKNOWN)?;
    if grid[1..] != [1; 2] || block[1..] != [1; 2] {
        // One dimension is enough for the kernels that are computed.
        return Err(Code::NOT_SUPPORTED);
    }
    let places = In::<usize>::within(arguments).list(program.parameters.len())?;
    let read = |(place, bytes): (usize, &u64)| match bytes {
        4 => In::<u32>::within(place).read().map(u64::from),
        _ => In::<u64>::within(place).read(),
    };
    let arguments = places.into_iter().zip(&program.parameters).map(read);
    let arguments = arguments.collect::<Result<_, _>>()?;
    Ok(Arc::new(Work { program, arguments }))
}

/// Launches a kernel in a stream, or adds it to the graph that the stream is captured into.
pub(crate) fn launch(kernel: Kernel, argument: Handle, default: Default) -> CallResult {
    let handle = stream::resolve(argument, default)?;
    let capture = STREAMS.with(handle, |stream| {
        if stream.capture.is_some() {
            return Ok(true);
        }
        run(&kernel, stream).map(|()| false)
    })?;
    if capture { capture::add(handle, Op::Kernel(kernel)) } else { Ok(()) }
}

/// Submits a kernel's work.
pub(crate) fn run(kernel: &Kernel, stream: &mut Stream) -> CallResult {
    let driver = library::driver()?;
    if driver.state.has_kernels() {
        return run_special(kernel, stream);
    }
    if kernel.work.is_some() {
        return compute(kernel, kernel.nanos, stream);
    }
    stream.submit(kernel.nanos).map(drop)
}

/// Computes a kernel at once, which is no later than in stream order. Only then its time passes on the GPU.
#[cold]
fn compute(kernel: &Kernel, nanos: u64, stream: &mut Stream) -> CallResult {
    let (driver, device) = (library::driver()?, stream.device()?);
    let result = kernel.work.as_ref().map_or(Ok(()), |work| {
        let place = Place {
            blocks: kernel.grid[0],
            threads: kernel.block[0],
            multiprocessors: driver.machine.model.multiprocessors,
            faulty: &driver.state.faulty_multiprocessors(device.index),
        };
        ptx::run::run(&work.program, &work.arguments, &place)
    });
    let mark = stream.submit(nanos)?;
    result.or_else(|code| context::break_at(stream.context, mark, code))
}

/// As [`run`], if the state has settings for some kernels.
#[cold]
fn run_special(kernel: &Kernel, stream: &mut Stream) -> CallResult {
    let driver = library::driver()?;
    let name = FUNCTIONS.with(kernel.function, |function| Ok(function.name.clone()))?;
    let special = driver.state.kernel(stream.device()?.index, &name.to_string_lossy());
    let nanos = special.nanos.unwrap_or(kernel.nanos);
    let nanos = if special.fault == Some(KernelFault::NeverEnds) { ENDLESS } else { nanos };
    if special.fault.is_none() {
        return compute(kernel, nanos, stream);
    }
    let mark = stream.submit(nanos)?;
    if special.fault == Some(KernelFault::IllegalAddress) {
        context::break_at(stream.context, mark, Code::ILLEGAL_ADDRESS)?;
    }
    Ok(())
}
