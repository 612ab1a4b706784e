//! The limits file: the limits of a share, and its gate.
//!
//! The agent creates it once and then changes it in place, because a mount refers to the file and
//! not to its name. Rarely changed fields are protected by a sequence lock. The last cache line
//! holds words that are read and written one at a time.

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::VERSION;

/// First word of the file: `OCTLIM` and two zero bytes.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"OCTLIM\0\0");

/// Size of the file in bytes: one page. A guard maps only a file of this size.
pub const SIZE: usize = 4096;

/// The file.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Limits {
    magic: AtomicU64,
    version: AtomicU32,
    /// Odd while the agent writes.
    sequence: AtomicU32,
    generation: AtomicU64,
    gpu: [AtomicU64; 2],
    memory_bytes: AtomicU64,
    context_bytes: AtomicU64,
    compute_milli_percent: AtomicU32,
    flags: AtomicU32,
    _reserved: [AtomicU64; 8],
    live: Live,
}

/// Words that change while the share runs.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Live {
    /// A [`ShareGate`].
    pub gate: AtomicU32,
    /// Number of changes of `gate`.
    pub epoch: AtomicU32,
    /// Bytes that the driver counts for the share's processes and no slot accounts for: module
    /// code, contexts larger than assumed, allocations that bypass the guard.
    pub untracked_bytes: AtomicU64,
    /// Bytes that the driver counts for the share's processes in total; 0 until the agent has
    /// polled the driver.
    pub driver_bytes: AtomicU64,
    /// Bytes of the limit that other shares have now. The agent lowers it when a guard asks for memory
    /// ([`crate::lease_page::LeasePage::asked`]) and it can be had.
    pub withheld_bytes: AtomicU64,
    /// Part of the last second or so in which the GPU worked for the share: 1 + thousandths. 0 if the agent does not know it.
    pub utilisation: AtomicU32,
}

impl Live {
    /// Part of the last second or so in which the GPU worked for the share, in thousandths; `None` if unknown.
    pub fn utilisation_permille(&self) -> Option<u32> {
        self.utilisation.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// Whether the processes of a share may allocate and launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ShareGate {
    /// They may.
    Open = 0,
    /// Launches and allocations wait until the gate opens.
    Paused = 1,
    /// Launches and allocations fail: the state file was tampered with, or the overflow policy says
    /// so.
    Fenced = 2,
}

impl ShareGate {
    /// The gate of a word. An unknown value means paused: a newer agent had a reason to write it.
    pub const fn of(word: u32) -> Self {
        match word {
            0 => Self::Open,
            2 => Self::Fenced,
            _ => Self::Paused,
        }
    }
}

/// Refuse allocation and launch functions unknown to the guard, instead of counting and reporting
/// them.
pub const STRICT: u32 = 1;

/// Allocate large plain memory so that the guard can move it to the host ([`crate::lease_page::LeasePage::move_asked`]). A guard
/// that does not know this allocates as ever, and its page says that it cannot move anything.
pub const PAGES: u32 = 2;

/// The fields under the sequence lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Generation of the share. A state file of another generation belongs to an earlier share.
    pub generation: u64,
    /// UUID of the GPU.
    pub gpu: [u8; 16],
    /// Memory limit of the share, in bytes.
    pub memory_bytes: u64,
    /// Charge for a context before it is created, in bytes.
    pub context_bytes: u64,
    /// GPU time in thousandths of a percent; 0 means a fair part of the idle time.
    pub compute_milli_percent: u32,
    /// [`STRICT`] and [`PAGES`], or 0.
    pub flags: u32,
}

/// Why a limits file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It is shorter or longer than [`SIZE`].
    Size,
    /// It does not begin with [`MAGIC`].
    Magic,
    /// It has another version.
    Version(u32),
    /// It was still being written when the reader gave up.
    Unfinished,
}

impl Limits {
    /// Reads the terms. Fails if the file is damaged, or still unfinished after many attempts.
    pub fn terms(&self) -> Result<Terms, Damage> {
        if self.magic.load(Ordering::Relaxed) != MAGIC {
            return Err(Damage::Magic);
        }
        let version = self.version.load(Ordering::Relaxed);
        if version != VERSION {
            return Err(Damage::Version(version));
        }
        for _ in 0..MAX_READ_ATTEMPTS {
            let before = self.sequence.load(Ordering::Acquire);
            let words = [self.gpu[0].load(Ordering::Relaxed), self.gpu[1].load(Ordering::Relaxed)];
            let mut gpu = [0; 16];
            gpu[..8].copy_from_slice(&words[0].to_ne_bytes());
            gpu[8..].copy_from_slice(&words[1].to_ne_bytes());
            let terms = Terms {
                generation: self.generation.load(Ordering::Relaxed),
                gpu,
                memory_bytes: self.memory_bytes.load(Ordering::Relaxed),
                context_bytes: self.context_bytes.load(Ordering::Relaxed),
                compute_milli_percent: self.compute_milli_percent.load(Ordering::Relaxed),
                flags: self.flags.load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && before == self.sequence.load(Ordering::Relaxed) {
                return Ok(terms);
            }
            core::hint::spin_loop();
        }
        Err(Damage::Unfinished)
    }

    /// The words that change while the share runs.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Memory limit of the share, in bytes. It is one word, read without the lock for every charge.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }
}

/// Attempts to read a file that is being written. The agent writes for less than a microsecond,
/// unless it was killed meanwhile.
const MAX_READ_ATTEMPTS: usize = 1 << 16;

/// Offset of [`Live::gate`] and [`Live::epoch`], 8 bytes.
pub const GATE_OFFSET: usize = offset_of!(Limits, live) + offset_of!(Live, gate);

/// Offset of [`Live::untracked_bytes`] and [`Live::driver_bytes`], 16 bytes.
pub const UNTRACKED_OFFSET: usize = offset_of!(Limits, live) + offset_of!(Live, untracked_bytes);

/// Offset of [`Live::withheld_bytes`], 8 bytes.
pub const WITHHELD_OFFSET: usize = offset_of!(Limits, live) + offset_of!(Live, withheld_bytes);

/// Offset of [`Live::utilisation`], 4 bytes.
pub const UTILISATION_OFFSET: usize = offset_of!(Limits, live) + offset_of!(Live, utilisation);

/// Offset of the sequence, 4 bytes.
pub const SEQUENCE_OFFSET: usize = offset_of!(Limits, sequence);

/// Offset of [`Terms::encode`].
pub const TERMS_OFFSET: usize = offset_of!(Limits, generation);

/// Size of [`Terms::encode`] in bytes.
pub const TERMS_SIZE: usize = offset_of!(Limits, _reserved) - TERMS_OFFSET;

const _: () = assert!(size_of::<Limits>() <= SIZE && size_of::<Limits>() == 192);

impl Terms {
    /// A whole new file: gate open, nothing untracked.
    pub fn file(&self) -> [u8; SIZE] {
        let mut file = [0; SIZE];
        put(&mut file, offset_of!(Limits, magic), &MAGIC.to_ne_bytes());
        put(&mut file, offset_of!(Limits, version), &VERSION.to_ne_bytes());
        put(&mut file, TERMS_OFFSET, &self.encode());
        file
    }

    /// The terms as they lie in the file at [`TERMS_OFFSET`].
    pub fn encode(&self) -> [u8; TERMS_SIZE] {
        const fn at(offset: usize) -> usize {
            offset - TERMS_OFFSET
        }
        let mut bytes = [0; TERMS_SIZE];
        put(&mut bytes, at(offset_of!(Limits, generation)), &self.generation.to_ne_bytes());
        put(&mut bytes, at(offset_of!(Limits, gpu)), &self.gpu);
        put(&mut bytes, at(offset_of!(Limits, memory_bytes)), &self.memory_bytes.to_ne_bytes());
        put(&mut bytes, at(offset_of!(Limits, context_bytes)), &self.context_bytes.to_ne_bytes());
        let compute = self.compute_milli_percent.to_ne_bytes();
        put(&mut bytes, at(offset_of!(Limits, compute_milli_percent)), &compute);
        put(&mut bytes, at(offset_of!(Limits, flags)), &self.flags.to_ne_bytes());
        bytes
    }

    /// Reads a copy of a file, for an agent that restarts. A file with [`Damage::Unfinished`] must
    /// be rewritten.
    pub fn decode(file: &[u8]) -> Result<Self, Damage> {
        if file.len() != SIZE {
            return Err(Damage::Size);
        }
        if u64_at(file, offset_of!(Limits, magic)) != MAGIC {
            return Err(Damage::Magic);
        }
        let version = u32_at(file, offset_of!(Limits, version));
        if version != VERSION {
            return Err(Damage::Version(version));
        }
        if !u32_at(file, SEQUENCE_OFFSET).is_multiple_of(2) {
            return Err(Damage::Unfinished);
        }
        let mut gpu = [0; 16];
        gpu.copy_from_slice(&file[offset_of!(Limits, gpu)..][..16]);
        Ok(Self {
            generation: u64_at(file, offset_of!(Limits, generation)),
            gpu,
            memory_bytes: u64_at(file, offset_of!(Limits, memory_bytes)),
            context_bytes: u64_at(file, offset_of!(Limits, context_bytes)),
            compute_milli_percent: u32_at(file, offset_of!(Limits, compute_milli_percent)),
            flags: u32_at(file, offset_of!(Limits, flags)),
        })
    }
}

fn put(file: &mut [u8], offset: usize, bytes: &[u8]) {
    file[offset..][..bytes.len()].copy_from_slice(bytes);
}

/// The number at an offset. The file must be long enough.
pub(crate) fn u64_at(file: &[u8], offset: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&file[offset..][..8]);
    u64::from_ne_bytes(bytes)
}

/// The number at an offset. The file must be long enough.
pub(crate) fn u32_at(file: &[u8], offset: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&file[offset..][..4]);
    u32::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests;
