//! The memory image of a library, and the tables in it.

use object::LittleEndian as LE;
use object::elf;
use object::read::ReadRef;
use object::read::elf::{GnuHashTable, HashTable};

use super::{Version, damaged};
use crate::error::ProxyError;

/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 512;

/// Maximum size of a table, in bytes. Those of drivers have some hundred KiB.
const MAX_TABLE_BYTES: u64 = 16 << 20;

/// Bytes that are read of the dynamic section, and of tables whose size is written nowhere: hash tables, versions.
const MAX_UNSIZED_BYTES: u64 = 1 << 20;

/// A file as it lies in memory when it is loaded.
pub(super) struct LoadedImage<'a, R> {
    pub(super) file: R,
    pub(super) segments: &'a [elf::ProgramHeader64<LE>],
}

impl<'a, R: ReadRef<'a>> LoadedImage<'a, R> {
    /// Whether the file contains all loadable segments.
    pub(super) fn is_whole(&self) -> bool {
        let length = self.file.len().unwrap_or(0);
        self.segments.iter().filter(|segment| segment.p_type.get(LE) == elf::PT_LOAD).all(
            |segment| {
                let end = segment.p_offset.get(LE).checked_add(segment.p_filesz.get(LE));
                end.is_some_and(|end| end <= length)
            },
        )
    }

    /// The bytes from an address to the end of its segment in the file, `limit` at most.
    fn at(&self, address: u64, limit: u64) -> Option<&'a [u8]> {
        self.segments.iter().filter(|segment| segment.p_type.get(LE) == elf::PT_LOAD).find_map(
            |segment| {
                let into = address.checked_sub(segment.p_vaddr.get(LE))?;
                let rest = segment.p_filesz.get(LE).checked_sub(into).filter(|rest| *rest > 0)?;
                let start = segment.p_offset.get(LE).checked_add(into)?;
                self.file.read_bytes_at(start, rest.min(limit).min(MAX_TABLE_BYTES)).ok()
            },
        )
    }

    /// The defined versions, each with its first name; further names are those of its parents.
    pub(super) fn versions(&self, dynamic: &Dynamic<'a>) -> Result<Vec<Version<'a>>, ProxyError> {
        let wrong = || damaged("the versions that it defines lie outside of it");
        let Some(address) = dynamic.value(elf::DT_VERDEF) else { return Ok(Vec::new()) };
        let table = self.at(address, MAX_UNSIZED_BYTES).ok_or_else(wrong)?;
        // Bounded by the number of possible indices, so that a cyclic list ends as well.
        let count = dynamic.value(elf::DT_VERDEFNUM).unwrap_or(0).min(0x7fff);
        let mut versions = Vec::new();
        let mut offset = 0_u64;
        for _ in 0..count {
            let version: &elf::Verdef<LE> = table.read_at(offset).map_err(|()| wrong())?;
            let aux = offset.checked_add(version.vd_aux.get(LE).into()).ok_or_else(wrong)?;
            let aux: &elf::Verdaux<LE> = table.read_at(aux).map_err(|()| wrong())?;
            versions.push(Version {
                name: dynamic.string(aux.vda_name.get(LE).into())?,
                index: version.vd_ndx.get(LE).0,
                flags: version.vd_flags.get(LE),
            });
            let next = u64::from(version.vd_next.get(LE));
            if next == 0 {
                break;
            }
            offset = offset.checked_add(next).ok_or_else(wrong)?;
        }
        Ok(versions)
    }
}

/// The dynamic section.
pub(super) struct Dynamic<'a> {
    entries: &'a [elf::Dyn64<LE>],
    strings: &'a [u8],
}

impl<'a> Dynamic<'a> {
    pub(super) fn read<R: ReadRef<'a>>(memory: &LoadedImage<'a, R>) -> Result<Self, ProxyError> {
        let is_dynamic =
            |segment: &&elf::ProgramHeader64<LE>| segment.p_type.get(LE) == elf::PT_DYNAMIC;
        let segment = memory.segments.iter().find(is_dynamic);
        let segment = segment.ok_or(ProxyError::NotShared { found: "statically linked" })?;
        let wrong = || damaged("its dynamic section lies outside of it");
        let size = segment.p_filesz.get(LE).min(MAX_UNSIZED_BYTES);
        let size = usize::try_from(size).map_err(|_| wrong())?;
        let entries: &[elf::Dyn64<LE>] = memory
            .file
            .read_slice_at(segment.p_offset.get(LE), size / size_of::<elf::Dyn64<LE>>())
            .map_err(|()| wrong())?;
        let end = entries.iter().position(|entry| entry.d_tag.get(LE) == elf::DT_NULL);
        let mut dynamic = Self { entries: &entries[..end.unwrap_or(entries.len())], strings: &[] };
        let wrong = || damaged("the names of its symbols lie outside of it");
        if let Some(address) = dynamic.value(elf::DT_STRTAB) {
            let size = dynamic.value(elf::DT_STRSZ).ok_or_else(wrong)?;
            let strings = memory.at(address, size).ok_or_else(wrong)?;
            dynamic.strings =
                Some(strings).filter(|it| it.len() as u64 == size).ok_or_else(wrong)?;
        }
        Ok(dynamic)
    }

    fn values(&self, tag: elf::DynamicTag) -> impl Iterator<Item = u64> {
        let entries = self.entries.iter().filter(move |entry| entry.d_tag.get(LE) == tag);
        entries.map(|entry| entry.d_val.get(LE))
    }

    fn value(&self, tag: elf::DynamicTag) -> Option<u64> {
        self.values(tag).next()
    }

    fn string(&self, offset: u64) -> Result<&'a [u8], ProxyError> {
        self.name(offset)?.ok_or_else(|| damaged("the name of a library or a version is too long"))
    }

    /// The name at an offset; `None` if it is longer than names of C functions.
    pub(super) fn name(&self, offset: u64) -> Result<Option<&'a [u8]>, ProxyError> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.strings.get(offset..));
        let rest = rest.ok_or_else(|| damaged("a name lies outside of its names"))?;
        match rest.iter().take(MAX_NAME_BYTES).position(|byte| *byte == 0) {
            Some(end) => Ok(Some(&rest[..end])),
            None if rest.len() > MAX_NAME_BYTES => Ok(None),
            None => Err(damaged("a name does not end")),
        }
    }

    pub(super) fn soname(&self) -> Result<Option<&'a [u8]>, ProxyError> {
        self.value(elf::DT_SONAME).map(|offset| self.string(offset)).transpose()
    }

    pub(super) fn needed(&self) -> Result<Vec<&'a [u8]>, ProxyError> {
        self.values(elf::DT_NEEDED).map(|offset| self.string(offset)).collect()
    }
}

/// The symbol table, as far as the hash tables cover it, and the versions of its symbols.
pub(super) struct Symbols<'a> {
    pub(super) table: &'a [elf::Sym64<LE>],
    pub(super) versions: &'a [elf::Versym<LE>],
}

impl<'a> Symbols<'a> {
    pub(super) fn read<R: ReadRef<'a>>(
        memory: &LoadedImage<'a, R>,
        dynamic: &Dynamic<'a>,
    ) -> Result<Self, ProxyError> {
        let wrong = || damaged("its symbols lie outside of it");
        let Some(address) = dynamic.value(elf::DT_SYMTAB) else {
            return Ok(Self { table: &[], versions: &[] });
        };
        let count =
            Self::count(memory, dynamic).ok_or_else(|| damaged("its hash table is wrong"))?;
        let bytes = |size: usize| (count as u64).saturating_mul(size as u64);
        let table = memory.at(address, bytes(size_of::<elf::Sym64<LE>>())).ok_or_else(wrong)?;
        let table = table.read_slice_at(0, count).map_err(|()| wrong())?;
        let versions = match dynamic.value(elf::DT_VERSYM) {
            Some(address) => {
                let size = size_of::<elf::Versym<LE>>();
                let versions = memory.at(address, bytes(size)).ok_or_else(wrong)?;
                versions.read_slice_at(0, count).map_err(|()| wrong())?
            }
            None => &[],
        };
        Ok(Self { table, versions })
    }

    /// Number of symbols, which only the hash tables tell. A GNU hash table without exports does
    /// not tell it.
    fn count<R: ReadRef<'a>>(memory: &LoadedImage<'a, R>, dynamic: &Dynamic<'a>) -> Option<usize> {
        type Header = elf::FileHeader64<LE>;
        let plain = match dynamic.value(elf::DT_HASH) {
            Some(address) => {
                let table =
                    HashTable::<Header>::parse(LE, memory.at(address, MAX_UNSIZED_BYTES)?).ok()?;
                Some(table.symbol_table_length())
            }
            None => None,
        };
        let gnu = match dynamic.value(elf::DT_GNU_HASH) {
            Some(address) => {
                let table =
                    GnuHashTable::<Header>::parse(LE, memory.at(address, MAX_UNSIZED_BYTES)?)
                        .ok()?;
                table.symbol_table_length(LE)
            }
            None => None,
        };
        usize::try_from(plain.or(gnu).unwrap_or(0)).ok()
    }
}
