//! The file, checked with another parser and against the specification.

use std::collections::BTreeMap;

use object::LittleEndian as LE;
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
use object::read::{Object, ObjectSymbol, ReadRef};
use proptest::prelude::*;

use super::*;

type Header = elf::FileHeader64<LE>;

/// A proxy's file as loaded by the dynamic linker.
struct Loaded<'a> {
    file: &'a [u8],
    dynamic: BTreeMap<i64, u64>,
}

impl<'a> Loaded<'a> {
    fn new(file: &'a [u8]) -> Self {
        let header = Header::parse(file).unwrap();
        let segments = header.program_headers(LE, file).unwrap();
        let dynamic = segments.iter().find_map(|it| it.dynamic(LE, file).unwrap()).unwrap();
        let dynamic = dynamic.iter().map(|it| (it.tag(LE).0, it.val(LE))).collect();
        Self { file, dynamic }
    }

    /// A table in the dynamic section, from its start. Addresses are offsets.
    fn table(&self, tag: elf::DynamicTag) -> &'a [u8] {
        &self.file[usize::try_from(self.dynamic[&tag.0]).unwrap()..]
    }

    fn symbol(&self, index: u32) -> &'a elf::Sym64<LE> {
        let table: &[elf::Sym64<LE>] =
            self.table(elf::DT_SYMTAB).read_slice_at(0, index as usize + 1).unwrap();
        &table[index as usize]
    }

    fn name(&self, index: u32) -> &'a [u8] {
        self.string(self.symbol(index).st_name.get(LE).into())
    }

    fn string(&self, place: u64) -> &'a [u8] {
        let string = &self.table(elf::DT_STRTAB)[usize::try_from(place).unwrap()..];
        &string[..string.iter().position(|byte| *byte == 0).unwrap()]
    }

    /// The symbol of a name in the GNU hash table, looked up like a linker does.
    fn by_gnu_hash(&self, name: &[u8]) -> Option<u32> {
        let table = self.table(elf::DT_GNU_HASH);
        let [buckets, first, words, shift] = [0, 4, 8, 12].map(|place| u32_le(table, place));
        let hash = elf::gnu_hash(name);
        let filter = 16 + (hash / 64 % words) as usize * 8;
        let filter = u64::from_le_bytes(table[filter..filter + 8].try_into().unwrap());
        if filter >> (hash % 64) & filter >> ((hash >> shift) % 64) & 1 == 0 {
            return None;
        }
        let starts = 16 + words as usize * 8;
        let mut index = u32_le(table, starts + (hash % buckets) as usize * 4);
        let chain = starts + buckets as usize * 4;
        while index != 0 {
            let found = u32_le(table, chain + (index - first) as usize * 4);
            if found | 1 == hash | 1 && self.name(index) == name {
                return Some(index);
            }
            index = if found & 1 == 0 { index + 1 } else { 0 };
        }
        None
    }

    /// The same in the System V hash table.
    fn by_plain_hash(&self, name: &[u8]) -> Option<u32> {
        let table = self.table(elf::DT_HASH);
        let buckets = u32_le(table, 0);
        let mut index = u32_le(table, 8 + (elf::hash(name) % buckets) as usize * 4);
        while index != 0 && self.name(index) != name {
            index = u32_le(table, 8 + (buckets + index) as usize * 4);
        }
        (index != 0).then_some(index)
    }

    /// Results of relocations, by address: the name of a symbol, or an address in the file.
    fn relocated(&self) -> BTreeMap<u64, Result<&'a [u8], i64>> {
        let to_u32 = self.dynamic[&elf::DT_RELASZ.0] / 24;
        let to_u32 = usize::try_from(to_u32).unwrap();
        let table: &[elf::Rela64<LE>] = self.table(elf::DT_RELA).read_slice_at(0, to_u32).unwrap();
        let put = table.iter().map(|it| {
            let symbol = it.r_sym(LE, false);
            let value = if symbol == 0 { Err(it.r_addend.get(LE)) } else { Ok(self.name(symbol)) };
            (it.r_offset.get(LE), value)
        });
        put.collect()
    }

    /// Target of an x86-64 instruction, given the address of its last four bytes.
    fn meant(&self, place: u64) -> u64 {
        let distance = u32_le(self.file, usize::try_from(place).unwrap()).cast_signed();
        (place + 4).wrapping_add_signed(distance.into())
    }
}

fn u32_le(bytes: &[u8], place: usize) -> u32 {
    u32::from_le_bytes(bytes[place..place + 4].try_into().unwrap())
}

#[test]
fn a_hook_leads_to_the_guards_function_of_its_name() {
    let proxy = proxy(&driver(), &["cuInit", "cuMemAlloc_v2"]).unwrap();
    let loaded = Loaded::new(&proxy.bytes);
    let relocated = loaded.relocated();
    for name in &proxy.hooked {
        let stub = loaded.symbol(loaded.by_gnu_hash(name.as_bytes()).unwrap()).st_value.get(LE);
        let expected = format!("octavo_hook_{name}");
        assert_eq!(relocated[&loaded.meant(stub + 6)], Ok(expected.as_bytes()));
    }
}

#[test]
fn an_unknown_name_passes_its_record_to_the_guards_entry() {
    let proxy = proxy(&driver(), &["cuInit"]).unwrap();
    assert_eq!(proxy.unknown.len(), 3);
    let loaded = Loaded::new(&proxy.bytes);
    let relocated = loaded.relocated();
    for name in &proxy.unknown {
        let stub = loaded.symbol(loaded.by_gnu_hash(name.as_bytes()).unwrap()).st_value.get(LE);
        assert_eq!(relocated[&loaded.meant(stub + 13)], Ok(&b"octavo_unknown_entry"[..]));
        let record = loaded.meant(stub + 7);
        let text = usize::try_from(relocated[&record].unwrap_err()).unwrap();
        assert_eq!(&proxy.bytes[text..text + name.len()], name.as_bytes());
        assert_eq!(proxy.bytes[text + name.len()], 0, "for those who want a zero");
        let words: &[u8] = &proxy.bytes[usize::try_from(record).unwrap()..][..24];
        assert_eq!(words[8..16], (name.len() as u64).to_le_bytes());
        assert_eq!(words[16..24], [0; 8]);
    }
}

#[test]
fn relative_relocations_come_first_and_match_their_count() {
    let proxy = proxy(&driver(), &["cuInit"]).unwrap();
    let loaded = Loaded::new(&proxy.bytes);
    let own = usize::try_from(loaded.dynamic[&elf::DT_RELACOUNT.0]).unwrap();
    let to_u32 = usize::try_from(loaded.dynamic[&elf::DT_RELASZ.0] / 24).unwrap();
    let table: &[elf::Rela64<LE>] = loaded.table(elf::DT_RELA).read_slice_at(0, to_u32).unwrap();
    let kinds: Vec<_> = table.iter().map(|it| it.r_type(LE, false)).collect();
    assert!(kinds[..own].iter().all(|kind| *kind == elf::R_X86_64_RELATIVE));
    assert!(kinds[own..].iter().all(|kind| *kind == elf::R_X86_64_GLOB_DAT));
    assert_eq!((own, kinds.len()), (3, 5));
}

#[test]
fn a_reader_by_sections_sees_every_function_of_the_driver() {
    for machine in [Architecture::X86_64, Architecture::Aarch64] {
        let names = ["cuDeviceGetCount", "cuInit", "cuMemAllocNew"];
        let driver = library(machine, &names.map(|name| (name, 2)), &[("V", 2)]);
        let proxy = proxy(&driver, &["cuInit"]).unwrap();
        let file = ElfFile64::<LE>::parse(&*proxy.bytes).unwrap();
        let mut seen: Vec<_> = file.dynamic_symbols().map(|it| it.name().unwrap()).collect();
        seen.sort_unstable();
        assert_eq!(seen, names);
        assert!(file.dynamic_symbols().all(|it| it.is_definition() && it.is_global()));
        let header = file.elf_header();
        assert_eq!(header.e_machine.get(LE), machine.number());
        let versions = file.elf_section_table().versions(LE, &*proxy.bytes).unwrap().unwrap();
        let version = versions.version(elf::VersionIndex(2)).unwrap().unwrap();
        assert_eq!(version.name(), b"V");
        assert_eq!(header.e_type.get(LE), elf::ET_DYN);
    }
}

#[test]
fn no_segment_is_writable_and_executable() {
    for machine in [Architecture::X86_64, Architecture::Aarch64] {
        let functions = [("cuInit", 1), ("cuMemAllocNew", 1)];
        let proxy = proxy(&library(machine, &functions, &[]), &["cuInit"]).unwrap();
        let header = Header::parse(&*proxy.bytes).unwrap();
        let segments = header.program_headers(LE, &*proxy.bytes).unwrap();
        let page = machine.page() as u64;
        let mut end = 0;
        for segment in segments.iter().filter(|it| it.p_type.get(LE) == elf::PT_LOAD) {
            let (start, size) = (segment.p_vaddr.get(LE), segment.p_memsz.get(LE));
            assert_eq!(
                (start % page, segment.p_offset.get(LE), segment.p_align.get(LE)),
                (0, start, page)
            );
            assert!(start >= end && start + size <= proxy.bytes.len() as u64);
            let flags = segment.p_flags.get(LE);
            assert!(!(flags.contains(elf::PF_W) && flags.contains(elf::PF_X)));
            end = (start + size).next_multiple_of(page);
        }
        let bound = segments.iter().find(|it| it.p_type.get(LE) == elf::PT_GNU_RELRO).unwrap();
        assert_eq!((bound.p_vaddr.get(LE) + bound.p_memsz.get(LE)) % page, 0);
        let stack = segments.iter().find(|it| it.p_type.get(LE) == elf::PT_GNU_STACK).unwrap();
        assert!(!stack.p_flags.get(LE).contains(elf::PF_X));
    }
}

#[test]
fn guard_comes_before_driver() {
    let proxy = proxy(&driver(), &["cuInit"]).unwrap();
    let read = Driver::read(proxy.bytes.as_slice()).unwrap();
    assert_eq!(read.needed, [GUARD.as_bytes(), REAL.as_bytes()]);
    assert_eq!(read.soname, Some(SONAME.as_bytes()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_a_driver_exports_is_found_by_every_reader(
        names in prop::collection::btree_set("[a-zA-Z_][a-zA-Z0-9_]{0,40}", 1..120),
        others in prop::collection::btree_set("[a-zA-Z_][a-zA-Z0-9_]{0,40}", 0..20),
        versions in 0..4_u16,
        arm in any::<bool>(),
    ) {
        let machine = if arm { Architecture::Aarch64 } else { Architecture::X86_64 };
        let version = |index: usize| match versions {
            0 => 1,
            versions => 2 + u16::try_from(index).unwrap() % versions,
        };
        let functions: Vec<_> =
            names.iter().enumerate().map(|(index, name)| (name.as_str(), version(index))).collect();
        let defined = ["V1", "V2", "V3"].into_iter().zip(2..2 + versions).collect::<Vec<_>>();
        let bytes = library(machine, &functions, &defined);

        let read = Driver::read(bytes.as_slice()).unwrap();
        prop_assert_eq!(read.machine, machine);
        let exports: Vec<_> =
            read.exports.iter().map(|it| (str::from_utf8(it.name).unwrap(), it.version)).collect();
        prop_assert_eq!(exports, functions);
        let again: Vec<_> =
            read.versions.iter().skip(1).map(|it| (str::from_utf8(it.name).unwrap(), it.index)).collect();
        prop_assert_eq!(again, defined);

        let loaded = Loaded::new(&bytes);
        for name in &names {
            prop_assert!(loaded.by_gnu_hash(name.as_bytes()).is_some(), "{}", name);
            prop_assert!(loaded.by_plain_hash(name.as_bytes()).is_some(), "{}", name);
        }
        for name in others.difference(&names) {
            prop_assert_eq!(loaded.by_gnu_hash(name.as_bytes()), None);
            prop_assert_eq!(loaded.by_plain_hash(name.as_bytes()), None);
        }
    }
}
