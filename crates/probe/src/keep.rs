//! `octavo probe --keep`: keeps memory with known contents, and checks from time to time that they are the same.
//!
//! It shows memory that is lent: while the process does nothing its memory may be on the host, and a check brings it back.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::Serialize;

use crate::driver::{Cuda, CudaError, Pointer};
use crate::environment::Gpu;
use crate::paths::GpuContext;
use crate::run::make_current;

/// Largest allocation.
const BLOCK_BYTES: usize = 1 << 30;

/// The first bytes of each such piece have known contents.
const PIECE_BYTES: usize = 2 << 20;

/// How many.
const KNOWN_BYTES: usize = 4096;

/// A line of the report: one check.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    /// Number of the check; 0 is the first, right after the memory was written.
    check: u64,
    /// Bytes that are kept.
    bytes: u64,
    /// Pieces of 2 MiB whose contents are not as they were written.
    wrong_pieces: usize,
    /// How long the check took: longer if the memory was not on the GPU.
    milliseconds: u128,
}

/// Keeps memory of the first of these GPUs, and checks it every `interval`; `checks` times after the first, or for ever.
pub(crate) fn run(
    cuda: &Cuda,
    gpus: &[&Gpu],
    bytes: u64,
    interval: Duration,
    checks: Option<u64>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let gpu = gpus.first().context("there is no GPU")?;
    let context = make_current(cuda, gpu.number)
        .with_context(|| format!("make a context on GPU {} ({})", gpu.number, gpu.uuid))?;
    let kept = Kept::allocate(&context, bytes).with_context(|| {
        format!("keep {} MiB of GPU {} ({})", bytes >> 20, gpu.number, gpu.uuid)
    })?;
    for check in 0.. {
        let began = Instant::now();
        let wrong_pieces = kept.wrong_pieces(cuda)?;
        let milliseconds = began.elapsed().as_millis();
        let line = Line { check, bytes, wrong_pieces, milliseconds };
        writeln!(out, "{}", serde_json::to_string(&line)?)?;
        out.flush()?;
        if wrong_pieces > 0 {
            bail!("the contents of {wrong_pieces} pieces have changed");
        }
        if checks == Some(check) {
            break;
        }
        thread::sleep(interval);
    }
    kept.free(cuda)?;
    cuda.primary_release(context.device)?;
    Ok(())
}

/// Memory that is kept: blocks and their sizes.
struct Kept(Vec<(Pointer, usize)>);

impl Kept {
    fn allocate(context: &GpuContext<'_>, bytes: u64) -> anyhow::Result<Self> {
        let cuda = context.cuda;
        let mut left = usize::try_from(bytes)?;
        ensure!(left > 0, "there is nothing to keep");
        let mut blocks = Vec::new();
        while left > 0 {
            let size = left.min(BLOCK_BYTES);
            let mut pointer = 0;
            cuda.allocate(&mut pointer, size)?;
            blocks.push((pointer, size));
            left -= size;
        }
        let kept = Self(blocks);
        for (index, (place, size)) in kept.pieces().enumerate() {
            let known = contents(index, size);
            cuda.copy_to_device(place, known.as_ptr(), known.len())?;
        }
        cuda.context_synchronize()?;
        Ok(kept)
    }

    /// Places and sizes of the pieces.
    fn pieces(&self) -> impl Iterator<Item = (Pointer, usize)> {
        self.0.iter().flat_map(|(start, size)| {
            (0..*size).step_by(PIECE_BYTES).map(move |offset| {
                let place = start.wrapping_add(Pointer::try_from(offset).unwrap_or_default());
                (place, PIECE_BYTES.min(size - offset))
            })
        })
    }

    fn wrong_pieces(&self, cuda: &Cuda) -> Result<usize, CudaError> {
        let mut wrong = 0;
        for (index, (place, size)) in self.pieces().enumerate() {
            let known = contents(index, size);
            let mut read = vec![0; known.len()];
            cuda.copy_to_host(read.as_mut_ptr(), place, known.len())?;
            wrong += usize::from(read != known);
        }
        Ok(wrong)
    }

    fn free(self, cuda: &Cuda) -> Result<(), CudaError> {
        self.0.into_iter().try_for_each(|(pointer, _)| cuda.free(pointer))
    }
}

/// The first bytes of a piece. Pieces differ, so that mixed-up ones are noticed.
fn contents(index: usize, size: usize) -> Vec<u8> {
    let words =
        (0..KNOWN_BYTES.min(size).div_ceil(8)).map(|word| (index as u64) << 32 | word as u64);
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(size);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment;
    use crate::paths::tests::with_gpu;

    #[test]
    fn memory_keeps_its_contents_and_changes_are_found() {
        with_gpu("t4.yaml", |context| {
            let cuda = context.cuda;
            let kept = Kept::allocate(context, (3 << 30) + 5).expect("memory");
            assert_eq!(kept.pieces().count(), 3 * 512 + 1);
            assert_eq!(kept.wrong_pieces(cuda).expect("read"), 0);
            let place = kept.0[1].0 + (4 << 20) + 100;
            cuda.copy_to_device(place, [9_u8].as_ptr(), 1).expect("written");
            assert_eq!(kept.wrong_pieces(cuda).expect("read"), 1);
            kept.free(cuda).expect("freed");
        });
    }

    #[test]
    fn each_check_is_a_line() {
        with_gpu("t4.yaml", |context| {
            let environment = environment::read(context.cuda).expect("GPUs");
            let gpus: Vec<&Gpu> = environment.gpus.iter().collect();
            let mut text = Vec::new();
            run(context.cuda, &gpus, 8 << 20, Duration::ZERO, Some(2), &mut text).expect("kept");
            let text = String::from_utf8(text).expect("text");
            assert_eq!(text.lines().count(), 3, "{text}");
            assert!(text.contains("\"bytes\":8388608,\"wrongPieces\":0"), "{text}");
        });
    }
}
