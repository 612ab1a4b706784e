//! Symbol tables, the hash tables over them, and versions.

use object::LittleEndian as LE;
use object::elf;
use object::pod::bytes_of;

use crate::architecture::TRAP_BYTES;
use crate::driver::{Driver, ExportKind, Version};
use crate::strings::Strings;
use crate::stubs::{Addresses, Stubs};
use crate::{HOOK_PREFIX, UNKNOWN_ENTRY};

/// A symbol of the proxy.
#[derive(Clone, Debug)]
struct Symbol {
    name: Vec<u8>,
    name_offset: u32,
    version: u16,
    /// `None` if the symbol is undefined.
    value: Option<Value>,
}

/// Code of a defined symbol.
#[derive(Clone, Copy, Debug)]
struct Value {
    /// Its offset in the code.
    offset: usize,
    size: usize,
}

/// A symbol table.
#[derive(Debug)]
pub(crate) struct Table {
    symbols: Vec<Symbol>,
    /// Index of the first defined symbol; the GNU hash table starts there. The unnamed first symbol
    /// of each table counts.
    first_defined: usize,
    buckets: usize,
}

/// Begin of the names of functions for debuggers.
const OF_DEBUGGERS: &[u8] = b"cudbg";

/// Index of the section with the code.
pub(crate) const TEXT_SECTION: u16 = 1;

impl Table {
    /// The symbols for the dynamic linker: targets of the stubs, and the stubs.
    pub(crate) fn loaded(driver: &Driver<'_>, stubs: &Stubs<'_>, strings: &mut Strings) -> Self {
        let mut imports = Vec::with_capacity(stubs.slots());
        for hook in &stubs.hooks {
            imports.push([HOOK_PREFIX.as_bytes(), hook].concat());
        }
        if !stubs.unknown.is_empty() {
            imports.push(UNKNOWN_ENTRY.as_bytes().to_vec());
        }
        let mut symbols: Vec<Symbol> = imports
            .into_iter()
            .map(|name| Symbol {
                name_offset: strings.intern(&name),
                name,
                version: elf::VER_NDX_GLOBAL.0,
                value: None,
            })
            .collect();
        let first_defined = symbols.len() + 1;
        for export in &driver.exports {
            let Some((offset, size)) = stubs.stub(export.name) else { continue };
            if export.kind == ExportKind::Function {
                symbols.push(Symbol {
                    name: export.name.to_vec(),
                    name_offset: strings.intern(export.name),
                    version: export.version,
                    value: Some(Value { offset, size }),
                });
            }
        }
        let buckets = (symbols.len() + 1 - first_defined).div_ceil(2).max(1);
        // Symbols of a bucket are adjacent, as the hash table requires.
        symbols[first_defined - 1..]
            .sort_by_key(|it| (bucket(elf::gnu_hash(&it.name), buckets), it.name_offset));
        Self { symbols, first_defined, buckets }
    }

    /// The symbols for linkers: all functions of the driver. Its data cannot be linked through the
    /// proxy (neither CUDA nor NVML has any): linkers treat symbols of one address as one object
    /// and copy it.
    ///
    /// What debuggers look up and call (`cudbg...`) is left out: they would call the trap. They find it in the driver, with its data.
    pub(crate) fn linked(driver: &Driver<'_>, stubs: &Stubs<'_>, strings: &mut Strings) -> Self {
        let functions = driver.exports.iter().filter(|export| {
            export.kind == ExportKind::Function && !export.name.starts_with(OF_DEBUGGERS)
        });
        let symbols = functions.map(|export| {
            let (offset, size) = stubs.stub(export.name).unwrap_or((stubs.trap(), TRAP_BYTES));
            Symbol {
                name: export.name.to_vec(),
                name_offset: strings.intern(export.name),
                version: export.version,
                value: Some(Value { offset, size }),
            }
        });
        Self { symbols: symbols.collect(), first_defined: 1, buckets: 1 }
    }

    /// Number of symbols, including the unnamed one.
    pub(crate) fn len(&self) -> usize {
        self.symbols.len() + 1
    }

    /// The bytes of the table.
    pub(crate) fn bytes(&self, addresses: Addresses) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<elf::Sym64<LE>>()];
        for symbol in &self.symbols {
            let mut entry = elf::Sym64::<LE> {
                st_name: u32_le(symbol.name_offset),
                st_info: elf::SymbolInfo(0),
                st_other: elf::SymbolOther(0),
                st_shndx: elf::SHN_UNDEF.into_file(),
                st_value: u64_le(0),
                st_size: u64_le(0),
            };
            entry.set_st_info(elf::STB_GLOBAL, elf::STT_NOTYPE);
            if let Some(value) = symbol.value {
                entry.set_st_info(elf::STB_GLOBAL, elf::STT_FUNC);
                entry.st_shndx = elf::SymbolSection(TEXT_SECTION).into_file();
                entry.st_value = u64_le(addresses.text + value.offset);
                entry.st_size = u64_le(value.size);
            }
            bytes.extend_from_slice(bytes_of(&entry));
        }
        bytes
    }

    /// The version of each symbol.
    pub(crate) fn versions(&self) -> Vec<u8> {
        let none = [elf::VER_NDX_LOCAL.0];
        let all = none.into_iter().chain(self.symbols.iter().map(|symbol| symbol.version));
        all.flat_map(u16::to_le_bytes).collect()
    }

    /// The GNU hash table: header, a Bloom filter with one word for every four names, buckets,
    /// hashes. The last hash of a bucket is odd, the others are even.
    pub(crate) fn gnu_hash(&self) -> Vec<u8> {
        /// Shift of the second Bloom filter bit.
        const SHIFT: u32 = 6;
        let defined = &self.symbols[self.first_defined - 1..];
        let hashes: Vec<u32> = defined.iter().map(|symbol| elf::gnu_hash(&symbol.name)).collect();
        let mut filter = vec![0_u64; defined.len().div_ceil(4).next_power_of_two()];
        let mut starts = vec![0_u32; self.buckets];
        let mut chain = Vec::with_capacity(defined.len());
        for (index, hash) in hashes.iter().enumerate() {
            let words = filter.len();
            filter[(*hash as usize / 64) % words] |= 1 << (hash % 64) | 1 << ((hash >> SHIFT) % 64);
            let bucket = bucket(*hash, self.buckets);
            if starts[bucket] == 0 {
                starts[bucket] = to_u32(self.first_defined + index);
            }
            let next = hashes.get(index + 1).map(|next| self::bucket(*next, self.buckets));
            chain.push(hash & !1 | u32::from(next != Some(bucket)));
        }
        let mut bytes = Vec::new();
        for number in
            [to_u32(self.buckets), to_u32(self.first_defined), to_u32(filter.len()), SHIFT]
        {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(filter.iter().flat_map(|u32_le| u32_le.to_le_bytes()));
        bytes.extend(starts.iter().chain(&chain).flat_map(|u32_le| u32_le.to_le_bytes()));
        bytes
    }

    /// The System V hash table, for linkers without support of the GNU one: buckets and chains over
    /// all symbols.
    pub(crate) fn sysv_hash(&self) -> Vec<u8> {
        let mut starts = vec![0_u32; self.buckets];
        let mut chain = vec![0_u32; self.len()];
        for (index, symbol) in self.symbols.iter().enumerate() {
            let bucket = bucket(elf::hash(&symbol.name), self.buckets);
            chain[index + 1] = starts[bucket];
            starts[bucket] = to_u32(index + 1);
        }
        let header = [to_u32(self.buckets), to_u32(self.len())];
        header.iter().chain(&starts).chain(&chain).flat_map(|u32_le| u32_le.to_le_bytes()).collect()
    }
}

/// The version definitions of a library: the driver's, and the required one with the library's
/// name.
pub(crate) fn version_definitions(
    versions: &[Version<'_>],
    soname: &[u8],
    strings: &mut Strings,
) -> Vec<u8> {
    const SIZE: usize = size_of::<elf::Verdef<LE>>();
    const AUX: usize = size_of::<elf::Verdaux<LE>>();
    let mut bytes = Vec::with_capacity(versions.len() * (SIZE + AUX));
    for (number, version) in versions.iter().enumerate() {
        let is_last = number + 1 == versions.len();
        let is_base = version.flags.contains(elf::VER_FLG_BASE);
        let name = if is_base { soname } else { version.name };
        bytes.extend_from_slice(bytes_of(&elf::Verdef::<LE> {
            vd_version: object::U16::new(LE, elf::VER_DEF_CURRENT),
            vd_flags: object::U16::new(LE, version.flags),
            vd_ndx: object::U16::new(LE, elf::VersionIndex(version.index)),
            vd_cnt: object::U16::new(LE, 1),
            vd_hash: u32_le(elf::hash(name)),
            vd_aux: u32_le(to_u32(SIZE)),
            vd_next: u32_le(if is_last { 0 } else { to_u32(SIZE + AUX) }),
        }));
        bytes.extend_from_slice(bytes_of(&elf::Verdaux::<LE> {
            vda_name: u32_le(strings.intern(name)),
            vda_next: u32_le(0),
        }));
    }
    bytes
}

fn bucket(hash: u32, buckets: usize) -> usize {
    hash as usize % buckets
}

/// Converts a count; all counts of a proxy are small.
#[allow(clippy::cast_possible_truncation, reason = "what a proxy is made of is bounded")]
pub(crate) fn to_u32(number: usize) -> u32 {
    number as u32
}

pub(crate) fn u32_le(number: u32) -> object::U32<LE> {
    object::U32::new(LE, number)
}

pub(crate) fn u64_le(number: usize) -> object::U64<LE> {
    object::U64::new(LE, number as u64)
}

/// Encoding of a section's index in a file.
trait IntoFile {
    fn into_file(self) -> object::U16<LE, elf::SymbolSection>;
}

impl IntoFile for elf::SymbolSection {
    fn into_file(self) -> object::U16<LE, elf::SymbolSection> {
        object::U16::new(LE, self)
    }
}
