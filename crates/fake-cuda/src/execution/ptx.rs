//! Kernels that compute: PTX is read ([`parse`]) and run on the processor ([`run`]).
//!
//! Only modules that ask for it by their first line are computed. All others take time and compute nothing, as programs of unknown
//! instructions must. A computed module may have the instructions below and no others: it is refused at its load otherwise.

pub(crate) mod parse;
pub(crate) mod run;

use std::collections::BTreeMap;
use std::sync::Arc;

/// First line of modules that are computed. For other drivers it is a comment.
pub(crate) const MARK: &str = "// octavo: computed by the simulated driver\n";

/// The kernels of a module by name.
pub(crate) type Kernels = BTreeMap<String, Arc<Program>>;

/// A kernel.
#[derive(Debug)]
pub(crate) struct Program {
    /// Bytes of each parameter.
    pub(crate) parameters: Vec<u64>,
    registers: usize,
    code: Vec<Instruction>,
}

/// An instruction.
#[derive(Debug)]
struct Instruction {
    /// A predicate, and the value with which the instruction is executed.
    guard: Option<(usize, bool)>,
    op: Op,
    /// Bytes of an operand: 4 or 8.
    bytes: u64,
    /// The register of its result.
    to: usize,
    from: [Operand; 3],
}

/// An operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operand {
    Register(usize),
    Value(u64),
    Special(Special),
}

/// Registers that tell a thread where it is; one dimension only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    Thread,
    Threads,
    Block,
    Blocks,
    Multiprocessor,
}

/// What an instruction does. Registers hold 64 bits; a type of 32 bits uses the lower half and clears the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    /// `mov`, `cvt` between unsigned numbers, `cvta`.
    Move,
    Add,
    Subtract,
    /// `mul.lo`.
    Multiply,
    /// `mul.wide.u32`.
    MultiplyWide,
    /// `mad.lo`.
    MultiplyAdd,
    /// `fma.rn.f32`.
    Fused,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    IsEqual,
    IsUnequal,
    IsLess,
    IsGreaterOrEqual,
    Select,
    /// `ld.param`, by the parameter's number.
    Parameter(usize),
    /// `ld.global`, with a distance from the address.
    Load(u64),
    /// `st.global`.
    Store(u64),
    /// `atom.global.add`.
    AtomicAdd(u64),
    /// `bra`, to the number of an instruction.
    Branch(usize),
    Return,
}
