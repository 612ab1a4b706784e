//! The file of the proxy: its layout.
//!
//! ```text
//! read-only     headers, hash tables, symbols, strings, versions, relocations
//! executable    stubs, trap
//! writable      dynamic section, slots: read-only after binding; records
//! not loaded    symbols and versions for linkers, section headers
//! ```
//!
//! Addresses are offsets in the file.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

use object::LittleEndian as LE;
use object::elf;
use object::pod::bytes_of;

use crate::Plan;
use crate::architecture::Architecture;
use crate::driver::{Driver, Version};
use crate::strings::Strings;
use crate::stubs::{Addresses, RECORD_BYTES, SLOT_BYTES, Stubs};
use crate::symbols::{Table, to_u32, u32_le, u64_le, version_definitions};

mod sections;

/// Program headers: three loadable segments, the dynamic section, `PT_GNU_RELRO`, the stack.
const SEGMENTS: usize = 6;

/// Entries of the dynamic section, including three for versions and the last one.
const DYNAMIC_ENTRIES: usize = 20;

/// Positions of the parts in the file.
#[derive(Debug)]
struct Layout {
    gnu_hash: Range<usize>,
    sysv_hash: Range<usize>,
    symbols: Range<usize>,
    strings: Range<usize>,
    symbol_versions: Range<usize>,
    versions: Range<usize>,
    relocations: Range<usize>,
    text: Range<usize>,
    dynamic: Range<usize>,
    slots: Range<usize>,
    records: Range<usize>,
    linked_symbols: Range<usize>,
    linked_versions: Range<usize>,
}

/// The parts of the file that do not depend on their positions.
#[derive(Debug)]
struct Parts {
    loaded: Table,
    linked: Table,
    strings: Strings,
    versions: Vec<u8>,
    version_count: usize,
    soname: u32,
    guard: u32,
    real: u32,
}

/// Writes the proxy of a driver's library.
pub(crate) fn write(driver: &Driver<'_>, stubs: &Stubs<'_>, plan: &Plan<'_>) -> Vec<u8> {
    let parts = Parts::new(driver, stubs, plan);
    let layout = Layout::new(&parts, stubs, driver.machine);
    let addresses = Addresses {
        text: layout.text.start,
        slots: layout.slots.start,
        records: layout.records.start,
    };
    let mut file = Vec::new();
    let mut put = |range: &Range<usize>, bytes: &[u8]| {
        debug_assert_eq!(range.len(), bytes.len());
        file.resize(file.len().max(range.end), 0);
        file[range.clone()].copy_from_slice(bytes);
    };
    put(&layout.gnu_hash, &parts.loaded.gnu_hash());
    put(&layout.sysv_hash, &parts.loaded.sysv_hash());
    put(&layout.symbols, &parts.loaded.bytes(addresses));
    put(&layout.strings, parts.strings.bytes());
    if !parts.versions.is_empty() {
        put(&layout.symbol_versions, &parts.loaded.versions());
        put(&layout.versions, &parts.versions);
        put(&layout.linked_versions, &parts.linked.versions());
    }
    put(&layout.relocations, &relocations(driver.machine, stubs, &parts, &layout));
    put(&layout.text, &stubs.text(driver.machine, addresses));
    put(&layout.dynamic, &dynamic(stubs, &parts, &layout));
    put(&layout.slots, &vec![0; layout.slots.len()]);
    put(&layout.records, &records(stubs));
    put(&layout.linked_symbols, &parts.linked.bytes(addresses));
    let sections = sections::write(&mut file, &parts, &layout);
    let header = header(driver.machine, &sections);
    file[..size_of_val(&header)].copy_from_slice(bytes_of(&header));
    for (index, segment) in segments(driver.machine, &layout).iter().enumerate() {
        let range = size_of_val(&header) + index * size_of_val(segment);
        file[range..][..size_of_val(segment)].copy_from_slice(bytes_of(segment));
    }
    file
}

impl Parts {
    fn new(driver: &Driver<'_>, stubs: &Stubs<'_>, plan: &Plan<'_>) -> Self {
        let mut strings = Strings::new();
        let soname = strings.intern(plan.soname.as_bytes());
        let guard = strings.intern(plan.guard.as_os_str().as_bytes());
        let real = strings.intern(plan.real.as_os_str().as_bytes());
        let loaded = Table::loaded(driver, stubs, &mut strings);
        let linked = Table::linked(driver, stubs, &mut strings);
        let mut defined = driver.versions.clone();
        let has_base = defined.iter().any(|it| it.flags.contains(elf::VER_FLG_BASE));
        if !defined.is_empty() && !has_base {
            let index = elf::VER_NDX_GLOBAL.0;
            let base = Version { name: plan.soname.as_bytes(), index, flags: elf::VER_FLG_BASE };
            defined.insert(0, base);
        }
        let versions = version_definitions(&defined, plan.soname.as_bytes(), &mut strings);
        let version_count = defined.len();
        Self { loaded, linked, strings, versions, version_count, soname, guard, real }
    }
}

impl Layout {
    fn new(parts: &Parts, stubs: &Stubs<'_>, machine: Architecture) -> Self {
        let page = machine.page();
        let versioned = |table: &Table| if parts.versions.is_empty() { 0 } else { table.len() * 2 };
        let mut end =
            size_of::<elf::FileHeader64<LE>>() + SEGMENTS * size_of::<elf::ProgramHeader64<LE>>();
        let mut next = |align: usize, size: usize| {
            let start = end.next_multiple_of(align);
            end = start + size;
            start..end
        };
        let symbol = size_of::<elf::Sym64<LE>>();
        let relocation = size_of::<elf::Rela64<LE>>();
        // In the order of the file.
        Self {
            gnu_hash: next(8, parts.loaded.gnu_hash().len()),
            sysv_hash: next(8, parts.loaded.sysv_hash().len()),
            symbols: next(8, parts.loaded.len() * symbol),
            strings: next(1, parts.strings.bytes().len()),
            symbol_versions: next(2, versioned(&parts.loaded)),
            versions: next(8, parts.versions.len()),
            relocations: next(8, (stubs.slots() + stubs.unknown.len()) * relocation),
            text: next(page, stubs.text_size()),
            dynamic: next(page, DYNAMIC_ENTRIES * size_of::<elf::Dyn64<LE>>()),
            slots: next(8, stubs.slots() * SLOT_BYTES),
            // Everything before the records becomes read-only, which applies to whole pages.
            records: next(page, stubs.unknown.len() * RECORD_BYTES),
            linked_symbols: next(8, parts.linked.len() * symbol),
            linked_versions: next(2, versioned(&parts.linked)),
        }
    }
}

/// Relocations: addresses of the names into the records, then targets of the stubs into the slots.
fn relocations(
    machine: Architecture,
    stubs: &Stubs<'_>,
    parts: &Parts,
    layout: &Layout,
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(layout.relocations.len());
    let mut put = |address: usize, symbol: usize, kind: elf::RelocationType, addend: usize| {
        bytes.extend_from_slice(bytes_of(&elf::Rela64::<LE> {
            r_offset: u64_le(address),
            r_info: elf::Rela64::r_info(LE, false, to_u32(symbol), kind),
            r_addend: object::I64::new(LE, i64::from(to_u32(addend))),
        }));
    };
    for (index, name) in stubs.unknown.iter().enumerate() {
        let name = layout.strings.start + parts.strings.offset_of(name);
        put(layout.records.start + index * RECORD_BYTES, 0, machine.own_relocation(), name);
    }
    // The undefined symbols come first, in the order of the slots.
    for slot in 0..stubs.slots() {
        put(layout.slots.start + slot * SLOT_BYTES, slot + 1, machine.symbol_relocation(), 0);
    }
    bytes
}

/// The records of the unknown names, without their addresses.
fn records(stubs: &Stubs<'_>) -> Vec<u8> {
    let record = |name: &&[u8]| [0, name.len() as u64, 0].map(u64::to_le_bytes).concat();
    stubs.unknown.iter().flat_map(record).collect()
}

fn dynamic(stubs: &Stubs<'_>, parts: &Parts, layout: &Layout) -> Vec<u8> {
    let mut entries = vec![
        (elf::DT_SONAME, parts.soname as usize),
        // The guard comes first: its functions must be found before the driver's.
        (elf::DT_NEEDED, parts.guard as usize),
        (elf::DT_NEEDED, parts.real as usize),
        (elf::DT_GNU_HASH, layout.gnu_hash.start),
        (elf::DT_HASH, layout.sysv_hash.start),
        (elf::DT_STRTAB, layout.strings.start),
        (elf::DT_STRSZ, layout.strings.len()),
        (elf::DT_SYMTAB, layout.symbols.start),
        (elf::DT_SYMENT, size_of::<elf::Sym64<LE>>()),
        (elf::DT_RELA, layout.relocations.start),
        (elf::DT_RELASZ, layout.relocations.len()),
        (elf::DT_RELAENT, size_of::<elf::Rela64<LE>>()),
        (elf::DT_RELACOUNT, stubs.unknown.len()),
        (elf::DT_FLAGS, flags(elf::DF_BIND_NOW.0)),
        // The guard has a thread in the process and counts memory, so it must not be unloaded
        // before the process ends.
        (elf::DT_FLAGS_1, flags((elf::DF_1_NOW | elf::DF_1_NODELETE).0)),
    ];
    if !parts.versions.is_empty() {
        entries.push((elf::DT_VERSYM, layout.symbol_versions.start));
        entries.push((elf::DT_VERDEF, layout.versions.start));
        entries.push((elf::DT_VERDEFNUM, parts.version_count));
    }
    entries.resize(DYNAMIC_ENTRIES, (elf::DT_NULL, 0));
    let mut bytes = Vec::with_capacity(layout.dynamic.len());
    for (tag, value) in entries {
        let entry = elf::Dyn64::<LE> { d_tag: object::I64::new(LE, tag), d_val: u64_le(value) };
        bytes.extend_from_slice(bytes_of(&entry));
    }
    bytes
}

#[allow(clippy::cast_possible_truncation, reason = "only the lowest bits are flags")]
fn flags(flags: u64) -> usize {
    flags as usize
}

fn header(machine: Architecture, sections: &sections::SectionHeaders) -> elf::FileHeader64<LE> {
    elf::FileHeader64 {
        e_ident: elf::Ident {
            magic: elf::ELFMAG,
            class: elf::ELFCLASS64,
            data: elf::ELFDATA2LSB,
            version: elf::EV_CURRENT,
            os_abi: elf::ELFOSABI_SYSV,
            abi_version: 0,
            padding: [0; 7],
        },
        e_type: object::U16::new(LE, elf::ET_DYN),
        e_machine: object::U16::new(LE, machine.number()),
        e_version: u32_le(u32::from(elf::EV_CURRENT.0)),
        e_entry: u64_le(0),
        e_phoff: u64_le(size_of::<elf::FileHeader64<LE>>()),
        e_shoff: u64_le(sections.start),
        e_flags: object::U32::new(LE, elf::FileFlags(0)),
        e_ehsize: u16_le(size_of::<elf::FileHeader64<LE>>()),
        e_phentsize: u16_le(size_of::<elf::ProgramHeader64<LE>>()),
        e_phnum: u16_le(SEGMENTS),
        e_shentsize: u16_le(size_of::<elf::SectionHeader64<LE>>()),
        e_shnum: u16_le(sections.count),
        e_shstrndx: object::U16::new(LE, elf::SymbolSection::new(to_u32(sections.names))),
    }
}

fn segments(machine: Architecture, layout: &Layout) -> [elf::ProgramHeader64<LE>; SEGMENTS] {
    let page = machine.page();
    let segment = |kind, flags, range: Range<usize>, align| elf::ProgramHeader64::<LE> {
        p_type: object::U32::new(LE, kind),
        p_flags: object::U32::new(LE, flags),
        p_offset: u64_le(range.start),
        p_vaddr: u64_le(range.start),
        p_paddr: u64_le(range.start),
        p_filesz: u64_le(range.len()),
        p_memsz: u64_le(range.len()),
        p_align: u64_le(align),
    };
    let (read, write) = (elf::PF_R, elf::PF_R | elf::PF_W);
    let code = elf::PF_R | elf::PF_X;
    let bound = layout.dynamic.start..layout.records.start;
    let writable = layout.dynamic.start..layout.records.end;
    [
        segment(elf::PT_LOAD, read, 0..layout.relocations.end, page),
        segment(elf::PT_LOAD, code, layout.text.clone(), page),
        segment(elf::PT_LOAD, write, writable, page),
        segment(elf::PT_DYNAMIC, write, layout.dynamic.clone(), 8),
        segment(elf::PT_GNU_RELRO, read, bound, 1),
        segment(elf::PT_GNU_STACK, write, 0..0, 16),
    ]
}

#[allow(clippy::cast_possible_truncation, reason = "sizes and numbers of headers")]
fn u16_le(number: usize) -> object::U16<LE> {
    object::U16::new(LE, number as u16)
}
