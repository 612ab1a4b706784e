//! PTX as instructions.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Instruction, Kernels, Op, Operand, Program, Special};
use crate::code::Code;

/// The kernels of a module, or a refusal of what cannot be computed.
pub(crate) fn kernels(text: &str) -> Result<Kernels, Code> {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let text = lines.collect::<Vec<_>>().join("\n");
    let mut kernels = Kernels::new();
    let mut rest = text.as_str();
    while let Some((header, after)) = rest.split_once('{') {
        let (body, after) = after.split_once('}').ok_or(Code::INVALID_PTX)?;
        let (name, program) = kernel(header, body).ok_or(Code::INVALID_PTX)?;
        kernels.insert(name, Arc::new(program));
        rest = after;
    }
    if rest.trim().is_empty() { Ok(kernels) } else { Err(Code::INVALID_PTX) }
}

fn kernel(header: &str, body: &str) -> Option<(String, Program)> {
    let (name, parameters) = header.split_once(".entry")?.1.trim().split_once('(')?;
    let parameters = parameters.trim().strip_suffix(')')?;
    let mut parser = Parser::default();
    for parameter in parameters.split(',').filter(|parameter| !parameter.trim().is_empty()) {
        let words: Vec<&str> = parameter.split_whitespace().collect();
        let [".param", kind, name] = words[..] else { return None };
        parser.parameters.push((name, bytes_of(kind.strip_prefix('.')?)?));
    }
    let mut statements = body.split(';').peekable();
    while let Some(mut statement) = statements.next() {
        while let Some((label, after)) = statement.split_once(':') {
            parser.labels.insert(label.trim(), parser.code.len());
            statement = after;
        }
        let statement = statement.trim();
        if statement.is_empty() && statements.peek().is_none() {
            break;
        }
        if !statement.starts_with(".reg") {
            parser.instruction(statement)?;
        }
    }
    for (place, label) in &parser.branches {
        parser.code[*place].op = Op::Branch(*parser.labels.get(label)?);
    }
    // A kernel that runs past its last instruction is not defined.
    let ends = matches!(
        parser.code.last()?,
        Instruction { op: Op::Return | Op::Branch(_), guard: None, .. }
    );
    let parameters = parser.parameters.into_iter().map(|(_, bytes)| bytes).collect();
    let program = Program { parameters, registers: parser.registers.len(), code: parser.code };
    ends.then(|| (name.trim().to_owned(), program))
}

#[derive(Default)]
struct Parser<'a> {
    parameters: Vec<(&'a str, u64)>,
    registers: BTreeMap<&'a str, usize>,
    labels: BTreeMap<&'a str, usize>,
    /// Branches by the number of their instruction, with their labels.
    branches: Vec<(usize, &'a str)>,
    code: Vec<Instruction>,
}

impl<'a> Parser<'a> {
    /// Adds an instruction; `None` if it is not known.
    fn instruction(&mut self, mut text: &'a str) -> Option<()> {
        let mut guard = None;
        if let Some(guarded) = text.strip_prefix('@') {
            let (predicate, after) = guarded.split_once(char::is_whitespace)?;
            let (name, wanted) = match predicate.strip_prefix('!') {
                Some(name) => (name, false),
                None => (predicate, true),
            };
            guard = Some((self.register(name)?, wanted));
            text = after.trim_start();
        }
        let (name, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let operands: Vec<&str> =
            operands.split(',').map(str::trim).filter(|operand| !operand.is_empty()).collect();
        let parts: Vec<&str> = name.split('.').collect();
        let mut made =
            Instruction { guard, op: Op::Return, bytes: 8, to: 0, from: [Operand::Value(0); 3] };
        match (&parts[..], &operands[..]) {
            (["ret"], []) => {}
            (["bra"], [label]) => self.branches.push((self.code.len(), label)),
            (["ld", "param", kind], [to, name]) => {
                let name = name.strip_prefix('[')?.strip_suffix(']')?;
                let index = self.parameters.iter().position(|(known, _)| *known == name)?;
                (made.op, made.bytes, made.to) =
                    (Op::Parameter(index), bytes_of(kind)?, self.register(to)?);
            }
            (["ld", "global", kind], [to, address]) => {
                (made.bytes, made.to) = (bytes_of(kind)?, self.register(to)?);
                (made.from[0], made.op) =
                    self.address(address).map(|(at, by)| (at, Op::Load(by)))?;
            }
            (["st", "global", kind], [address, value]) => {
                (made.bytes, made.from[1]) = (bytes_of(kind)?, self.operand(value)?);
                (made.from[0], made.op) =
                    self.address(address).map(|(at, by)| (at, Op::Store(by)))?;
            }
            (["atom", "global", "add", kind], [to, address, value]) => {
                (made.bytes, made.to) = (unsigned(kind)?, self.register(to)?);
                made.from[1] = self.operand(value)?;
                (made.from[0], made.op) =
                    self.address(address).map(|(at, by)| (at, Op::AtomicAdd(by)))?;
            }
            (parts, [to, from @ ..]) => {
                let count;
                (made.op, made.bytes, count) = arithmetic(parts)?;
                made.to = self.register(to)?;
                if from.len() != count {
                    return None;
                }
                for (place, operand) in made.from.iter_mut().zip(from) {
                    *place = self.operand(operand)?;
                }
            }
            _ => return None,
        }
        self.code.push(made);
        Some(())
    }

    fn register(&mut self, name: &'a str) -> Option<usize> {
        let is_name = name.starts_with('%') && !name.contains('.') && name != "%smid";
        let next = self.registers.len();
        is_name.then(|| *self.registers.entry(name).or_insert(next))
    }

    fn operand(&mut self, text: &'a str) -> Option<Operand> {
        Some(match text {
            "%tid.x" => Operand::Special(Special::Thread),
            "%ntid.x" => Operand::Special(Special::Threads),
            "%ctaid.x" => Operand::Special(Special::Block),
            "%nctaid.x" => Operand::Special(Special::Blocks),
            "%smid" => Operand::Special(Special::Multiprocessor),
            _ if text.starts_with('%') => Operand::Register(self.register(text)?),
            _ => Operand::Value(number(text)?),
        })
    }

    /// `[%register]` or `[%register+distance]`.
    fn address(&mut self, text: &'a str) -> Option<(Operand, u64)> {
        let inner = text.strip_prefix('[')?.strip_suffix(']')?;
        let (register, distance) = inner.split_once('+').unwrap_or((inner, "0"));
        Some((Operand::Register(self.register(register.trim())?), number(distance.trim())?))
    }
}

/// Operation, bytes of an operand and number of operands of an instruction that computes from registers.
fn arithmetic(parts: &[&str]) -> Option<(Op, u64, usize)> {
    Some(match parts {
        ["mov", kind] => (Op::Move, bytes_of(kind)?, 1),
        // Of the narrower type.
        ["cvt", to, from] => (Op::Move, unsigned(to)?.min(unsigned(from)?), 1),
        ["cvta", "to", "global", "u64"] => (Op::Move, 8, 1),
        ["add", kind] => (Op::Add, unsigned(kind)?, 2),
        ["sub", kind] => (Op::Subtract, unsigned(kind)?, 2),
        ["mul", "lo", kind] => (Op::Multiply, unsigned(kind)?, 2),
        ["mul", "wide", "u32"] => (Op::MultiplyWide, 4, 2),
        ["mad", "lo", kind] => (Op::MultiplyAdd, unsigned(kind)?, 3),
        ["fma", "rn", "f32"] => (Op::Fused, 4, 3),
        ["and", kind] => (Op::And, bits(kind)?, 2),
        ["or", kind] => (Op::Or, bits(kind)?, 2),
        ["xor", kind] => (Op::Xor, bits(kind)?, 2),
        ["shl", kind] => (Op::ShiftLeft, bits(kind)?, 2),
        ["shr", kind] => (Op::ShiftRight, unsigned(kind)?, 2),
        ["setp", "eq", kind] => (Op::IsEqual, unsigned(kind)?, 2),
        ["setp", "ne", kind] => (Op::IsUnequal, unsigned(kind)?, 2),
        ["setp", "lt", kind] => (Op::IsLess, unsigned(kind)?, 2),
        ["setp", "ge", kind] => (Op::IsGreaterOrEqual, unsigned(kind)?, 2),
        ["selp", kind] => (Op::Select, bits(kind)?, 3),
        _ => return None,
    })
}

/// Bytes of any type that only moves.
fn bytes_of(kind: &str) -> Option<u64> {
    unsigned(kind).or_else(|| bits(kind)).or((kind == "f32").then_some(4))
}

fn unsigned(kind: &str) -> Option<u64> {
    [("u32", 4), ("u64", 8)].into_iter().find(|(name, _)| *name == kind).map(|(_, bytes)| bytes)
}

fn bits(kind: &str) -> Option<u64> {
    [("b32", 4), ("b64", 8)].into_iter().find(|(name, _)| *name == kind).map(|(_, bytes)| bytes)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
