//! The run of a kernel: block after block, all threads of a block together.
//!
//! Threads at the same instruction are a group. The group at the lowest instruction goes first, so threads that took different ways
//! meet again.

use std::collections::{BTreeMap, BTreeSet};

use super::{Instruction, Op, Operand, Program, Special};
use crate::code::{CallResult, Code};
use crate::memory::arena::{self, GRANULE};
use crate::memory::heap::{self, Range};
use crate::memory::weak;

/// Where a kernel runs.
pub(crate) struct Place<'a> {
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    /// Multiprocessors of the GPU, which take blocks in turn.
    pub(crate) multiprocessors: u32,
    /// Those that compute wrong: the lowest bit of each `fma` is inverted.
    pub(crate) faulty: &'a BTreeSet<u32>,
}

/// Steps of a block before it counts as endless; a step is an instruction of a group.
const MAX_STEPS: u64 = 1 << 22;

/// Runs a kernel to its end.
pub(crate) fn run(program: &Program, arguments: &[u64], place: &Place<'_>) -> CallResult {
    let threads = place.threads as usize;
    let mut memory = Memory { range: None, touched: u64::MAX, weak: weak::addresses() };
    for block in 0..place.blocks {
        let unit = block % place.multiprocessors.max(1);
        let mut run = Block {
            registers: vec![0; program.registers * threads],
            threads,
            specials: [place.threads, block, place.blocks, unit].map(u64::from),
            is_faulty: place.faulty.contains(&unit),
            arguments,
            memory: &mut memory,
        };
        run.run(&program.code)?;
    }
    Ok(())
}

/// A block that runs.
struct Block<'a> {
    /// By register, then by thread.
    registers: Vec<u64>,
    threads: usize,
    /// Threads, number of the block, blocks, number of the multiprocessor.
    specials: [u64; 4],
    is_faulty: bool,
    arguments: &'a [u64],
    memory: &'a mut Memory,
}

impl Block<'_> {
    fn run(&mut self, code: &[Instruction]) -> CallResult {
        let mut groups = BTreeMap::from([(0, (0..self.threads).collect::<Vec<usize>>())]);
        for _ in 0..MAX_STEPS {
            let Some((place, group)) = groups.pop_first() else { return Ok(()) };
            let instruction = code.get(place).ok_or(Code::LAUNCH_FAILED)?;
            let (taken, skipped) = match instruction.guard {
                None => (group, Vec::new()),
                Some((register, wanted)) => {
                    let row = register * self.threads;
                    group
                        .into_iter()
                        .partition(|thread| (self.registers[row + thread] != 0) == wanted)
                }
            };
            join(&mut groups, place + 1, skipped);
            let next = match instruction.op {
                Op::Return => continue,
                Op::Branch(target) => target,
                _ => {
                    self.step(instruction, &taken)?;
                    place + 1
                }
            };
            join(&mut groups, next, taken);
        }
        Err(Code::LAUNCH_TIMEOUT)
    }

    /// Executes an instruction for some threads.
    fn step(&mut self, instruction: &Instruction, threads: &[usize]) -> CallResult {
        let bytes = instruction.bytes;
        let mask = if bytes == 4 { u64::from(u32::MAX) } else { u64::MAX };
        let flaw = u64::from(self.is_faulty);
        let row = instruction.to * self.threads;
        for &thread in threads {
            let [a, b, c] = instruction.from.map(|operand| self.value(operand, thread));
            let (low_a, low_b) = (a & mask, b & mask);
            let bits = bytes * 8;
            let value = match instruction.op {
                Op::Move => a,
                Op::Add => a.wrapping_add(b),
                Op::Subtract => a.wrapping_sub(b),
                Op::Multiply => a.wrapping_mul(b),
                Op::MultiplyWide => {
                    self.registers[row + thread] = low_a * low_b;
                    continue;
                }
                Op::MultiplyAdd => a.wrapping_mul(b).wrapping_add(c),
                Op::Fused => u64::from(fused(a, b, c)) ^ flaw,
                Op::And => a & b,
                Op::Or => a | b,
                Op::Xor => a ^ b,
                Op::ShiftLeft => {
                    if b < bits {
                        a << b
                    } else {
                        0
                    }
                }
                Op::ShiftRight => {
                    if b < bits {
                        low_a >> b
                    } else {
                        0
                    }
                }
                Op::IsEqual => u64::from(low_a == low_b),
                Op::IsUnequal => u64::from(low_a != low_b),
                Op::IsLess => u64::from(low_a < low_b),
                Op::IsGreaterOrEqual => u64::from(low_a >= low_b),
                Op::Select => {
                    if c != 0 {
                        a
                    } else {
                        b
                    }
                }
                Op::Parameter(index) => self.arguments.get(index).copied().unwrap_or(0),
                Op::Load(by) => self.memory.load(a.wrapping_add(by), bytes)?,
                Op::Store(by) => {
                    self.memory.store(a.wrapping_add(by), b, bytes)?;
                    continue;
                }
                Op::AtomicAdd(by) => {
                    let address = a.wrapping_add(by);
                    let before = self.memory.load(address, bytes)?;
                    self.memory.store(address, before.wrapping_add(b), bytes)?;
                    before
                }
                Op::Branch(_) | Op::Return => continue,
            };
            self.registers[row + thread] = value & mask;
        }
        Ok(())
    }

    fn value(&self, operand: Operand, thread: usize) -> u64 {
        match operand {
            Operand::Register(register) => self.registers[register * self.threads + thread],
            Operand::Value(value) => value,
            Operand::Special(Special::Thread) => thread as u64,
            Operand::Special(Special::Threads) => self.specials[0],
            Operand::Special(Special::Block) => self.specials[1],
            Operand::Special(Special::Blocks) => self.specials[2],
            Operand::Special(Special::Multiprocessor) => self.specials[3],
        }
    }
}

fn join(groups: &mut BTreeMap<usize, Vec<usize>>, place: usize, mut threads: Vec<usize>) {
    if !threads.is_empty() {
        groups.entry(place).or_default().append(&mut threads);
    }
}

/// `a * b + c`, rounded once.
fn fused(a: u64, b: u64, c: u64) -> u32 {
    let [a, b, c] =
        [a, b, c].map(|bits| f32::from_bits(u32::try_from(bits & 0xffff_ffff).unwrap_or(0)));
    a.mul_add(b, c).to_bits()
}

/// Memory as a kernel reaches it.
struct Memory {
    /// The allocation of the last access.
    range: Option<Range>,
    /// The granule of the last store.
    touched: u64,
    /// Addresses of bytes that do not keep what is written.
    weak: BTreeSet<u64>,
}

impl Memory {
    fn load(&mut self, address: u64, bytes: u64) -> Result<u64, Code> {
        self.check(address, bytes)?;
        Ok(arena::read(address, bytes))
    }

    fn store(&mut self, address: u64, value: u64, bytes: u64) -> CallResult {
        self.check(address, bytes)?;
        let granule = address / GRANULE;
        if granule != self.touched {
            heap::touch(address, bytes);
            self.touched = granule;
        }
        arena::write(address, value, bytes);
        if !self.weak.is_empty() {
            weak::flip(&self.weak, address, bytes);
        }
        Ok(())
    }

    /// Fails unless the address is allocated and aligned.
    fn check(&mut self, address: u64, bytes: u64) -> CallResult {
        if !address.is_multiple_of(bytes) {
            return Err(Code::MISALIGNED_ADDRESS);
        }
        let has =
            |range: &Range| address >= range.start && address - range.start + bytes <= range.size;
        if !self.range.as_ref().is_some_and(has) {
            self.range = heap::find(address).filter(has);
        }
        if self.range.is_some() { Ok(()) } else { Err(Code::ILLEGAL_ADDRESS) }
    }
}
