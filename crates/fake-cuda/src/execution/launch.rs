//! Kernel launches.

use octavo_fake_gpu::ENDLESS;
use octavo_machine::KernelFault;

use crate::code::{CallResult, Code};
use crate::context;
use crate::execution::capture;
use crate::execution::graph::Op;
use crate::execution::module::{self, FUNCTIONS};
use crate::execution::stream::{self, Default, STREAMS, Stream};
use crate::library;
use crate::table::Handle;

/// Maximum threads of a block.
const MAX_THREADS_PER_BLOCK: u64 = 1024;

/// A kernel to launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub(crate) function: Handle,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) nanos: u64,
}

/// Checks the shape of a kernel.
pub(crate) fn kernel(
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
) -> Result<Kernel, Code> {
    let threads: u64 = block.iter().map(|side| u64::from(*side)).product();
    if grid.contains(&0) || threads == 0 || threads > MAX_THREADS_PER_BLOCK {
        return Err(Code::INVALID_VALUE);
    }
    let nanos = module::nanos_of_function(function)?;
    Ok(Kernel { function, grid, block, shared_bytes, nanos })
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
    stream.submit(kernel.nanos).map(drop)
}

/// As [`run`], if the state has settings for some kernels.
#[cold]
fn run_special(kernel: &Kernel, stream: &mut Stream) -> CallResult {
    let driver = library::driver()?;
    let name = FUNCTIONS.with(kernel.function, |function| Ok(function.name.clone()))?;
    let special = driver.state.kernel(stream.device()?.index, &name.to_string_lossy());
    let nanos = special.nanos.unwrap_or(kernel.nanos);
    let nanos = if special.fault == Some(KernelFault::NeverEnds) { ENDLESS } else { nanos };
    let mark = stream.submit(nanos)?;
    if special.fault == Some(KernelFault::IllegalAddress) {
        context::break_at(stream.context, mark, Code::ILLEGAL_ADDRESS)?;
    }
    Ok(())
}
