//! `octavo probe --round-trip`: data goes to each GPU and comes back as it was.

use std::io::Write;

use anyhow::{Context, ensure};

use crate::driver::{Cuda, CudaError, Pointer};
use crate::environment::Gpu;
use crate::paths::GpuContext;
use crate::run::make_current;

/// Memory that is written and read.
const BYTES: usize = 16 << 20;

/// Checks the GPUs, and writes a line for each.
pub(crate) fn run(cuda: &Cuda, gpus: &[&Gpu], out: &mut dyn Write) -> anyhow::Result<()> {
    for gpu in gpus {
        let context = make_current(cuda, gpu.number)
            .with_context(|| format!("make a context on GPU {} ({})", gpu.number, gpu.uuid))?;
        check(&context).with_context(|| format!("use GPU {} ({})", gpu.number, gpu.uuid))?;
        cuda.primary_release(context.device)?;
        let mebibytes = BYTES >> 20;
        writeln!(out, "{}: {mebibytes} MiB written, read and compared ({})", gpu.uuid, gpu.name)?;
    }
    out.flush()?;
    Ok(())
}

fn check(context: &GpuContext<'_>) -> anyhow::Result<()> {
    let cuda = context.cuda;
    let mut pointer: Pointer = 0;
    cuda.allocate(&mut pointer, BYTES)?;
    let compared = round_trip(cuda, pointer);
    let freed = cuda.free(pointer);
    let wrong = compared?;
    freed?;
    ensure!(wrong.is_none(), "the memory of the GPU does not keep data: byte {wrong:?} is wrong");
    Ok(())
}

/// Writes to the GPU's memory and reads it again. Returns the first byte that differs.
fn round_trip(cuda: &Cuda, pointer: Pointer) -> Result<Option<usize>, CudaError> {
    let written: Vec<u8> = (0..BYTES).map(pattern).collect();
    let mut read = vec![0; BYTES];
    cuda.copy_to_device(pointer, written.as_ptr(), BYTES)?;
    cuda.context_synchronize()?;
    cuda.copy_to_host(read.as_mut_ptr(), pointer, BYTES)?;
    Ok(written.iter().zip(&read).position(|(written, read)| written != read))
}

/// The byte at a place. Pages differ, so that mixed-up ones are noticed.
fn pattern(place: usize) -> u8 {
    let mixed = place ^ (place >> 8) ^ (place >> 16);
    u8::try_from(mixed & 0xff).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment;
    use crate::paths::tests::with_gpu;

    #[test]
    fn every_gpu_keeps_what_is_written() {
        with_gpu("t4.yaml", |context| {
            let environment = environment::read(context.cuda).expect("GPUs");
            let gpus: Vec<&Gpu> = environment.gpus.iter().collect();
            let mut text = Vec::new();
            run(context.cuda, &gpus, &mut text).expect("working GPUs");
            let text = String::from_utf8(text).expect("text");
            assert_eq!(text.lines().count(), gpus.len(), "{text}");
            assert!(text.contains("16 MiB written, read and compared"), "{text}");
        });
    }
}
