//! Processor architectures, and their stub code.

use object::elf;

/// A supported architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Architecture {
    X86_64,
    Aarch64,
}

/// Size of a hook's stub.
pub(crate) const HOOK_STUB_BYTES: usize = 16;

/// Size of an unknown name's stub.
pub(crate) const UNKNOWN_STUB_BYTES: usize = 32;

/// Size of the trap.
pub(crate) const TRAP_BYTES: usize = 16;

/// `endbr64`: a valid jump target under control-flow enforcement.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// `bti c`: the same on arm64.
const BTI_C: u32 = 0xd503_245f;

/// Scratch registers on arm64, reserved for the dynamic linker.
const X16: u32 = 16;
const X17: u32 = 17;

impl Architecture {
    /// The architecture of an ELF header.
    pub(crate) fn of(machine: elf::Machine) -> Option<Self> {
        match machine {
            elf::EM_X86_64 => Some(Self::X86_64),
            elf::EM_AARCH64 => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// Its number in an ELF header.
    pub(crate) fn number(self) -> elf::Machine {
        match self {
            Self::X86_64 => elf::EM_X86_64,
            Self::Aarch64 => elf::EM_AARCH64,
        }
    }

    /// Largest page size of its kernels, in bytes: segments are aligned to it.
    pub(crate) fn page(self) -> usize {
        match self {
            Self::X86_64 => 0x1000,
            Self::Aarch64 => 0x1_0000,
        }
    }

    /// Relocation for the address of a symbol.
    pub(crate) fn symbol_relocation(self) -> elf::RelocationType {
        match self {
            Self::X86_64 => elf::R_X86_64_GLOB_DAT,
            Self::Aarch64 => elf::R_AARCH64_GLOB_DAT,
        }
    }

    /// Relocation for an address in the library itself.
    pub(crate) fn own_relocation(self) -> elf::RelocationType {
        match self {
            Self::X86_64 => elf::R_X86_64_RELATIVE,
            Self::Aarch64 => elf::R_AARCH64_RELATIVE,
        }
    }

    /// Code at address `at` that jumps to the target in a slot.
    pub(crate) fn hook_stub(self, at: usize, slot: usize) -> [u8; HOOK_STUB_BYTES] {
        let mut code = Code::new(self, at);
        match self {
            Self::X86_64 => {
                code.put(&ENDBR64);
                code.jump_by(slot);
            }
            Self::Aarch64 => {
                code.instruction(BTI_C);
                code.page_of(X16, slot);
                code.load(X17, X16, slot);
                code.branch(X17);
            }
        }
        code.padded()
    }

    /// Code at address `at` that loads the address of a record and jumps to the target in a slot.
    pub(crate) fn unknown_stub(
        self,
        at: usize,
        record: usize,
        slot: usize,
    ) -> [u8; UNKNOWN_STUB_BYTES] {
        let mut code = Code::new(self, at);
        match self {
            Self::X86_64 => {
                code.put(&ENDBR64);
                // lea record(%rip), %r11
                code.put(&[0x4c, 0x8d, 0x1d]);
                code.distance(record);
                code.jump_by(slot);
            }
            Self::Aarch64 => {
                code.instruction(BTI_C);
                code.page_of(X16, record);
                code.add(X16, X16, record);
                code.page_of(X17, slot);
                code.load(X17, X17, slot);
                code.branch(X17);
            }
        }
        code.padded()
    }

    /// Code that ends the program.
    pub(crate) fn trap(self) -> [u8; TRAP_BYTES] {
        let mut code = Code::new(self, 0);
        match self {
            Self::X86_64 => code.put(&[0x0f, 0x0b]),
            // udf
            Self::Aarch64 => code.instruction(0),
        }
        code.padded()
    }
}

/// Code that is being assembled at an address.
struct Code {
    machine: Architecture,
    at: usize,
    bytes: Vec<u8>,
}

impl Code {
    fn new(machine: Architecture, at: usize) -> Self {
        Self { machine, at, bytes: Vec::with_capacity(UNKNOWN_STUB_BYTES) }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn instruction(&mut self, code: u32) {
        self.put(&code.to_le_bytes());
    }

    /// Fills the remaining bytes with traps.
    fn padded<const SIZE: usize>(self) -> [u8; SIZE] {
        let fill = match self.machine {
            Architecture::X86_64 => 0xcc,
            Architecture::Aarch64 => 0,
        };
        let mut code = [fill; SIZE];
        code[..self.bytes.len()].copy_from_slice(&self.bytes);
        code
    }

    /// x86-64: `jmp *target(%rip)`.
    fn jump_by(&mut self, target: usize) {
        self.put(&[0xff, 0x25]);
        self.distance(target);
    }

    /// x86-64: the last four bytes of an instruction, relative to its end.
    #[allow(clippy::cast_possible_truncation, reason = "a proxy is far smaller than 2 GiB")]
    fn distance(&mut self, target: usize) {
        let end = self.at + self.bytes.len() + 4;
        // A backward distance wraps, as in the processor's addition.
        let distance = target.wrapping_sub(end) as u32;
        self.put(&distance.to_le_bytes());
    }

    /// arm64: `adrp register, target`.
    #[allow(clippy::cast_possible_truncation, reason = "a proxy is far smaller than 4 GiB")]
    fn page_of(&mut self, register: u32, target: usize) {
        let here = self.at + self.bytes.len();
        let pages = (target >> 12).wrapping_sub(here >> 12) as u32;
        self.instruction(0x9000_0000 | (pages & 3) << 29 | (pages >> 2 & 0x7_ffff) << 5 | register);
    }

    /// arm64: `add register, from, :lo12:target`.
    fn add(&mut self, register: u32, from: u32, target: usize) {
        self.instruction(0x9100_0000 | low(target) << 10 | from << 5 | register);
    }

    /// arm64: `ldr register, [from, :lo12:target]`, of eight bytes that are aligned.
    fn load(&mut self, register: u32, from: u32, target: usize) {
        self.instruction(0xf940_0000 | (low(target) >> 3) << 10 | from << 5 | register);
    }

    /// arm64: `br register`.
    fn branch(&mut self, register: u32) {
        self.instruction(0xd61f_0000 | register << 5);
    }
}

/// Offset of an address in its page of 4 KiB.
#[allow(clippy::cast_possible_truncation, reason = "twelve bits")]
fn low(address: usize) -> u32 {
    (address & 0xfff) as u32
}

#[cfg(test)]
mod tests;
