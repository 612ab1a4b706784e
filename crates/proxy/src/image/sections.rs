//! Section headers, for linkers and human readers: the dynamic linker reads none.

use std::ops::Range;

use object::LittleEndian as LE;
use object::elf;
use object::pod::bytes_of;

use super::{Layout, Parts};
use crate::strings::Strings;
use crate::symbols::{TEXT_SECTION, to_u32, u32_le, u64_le};

/// Position of the section headers.
#[derive(Debug)]
pub(super) struct SectionHeaders {
    pub(super) start: usize,
    pub(super) count: usize,
    /// Index of the section with their names.
    pub(super) names: usize,
}

/// A section.
struct Section {
    name: &'static str,
    kind: elf::SectionType,
    flags: elf::SectionFlags,
    place: Range<usize>,
    link: usize,
    info: usize,
    align: usize,
    entry: usize,
}

/// Indices of sections that others refer to.
const STRINGS: usize = TEXT_SECTION as usize + 1;
const SYMBOLS: usize = STRINGS + 1;

/// Writes the section headers at the end of a file.
pub(super) fn write(file: &mut Vec<u8>, parts: &Parts, layout: &Layout) -> SectionHeaders {
    let none = elf::SectionFlags(0);
    let section = |name, kind, flags, place: &Range<usize>| Section {
        name,
        kind,
        flags,
        place: place.clone(),
        link: 0,
        info: 0,
        align: 8,
        entry: 0,
    };
    let data = elf::SHF_ALLOC | elf::SHF_WRITE;
    let code = elf::SHF_ALLOC | elf::SHF_EXECINSTR;
    let mut sections = vec![
        Section { align: 0, ..section("", elf::SHT_NULL, none, &(0..0)) },
        Section { align: 32, ..section(".text", elf::SHT_PROGBITS, code, &layout.text) },
        Section {
            align: 1,
            ..section(".dynstr", elf::SHT_STRTAB, elf::SHF_ALLOC, &layout.strings)
        },
        Section {
            link: STRINGS,
            info: 1,
            entry: size_of::<elf::Sym64<LE>>(),
            ..section(".dynsym", elf::SHT_DYNSYM, none, &layout.linked_symbols)
        },
        Section {
            link: STRINGS,
            entry: size_of::<elf::Dyn64<LE>>(),
            ..section(".dynamic", elf::SHT_DYNAMIC, data, &layout.dynamic)
        },
        Section { entry: 8, ..section(".got", elf::SHT_PROGBITS, data, &layout.slots) },
        section(".data", elf::SHT_PROGBITS, data, &layout.records),
    ];
    if !parts.versions.is_empty() {
        sections.push(Section {
            link: SYMBOLS,
            align: 2,
            entry: 2,
            ..section(".gnu.version", elf::SHT_GNU_VERSYM, none, &layout.linked_versions)
        });
        sections.push(Section {
            link: STRINGS,
            info: parts.version_count,
            ..section(".gnu.version_d", elf::SHT_GNU_VERDEF, elf::SHF_ALLOC, &layout.versions)
        });
    }
    sections.push(Section { align: 1, ..section(".shstrtab", elf::SHT_STRTAB, none, &(0..0)) });
    let mut names = Strings::new();
    let offsets: Vec<u32> =
        sections.iter().map(|section| names.intern(section.name.as_bytes())).collect();
    if let Some(last) = sections.last_mut() {
        last.place = file.len()..file.len() + names.bytes().len();
    }
    file.extend_from_slice(names.bytes());
    file.resize(file.len().next_multiple_of(8), 0);
    let start = file.len();
    for (section, name) in sections.iter().zip(offsets) {
        let is_loaded = section.flags.contains(elf::SHF_ALLOC);
        file.extend_from_slice(bytes_of(&elf::SectionHeader64::<LE> {
            sh_name: u32_le(name),
            sh_type: object::U32::new(LE, section.kind),
            sh_flags: object::U64::new(LE, section.flags),
            sh_addr: u64_le(if is_loaded { section.place.start } else { 0 }),
            sh_offset: u64_le(section.place.start),
            sh_size: u64_le(section.place.len()),
            sh_link: u32_le(to_u32(section.link)),
            sh_info: u32_le(to_u32(section.info)),
            sh_addralign: u64_le(section.align),
            sh_entsize: u64_le(section.entry),
        }));
    }
    SectionHeaders { start, count: sections.len(), names: sections.len() - 1 }
}
