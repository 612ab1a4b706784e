//! `octavo probe --fabric`: ranks of an MPI job read each other's GPU memory over the NVLink fabric.
//!
//! Each rank makes memory with a handle of type `CU_MEM_HANDLE_TYPE_FABRIC`, fills it, and gives all others the handle by MPI.
//! Each maps the memory of all others and compares every byte. It needs an IMEX channel of one domain in all containers.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::driver::{
    AccessDescription, AllocationProperties, Cuda, CudaError, FABRIC, FabricHandle, Pointer,
};
use crate::mpi::Mpi;
use crate::paths::GpuContext;
use crate::run::make_current;

/// Memory of each rank: a page of the GPU, the least that can be exported.
const BYTES: usize = 2 << 20;
/// Open MPI tells each rank its number on its node by this variable.
const LOCAL_RANK: &str = "OMPI_COMM_WORLD_LOCAL_RANK";

/// Runs as a rank, once and then until `time` has passed.
pub(crate) fn run(time: Duration, out: &mut dyn Write) -> anyhow::Result<()> {
    let mpi = Mpi::init()?;
    let begun = Instant::now();
    let mut rounds = 0;
    let result = rank(&mpi, out, || {
        rounds += 1;
        // One rank decides, or some would wait for others that have ended.
        let goes_on = mpi.all_gather(&[u8::from(begun.elapsed() < time)])?;
        Ok(goes_on.first() == Some(&[1]))
    });
    let name = format!("rank {} of {}", mpi.rank, mpi.size);
    if let Err(error) = result {
        writeln!(out, "{name}: {error:#}")?;
        out.flush()?;
        mpi.abort();
        return Err(error);
    }
    writeln!(out, "{name}: rounds that passed: {rounds}")?;
    out.flush()?;
    mpi.finalize()
}

/// The part of a rank, round by round.
fn rank(
    mpi: &Mpi,
    out: &mut dyn Write,
    mut goes_on: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let cuda = Cuda::open("libcuda.so.1")?;
    cuda.init(0).context("the driver cannot be initialised: the container needs a GPU")?;
    let mut count = 0;
    cuda.device_count(&mut count)?;
    ensure!(count > 0, "this process sees no GPU");
    let local = std::env::var(LOCAL_RANK).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let context = make_current(&cuda, local % count)?;
    loop {
        let read = round(mpi, &context)?;
        writeln!(out, "rank {} of {}: memory of {read} other ranks is right", mpi.rank, mpi.size)?;
        out.flush()?;
        if !goes_on()? {
            return Ok(());
        }
    }
}

/// Exports own memory, and checks that of all other ranks. Returns how many these are.
fn round(mpi: &Mpi, context: &GpuContext<'_>) -> anyhow::Result<usize> {
    let own = Memory::fill(context, mpi.rank)
        .context("make memory for the fabric: the container needs an IMEX channel")?;
    let mut shareable = FabricHandle([0; 64]);
    context
        .cuda
        .export(&mut shareable, own.handle, FABRIC, 0)
        .context("export memory to the fabric")?;
    let all = mpi.all_gather(&shareable.0)?;
    let others = all.iter().enumerate().filter(|(rank, _)| *rank != mpi.rank);
    let mut read = 0;
    for (rank, shareable) in others {
        let memory = Memory::import(context, &FabricHandle(*shareable));
        let memory = memory.with_context(|| format!("import the memory of rank {rank}"))?;
        let found = memory.read()?;
        let wanted = pattern(rank);
        let wrong = found.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
        ensure!(wrong.is_none(), "byte {wrong:?} of the memory of rank {rank} is wrong");
        read += 1;
    }
    // Own memory must last until all have read it.
    mpi.barrier()?;
    Ok(read)
}

/// The bytes of a rank's memory, which differ from those of other ranks.
fn pattern(rank: usize) -> Vec<u8> {
    let byte = |index: usize| index.wrapping_mul(31).wrapping_add(rank.wrapping_mul(97) + 1);
    (0..BYTES).map(|index| byte(index).to_le_bytes()[0]).collect()
}

/// Mapped memory, own or of another rank.
struct Memory<'a> {
    context: &'a GpuContext<'a>,
    handle: u64,
    pointer: Pointer,
}

impl<'a> Memory<'a> {
    /// Memory of this process, filled for others.
    fn fill(context: &'a GpuContext<'a>, rank: usize) -> anyhow::Result<Self> {
        let mut handle = 0;
        let properties = AllocationProperties::fabric(context.device);
        context.cuda.create(&mut handle, BYTES, &properties, 0)?;
        let memory = Self::map(context, handle)?;
        context.cuda.copy_to_device(memory.pointer, pattern(rank).as_ptr(), BYTES)?;
        Ok(memory)
    }

    /// Memory of another process.
    fn import(context: &'a GpuContext<'a>, shareable: &FabricHandle) -> Result<Self, CudaError> {
        let mut handle = 0;
        context.cuda.import(&mut handle, shareable, FABRIC)?;
        Self::map(context, handle)
    }

    fn map(context: &'a GpuContext<'a>, handle: u64) -> Result<Self, CudaError> {
        let mut memory = Self { context, handle, pointer: 0 };
        context.cuda.reserve(&mut memory.pointer, BYTES, 0, 0, 0)?;
        context.cuda.map(memory.pointer, BYTES, 0, handle, 0)?;
        let access = AccessDescription::device(context.device);
        context.cuda.set_access(memory.pointer, BYTES, &access, 1)?;
        Ok(memory)
    }

    fn read(&self) -> Result<Vec<u8>, CudaError> {
        let mut bytes = vec![0; BYTES];
        self.context.cuda.copy_to_host(bytes.as_mut_ptr(), self.pointer, BYTES)?;
        Ok(bytes)
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        let cuda = self.context.cuda;
        if self.pointer != 0 {
            // The process ends where these fail, and the driver frees what is left.
            let _ = cuda.unmap(self.pointer, BYTES);
            let _ = cuda.unreserve(self.pointer, BYTES);
        }
        let _ = cuda.release(self.handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_bytes_of_their_own() {
        let (one, other) = (pattern(0), pattern(1));
        assert_eq!((one.len(), other.len()), (BYTES, BYTES));
        assert!(one.iter().zip(&other).all(|(one, other)| one != other));
    }
}
