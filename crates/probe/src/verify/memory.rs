//! The check of memory: all of it is filled before any of it is read again.

use std::time::{Duration, Instant};

use super::gpu::{Buffer, Stop, TestGpu};
use super::patterns::Pattern;
use super::report::{MemoryMismatch, MemoryNumbers};
use crate::driver::{Code, CudaError, Pointer};

/// Largest allocation, and largest piece of memory for one kernel.
const MAX_BLOCK_BYTES: u64 = 1 << 30;
/// Smallest allocation: the driver's granularity.
const MIN_BLOCK_BYTES: u64 = 2 << 20;
/// Piece of memory for the first kernel.
const FIRST_PIECE_BYTES: u64 = 1 << 20;
/// Pieces grow while their kernels take less.
const PIECE_TIME: Duration = Duration::from_millis(10);
/// Patterns of a pass.
const PATTERNS: u32 = 6;

/// Checks `percent` of the free memory with all patterns once, and goes on until `time` is over. On a GPU so slow that the first pass
/// takes longer, each pattern reaches less. Returns the numbers so far, too, if it ends early.
pub(super) fn check(
    gpu: &TestGpu<'_>,
    percent: u64,
    time: Duration,
) -> (MemoryNumbers, Result<(), Stop>) {
    let mut numbers = MemoryNumbers::default();
    let result = passes(gpu, percent, time, &mut numbers);
    (numbers, result)
}

fn passes(
    gpu: &TestGpu<'_>,
    percent: u64,
    time: Duration,
    numbers: &mut MemoryNumbers,
) -> Result<(), Stop> {
    let began = Instant::now();
    let result = Buffer::with(gpu, &[0; 32])?;
    let mut memory = Memory::allocate(gpu, percent)?;
    numbers.bytes = memory.bytes();
    numbers.covered_bytes = memory.bytes();
    let (mut written, mut read) = (Rate::default(), Rate::default());
    for pass in 0.. {
        for pattern in Pattern::of_pass(pass) {
            let left = time.saturating_sub(began.elapsed());
            if pass > 0 && left.is_zero() {
                return Ok(());
            }
            // Half of it for writing, and about as much for reading.
            let time_to_write = if pass == 0 { time / PATTERNS } else { left } / 2;
            result.write(&[0; 32])?;
            let covered = memory.fill(gpu, pattern, time_to_write, &mut written)?;
            memory.check(gpu, pattern, covered, &result, &mut read)?;
            if pass == 0 {
                numbers.covered_bytes = numbers.covered_bytes.min(covered);
            }
            numbers.patterns += 1;
            (numbers.write_rate, numbers.read_rate) = (written.by_second(), read.by_second());
            note(&result.read()?, numbers);
        }
    }
    Ok(())
}

/// Adds what a kernel found: a count, and the first address with its expected and its found word.
fn note(result: &[u8], numbers: &mut MemoryNumbers) {
    let mut words = result
        .chunks_exact(8)
        .map(|word| word.iter().rev().fold(0, |number: u64, byte| number << 8 | u64::from(*byte)));
    let count = words.next().unwrap_or(0);
    numbers.mismatches += count;
    if count > 0 && numbers.first.is_none() {
        let mut hexadecimal = || format!("{:#x}", words.next().unwrap_or(0));
        let (address, expected, found) = (hexadecimal(), hexadecimal(), hexadecimal());
        numbers.first = Some(MemoryMismatch { address, expected, found });
    }
}

/// Memory under test.
struct Memory<'a> {
    blocks: Vec<Buffer<'a>>,
    /// Bytes of the next piece.
    piece: u64,
}

impl<'a> Memory<'a> {
    /// Allocates a part of the free memory in blocks, smaller ones when larger ones are refused.
    fn allocate(gpu: &'a TestGpu<'a>, percent: u64) -> Result<Self, CudaError> {
        let (mut free, mut total) = (0, 0);
        gpu.context.cuda.memory_info(&mut free, &mut total)?;
        let wanted = free as u64 / 100 * percent;
        let (mut blocks, mut block) = (Vec::new(), MAX_BLOCK_BYTES);
        let mut taken = 0;
        while taken < wanted && block >= MIN_BLOCK_BYTES {
            let bytes = block.min((wanted - taken).next_multiple_of(MIN_BLOCK_BYTES));
            match Buffer::allocate(gpu, bytes) {
                Ok(buffer) => {
                    taken += bytes;
                    blocks.push(buffer);
                }
                Err(error) if error.code() == Some(Code::OUT_OF_MEMORY) => block = bytes / 2,
                Err(error) => return Err(error),
            }
        }
        if blocks.is_empty() {
            let call = "cuMemAlloc_v2";
            return Err(CudaError::Failed { call, code: Code::OUT_OF_MEMORY });
        }
        Ok(Self { blocks, piece: FIRST_PIECE_BYTES })
    }

    fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.bytes).sum()
    }

    /// The piece at an offset: address and bytes. It ends before `end`, and with its block.
    fn piece(&self, mut offset: u64, end: u64) -> Option<(Pointer, u64)> {
        let most = self.piece.min(end.checked_sub(offset)?);
        for block in &self.blocks {
            if offset < block.bytes {
                return Some((block.pointer + offset, most.min(block.bytes - offset)));
            }
            offset -= block.bytes;
        }
        None
    }

    /// Fills the memory until the time is over. Returns the bytes from the beginning that were filled.
    fn fill(
        &mut self,
        gpu: &TestGpu<'_>,
        pattern: Pattern,
        time: Duration,
        rate: &mut Rate,
    ) -> Result<u64, Stop> {
        let (began, end) = (Instant::now(), self.bytes());
        let mut offset = 0;
        while offset < end && (offset == 0 || began.elapsed() < time) {
            let Some(piece) = self.piece(offset, end) else { break };
            let took = gpu.fill(piece, piece.0, pattern)?;
            rate.add(piece.1, took);
            offset += piece.1;
            self.grow(took);
        }
        Ok(offset)
    }

    /// Compares the memory up to `end`.
    fn check(
        &mut self,
        gpu: &TestGpu<'_>,
        pattern: Pattern,
        end: u64,
        result: &Buffer<'_>,
        rate: &mut Rate,
    ) -> Result<(), Stop> {
        let mut offset = 0;
        while offset < end {
            let Some(piece) = self.piece(offset, end) else { break };
            let took = gpu.check(piece, piece.0, pattern, result)?;
            rate.add(piece.1, took);
            offset += piece.1;
            self.grow(took);
        }
        Ok(())
    }

    fn grow(&mut self, took: Duration) {
        if took < PIECE_TIME {
            self.piece = (self.piece * 2).min(MAX_BLOCK_BYTES);
        }
    }
}

/// Work and its time.
#[derive(Default)]
struct Rate {
    bytes: u64,
    time: Duration,
}

impl Rate {
    fn add(&mut self, bytes: u64, time: Duration) {
        self.bytes += bytes;
        self.time += time;
    }

    fn by_second(&self) -> f64 {
        by_second(self.bytes, self.time)
    }
}

/// A rate in whole numbers. It is for people.
#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 15 digits")]
pub(super) fn by_second(count: u64, time: Duration) -> f64 {
    (count as f64 / time.as_secs_f64().max(1e-9)).round()
}
