//! A library in memory: its address and its tables.

use core::ptr;

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;

const NEEDED: u64 = 1;
const HASH: u64 = 4;
const STRINGS: u64 = 5;
const SYMBOLS: u64 = 6;
const STRINGS_SIZE: u64 = 10;
const GNU_HASH: u64 = 0x6fff_fef5;
const VERSIONS: u64 = 0x6fff_fff0;

/// Flag of a version that a plain lookup does not return.
const HIDDEN: u16 = 0x8000;

/// A loaded part of a file (`Elf64_Phdr`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_size: u64,
    memory_size: u64,
    alignment: u64,
}

/// A symbol (`Elf64_Sym`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    pub(crate) value: u64,
    size: u64,
}

impl Symbol {
    /// Whether it is a function or an untyped label that the library defines.
    fn is_exported_function(&self) -> bool {
        let (kind, binding) = (self.info & 15, self.info >> 4);
        // Indirect functions (type 10) have no address yet.
        self.section != 0 && matches!(kind, 0 | 2) && matches!(binding, 1 | 2 | 10)
    }
}

/// A library in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image {
    base: usize,
    segments: *const Segment,
    segment_count: usize,
    dynamic: usize,
    symbols: usize,
    strings: usize,
    strings_size: usize,
    gnu_hash: usize,
    old_hash: usize,
    versions: usize,
}

/// Reads a value in a table that the dynamic linker mapped.
fn read_mapped<T: Copy>(address: usize) -> T {
    // JUSTIFICATION: symbol tables are memory outside Rust's view.
    // SAFETY: private to this module, and called only with addresses in the tables of an `Image`.
    // The dynamic linker has mapped these and relies on them. All types read are plain numbers.
    unsafe { ptr::read_unaligned(ptr::with_exposed_provenance(address)) }
}

impl Image {
    /// The library loaded at `base`; `None` if it exports nothing.
    ///
    /// # Safety
    ///
    /// The segments belong to a library that is loaded at `base` and stays loaded while the image
    /// is used.
    pub(crate) unsafe fn of(base: usize, segments: *const Segment, count: usize) -> Option<Self> {
        let mut image = Self {
            base,
            segments,
            segment_count: count,
            dynamic: 0,
            symbols: 0,
            strings: 0,
            strings_size: 0,
            gnu_hash: 0,
            old_hash: 0,
            versions: 0,
        };
        let dynamic = image.segments().find(|segment| segment.kind == DYNAMIC)?;
        image.dynamic = image.at(dynamic.address);
        for (tag, value) in image.entries() {
            match tag {
                HASH => image.old_hash = image.table(value),
                GNU_HASH => image.gnu_hash = image.table(value),
                STRINGS => image.strings = image.table(value),
                STRINGS_SIZE => image.strings_size = usize::try_from(value).ok()?,
                SYMBOLS => image.symbols = image.table(value),
                VERSIONS => image.versions = image.table(value),
                _ => {}
            }
        }
        (image.symbols != 0 && image.strings != 0).then_some(image)
    }

    /// Load address: the offset of all its addresses.
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// Address and number of its program headers.
    pub(crate) fn segments_at(&self) -> (*const Segment, usize) {
        (self.segments, self.segment_count)
    }

    fn segments(&self) -> impl Iterator<Item = Segment> + use<> {
        let first = self.segments.expose_provenance();
        (0..self.segment_count).map(move |index| read_mapped(first + index * size_of::<Segment>()))
    }

    /// Tags and values of the dynamic section.
    fn entries(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let first = self.dynamic;
        (0..)
            .map(move |index| {
                (read_mapped(first + index * 16), read_mapped(first + index * 16 + 8))
            })
            .take_while(|(tag, _): &(u64, u64)| *tag != 0)
    }

    /// Memory address of an address in the file.
    #[allow(clippy::cast_possible_truncation, reason = "both are 64 bits wide here")]
    fn at(&self, address: u64) -> usize {
        self.base.wrapping_add(address as usize)
    }

    /// Address of a table. glibc has added the base already, musl has not.
    #[allow(clippy::cast_possible_truncation, reason = "both are 64 bits wide here")]
    fn table(&self, address: u64) -> usize {
        if (address as usize) < self.base { self.at(address) } else { address as usize }
    }

    /// Whether an address lies in the library.
    pub(crate) fn contains(&self, address: usize) -> bool {
        self.segment_of(address).is_some()
    }

    /// Permissions of the memory at an address: writable, executable.
    pub(crate) fn access(&self, address: usize) -> Option<(bool, bool)> {
        self.segment_of(address).map(|segment| (segment.flags & 2 != 0, segment.flags & 1 != 0))
    }

    fn segment_of(&self, address: usize) -> Option<Segment> {
        let offset = address.wrapping_sub(self.base) as u64;
        self.segments().find(|segment| {
            segment.kind == LOAD && offset.wrapping_sub(segment.address) < segment.memory_size
        })
    }

    /// Whether the library depends on another whose name contains `part`.
    pub(crate) fn needs(&self, part: &[u8]) -> bool {
        self.entries().filter(|(tag, _)| *tag == NEEDED).any(|(_, name)| {
            let name = self.text(name);
            name.windows(part.len()).any(|window| window == part)
        })
    }

    /// A string of the string table, without its final zero.
    fn text(&self, offset: u64) -> &'static [u8] {
        let Ok(offset) = usize::try_from(offset) else { return &[] };
        let mut length = 0;
        while offset + length < self.strings_size
            && read_mapped::<u8>(self.strings + offset + length) != 0
        {
            length += 1;
        }
        let start = ptr::with_exposed_provenance(self.strings + offset);
        // JUSTIFICATION: as for `read_mapped`.
        // SAFETY: these bytes have just been read, and string tables are never written.
        unsafe { core::slice::from_raw_parts(start, length) }
    }

    /// Whether the name of a symbol equals `name`.
    fn is_named(&self, symbol: &Symbol, name: &[u8]) -> bool {
        let start = symbol.name as usize;
        start + name.len() < self.strings_size
            && name
                .iter()
                .chain(&[0])
                .enumerate()
                .all(|(index, byte)| read_mapped::<u8>(self.strings + start + index) == *byte)
    }

    /// Address of an exported function.
    pub(crate) fn function(&self, name: &[u8]) -> Option<usize> {
        self.symbol(name).map(|(_, symbol)| self.at(symbol.value))
    }

    /// Symbol of an exported function, with the address of the symbol.
    pub(crate) fn symbol(&self, name: &[u8]) -> Option<(usize, Symbol)> {
        let address =
            if self.gnu_hash == 0 { self.by_old_hash(name) } else { self.by_gnu_hash(name) };
        address.map(|address| (address, read_mapped(address)))
    }

    /// Name of the exported function at an address, if any.
    pub(crate) fn name_at(&self, address: usize) -> Option<&'static [u8]> {
        let value = address.wrapping_sub(self.base) as u64;
        (1..self.symbol_count())
            .map(|index| read_mapped::<Symbol>(self.symbol_address(index)))
            .find(|symbol| symbol.value == value && symbol.is_exported_function())
            .map(|symbol| self.text(u64::from(symbol.name)))
    }

    /// Number of symbols, which only the hash tables tell.
    fn symbol_count(&self) -> u32 {
        if self.gnu_hash == 0 {
            return if self.old_hash == 0 {
                0
            } else {
                read_mapped(self.old_hash + size_of::<u32>())
            };
        }
        let word = |index: u32| read_mapped::<u32>(self.gnu_hash + index as usize * 4);
        let (bucket_count, first, bloom_count) = (word(0), word(1), word(2));
        let buckets = 4 + bloom_count * 2;
        let chains = buckets + bucket_count;
        let Some(mut last) = (0..bucket_count).map(|bucket| word(buckets + bucket)).max() else {
            return 0;
        };
        if last < first {
            return first;
        }
        // The last chain ends the table.
        while word(chains + (last - first)) & 1 == 0 {
            last += 1;
        }
        last + 1
    }

    fn symbol_address(&self, index: u32) -> usize {
        self.symbols + index as usize * size_of::<Symbol>()
    }

    /// Whether the symbol is a function of that name which the library defines.
    fn is_function(&self, index: u32, name: &[u8]) -> bool {
        let symbol: Symbol = read_mapped(self.symbol_address(index));
        symbol.is_exported_function() && self.is_named(&symbol, name)
    }

    fn is_default(&self, index: u32) -> bool {
        self.versions == 0 || read_mapped::<u16>(self.versions + index as usize * 2) & HIDDEN == 0
    }

    pub(super) fn by_gnu_hash(&self, name: &[u8]) -> Option<usize> {
        if self.gnu_hash == 0 {
            return None;
        }
        let word = |index: u32| read_mapped::<u32>(self.gnu_hash + index as usize * 4);
        let (bucket_count, first, bloom_count) = (word(0), word(1), word(2));
        if bucket_count == 0 {
            return None;
        }
        let hash = name
            .iter()
            .fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
        // Four header words, then 64-bit words of the Bloom filter, then buckets, then chains.
        let buckets = 4 + bloom_count * 2;
        let chains = buckets + bucket_count;
        let mut index = word(buckets + hash % bucket_count);
        if index < first {
            return None;
        }
        let mut older = None;
        loop {
            let link = word(chains + (index - first));
            if link | 1 == hash | 1 && self.is_function(index, name) {
                if self.is_default(index) {
                    return Some(self.symbol_address(index));
                }
                older = Some(self.symbol_address(index));
            }
            if link & 1 == 1 {
                return older;
            }
            index += 1;
        }
    }

    pub(super) fn by_old_hash(&self, name: &[u8]) -> Option<usize> {
        if self.old_hash == 0 {
            return None;
        }
        let word = |index: u32| read_mapped::<u32>(self.old_hash + index as usize * 4);
        let (bucket_count, chain_count) = (word(0), word(1));
        if bucket_count == 0 {
            return None;
        }
        let hash = name.iter().fold(0_u32, |hash, byte| {
            let hash = (hash << 4).wrapping_add(u32::from(*byte));
            let high = hash & 0xf000_0000;
            (hash ^ high >> 24) & !high
        });
        let mut index = word(2 + hash % bucket_count);
        let mut older = None;
        while index != 0 && index < chain_count {
            if self.is_function(index, name) {
                if self.is_default(index) {
                    return Some(self.symbol_address(index));
                }
                older = Some(self.symbol_address(index));
            }
            index = word(2 + bucket_count + index);
        }
        older
    }

    #[cfg(test)]
    pub(super) fn has_gnu_hash(&self) -> bool {
        self.gnu_hash != 0
    }

    #[cfg(test)]
    pub(super) fn has_old_hash(&self) -> bool {
        self.old_hash != 0
    }
}
