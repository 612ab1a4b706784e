//! The dynamic linker's cache, `/etc/ld.so.cache`, in glibc's format 1.1. It is read and written here because neither
//! node nor image need have `ldconfig`, and an image's own must not run as root.
//!
//! ```text
//! "glibc-ld.so.cache1.1" | count u32 | size of strings u32 | byte order u8, 0 0 0 | extensions u32 | 12 x 0
//! count x { flags u32, name u32, path u32, 0 u32, hwcap u64 }    offsets count from the magic
//! strings, each followed by a 0
//! ```

use std::cmp::Ordering;
use std::io::{self, Read as _};
use std::path::Path;

use crate::rootfs::Rootfs;

/// The cache.
pub const CACHE: &str = "/etc/ld.so.cache";

const MAGIC: &[u8; 20] = b"glibc-ld.so.cache1.1";
const OLD_MAGIC: &[u8; 11] = b"ld.so-1.7.0";
/// Largest file that is read, in bytes. Those of large distributions have some hundred KiB; an image may contain anything.
const MAX_BYTES: u64 = 8 << 20;
/// Most libraries of a cache. Each is copied, and entries can share one long string.
const MAX_LIBRARIES: usize = 1 << 16;
/// Longest name or path in bytes, as the kernel takes it.
const MAX_STRING: usize = 4096;
const HEADER: usize = 48;
const ENTRY: usize = 24;
/// Flag in `hwcap`: the entry is processor-specific, as named in an extension section.
const HWCAP_EXTENSION: u64 = 1 << 62;

/// A library in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Type of library and machine, as glibc numbers them.
    pub flags: u32,
    /// The name requested by programs.
    pub name: String,
    /// Where it is.
    pub path: String,
    /// Processor features that it needs, as glibc packs them.
    pub hwcap: u64,
}

/// Reads the cache of a root. One that is missing or damaged has no libraries, as for the linker. One that is too large is
/// an error.
pub fn read(root: &Rootfs) -> io::Result<Vec<Library>> {
    let Ok(file) = root.open_file(Path::new(CACHE)) else { return Ok(Vec::new()) };
    let mut content = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_BYTES {
        let message = format!("{CACHE} has more than {} MiB", MAX_BYTES >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(parse(&content).unwrap_or_default())
}

/// Parses a cache; `None` if it is not one or is damaged.
pub fn parse(file: &[u8]) -> Option<Vec<Library>> {
    // A cache from before glibc 2.32 has the old format first and the new one behind it.
    let start = if file.starts_with(OLD_MAGIC) {
        file.windows(MAGIC.len()).position(|window| window == MAGIC)?
    } else {
        0
    };
    let cache = file.get(start..)?;
    if !cache.starts_with(MAGIC) {
        return None;
    }
    let count = usize::try_from(number(cache, MAGIC.len())?).ok()?;
    if count > (cache.len() / ENTRY).min(MAX_LIBRARIES) {
        return None;
    }
    (0..count)
        .map(|index| {
            let at = HEADER + index * ENTRY;
            let hwcap_low = u64::from(number(cache, at + 16)?);
            let hwcap_high = u64::from(number(cache, at + 20)?);
            Some(Library {
                flags: number(cache, at)?,
                name: string(cache, number(cache, at + 4)?)?,
                path: string(cache, number(cache, at + 8)?)?,
                hwcap: hwcap_high << 32 | hwcap_low,
            })
        })
        .collect()
}

/// Serializes a cache; `None` if it would be too large. Processor-specific entries are omitted: they need the extension
/// section, and a generic entry exists for each.
pub fn format(libraries: &[Library]) -> Option<Vec<u8>> {
    let mut libraries: Vec<_> =
        libraries.iter().filter(|library| library.hwcap & HWCAP_EXTENSION == 0).collect();
    // The linker does a binary search from the greatest name to the least. The sort keeps the given order of equal
    // names.
    libraries.sort_by(|a, b| compare(&b.name, &a.name).then(b.flags.cmp(&a.flags)));
    let mut entries = Vec::with_capacity(libraries.len() * ENTRY);
    let mut strings: Vec<u8> = Vec::new();
    let base = HEADER + libraries.len() * ENTRY;
    for library in &libraries {
        let mut place = |text: &str| {
            let offset = u32::try_from(base + strings.len()).ok();
            strings.extend(text.as_bytes());
            strings.push(0);
            offset
        };
        let (name, path) = (place(&library.name)?, place(&library.path)?);
        for value in [library.flags, name, path, 0] {
            entries.extend(value.to_le_bytes());
        }
        entries.extend(library.hwcap.to_le_bytes());
    }
    let mut cache = MAGIC.to_vec();
    cache.extend(u32::try_from(libraries.len()).ok()?.to_le_bytes());
    cache.extend(u32::try_from(strings.len()).ok()?.to_le_bytes());
    // 2 is little-endian; no extensions follow.
    cache.push(2);
    cache.resize(HEADER, 0);
    cache.extend(entries);
    cache.extend(strings);
    Some(cache)
}

/// Flags of an ELF library, from the first bytes of its file; `None` for other files and unsupported machines.
pub fn flags_of(elf: &[u8]) -> Option<u32> {
    const GLIBC: u32 = 3;
    const SHARED_OBJECT: u16 = 3;
    let half = |at: usize| Some(u16::from_le_bytes([*elf.get(at)?, *elf.get(at + 1)?]));
    if !elf.starts_with(b"\x7fELF") || half(16)? != SHARED_OBJECT {
        return None;
    }
    let is_64_bit = *elf.get(4)? == 2;
    match (half(18)?, is_64_bit) {
        // x86-64, 32-bit x86 and 64-bit Arm.
        (62, true) => Some(0x0300 | GLIBC),
        (3, false) => Some(GLIBC),
        (183, true) => Some(0x0a00 | GLIBC),
        _ => None,
    }
}

/// The linker's order of names: digit runs compare as numbers and follow other characters.
fn compare(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    while let (Some(&first_a), Some(&first_b)) = (a.first(), b.first()) {
        let order = match (first_a.is_ascii_digit(), first_b.is_ascii_digit()) {
            (true, true) => {
                let (number_a, rest_a) = leading_number(a);
                let (number_b, rest_b) = leading_number(b);
                (a, b) = (rest_a, rest_b);
                number_a.cmp(&number_b)
            }
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            (false, false) => {
                (a, b) = (a.get(1..).unwrap_or_default(), b.get(1..).unwrap_or_default());
                // The linker compares signed characters.
                first_a.cast_signed().cmp(&first_b.cast_signed())
            }
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

/// The number that text begins with, and the rest.
fn leading_number(text: &[u8]) -> (u64, &[u8]) {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let number = digits.iter().fold(0_u64, |number, digit| {
        number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    });
    (number, rest)
}

/// A number at an offset.
fn number(cache: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(cache.get(at..at + 4)?.try_into().ok()?))
}

/// A string at an offset.
fn string(cache: &[u8], at: u32) -> Option<String> {
    let text = cache.get(usize::try_from(at).ok()?..)?;
    let end = text.iter().take(MAX_STRING).position(|&b| b == 0)?;
    String::from_utf8(text.get(..end)?.to_vec()).ok()
}
