//! Parses a driver's library like the dynamic linker does: by program headers and the dynamic
//! section. Section headers may be missing or wrong.

mod memory;

use std::collections::BTreeSet;

use object::LittleEndian as LE;
use object::elf;
use object::read::ReadRef;
use object::read::elf::FileHeader;

use crate::architecture::Architecture;
use crate::error::ProxyError;
use memory::{Dynamic, LoadedImage, Symbols};

/// Maximum number of exports. libcuda has about 700, libnvidia-ml about 500.
const MAX_EXPORTS: usize = 1 << 15;

/// A driver's library.
#[derive(Debug)]
pub(crate) struct Driver<'a> {
    pub(crate) machine: Architecture,
    pub(crate) soname: Option<&'a [u8]>,
    pub(crate) needed: Vec<&'a [u8]>,
    /// Its exports, ordered by name and version.
    pub(crate) exports: Vec<Export<'a>>,
    /// The versions that it defines, in its order.
    pub(crate) versions: Vec<Version<'a>>,
}

/// An exported name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Export<'a> {
    pub(crate) name: &'a [u8],
    /// Its version: an index, and whether it is the default.
    pub(crate) version: u16,
    pub(crate) kind: ExportKind,
}

/// Type of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ExportKind {
    Function,
    Data,
}

/// A version that a library defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) index: u16,
    pub(crate) flags: elf::VersionFlags,
}

fn damaged(what: &'static str) -> ProxyError {
    ProxyError::Damaged { what }
}

impl<'a> Driver<'a> {
    /// Parses the file of a library. Only its headers and tables are read.
    pub(crate) fn read(file: impl ReadRef<'a>) -> Result<Self, ProxyError> {
        let header = header(file)?;
        let machine = Architecture::of(header.e_machine.get(LE)).ok_or_else(|| {
            ProxyError::Foreign { found: format!("machine {} of ELF", header.e_machine.get(LE).0) }
        })?;
        match header.e_type.get(LE) {
            elf::ET_DYN => {}
            elf::ET_EXEC => return Err(ProxyError::NotShared { found: "a program" }),
            elf::ET_REL => return Err(ProxyError::NotShared { found: "an object file" }),
            _ => return Err(ProxyError::NotShared { found: "neither program nor library" }),
        }
        if header.e_phnum.get(LE) == elf::PN_XNUM {
            return Err(damaged("it has too many program headers"));
        }
        let segments = header
            .program_headers(LE, file)
            .map_err(|_| damaged("its program headers lie outside of it"))?;
        let memory = LoadedImage { file, segments };
        if !memory.is_whole() {
            return Err(damaged("it ends before its segments do"));
        }
        let dynamic = Dynamic::read(&memory)?;
        let symbols = Symbols::read(&memory, &dynamic)?;
        let versions = memory.versions(&dynamic)?;
        let defined: BTreeSet<u16> = versions.iter().map(|version| version.index).collect();
        let mut exports = Vec::new();
        for (index, symbol) in symbols.table.iter().enumerate() {
            let version = symbols.versions.get(index).map(|version| version.0.get(LE));
            // Without versions every export is global.
            let version = version.unwrap_or(elf::VersymIndex(elf::VER_NDX_GLOBAL.0));
            let Some(kind) = kind(symbol).filter(|_| !version.is_local()) else { continue };
            if !version.is_global() && !defined.contains(&version.index().0) {
                return Err(damaged("a name has a version that is not defined"));
            }
            let name = dynamic.name(symbol.st_name.get(LE).into())?;
            // A longer name is looked up in the driver itself, like all names that are not hooked.
            let Some(name) = name.filter(|name| !name.is_empty()) else { continue };
            if exports.len() == MAX_EXPORTS {
                return Err(ProxyError::TooMany { limit: MAX_EXPORTS });
            }
            exports.push(Export { name, version: version.0, kind });
        }
        exports.sort_unstable();
        exports.dedup_by_key(|export| (export.name, export.version));
        Ok(Self {
            machine,
            soname: dynamic.soname()?,
            needed: dynamic.needed()?,
            exports,
            versions,
        })
    }
}

/// The header of a library, if its first bytes are supported.
fn header<'a>(file: impl ReadRef<'a>) -> Result<&'a elf::FileHeader64<LE>, ProxyError> {
    if file.read_bytes_at(0, elf::ELFMAG.len() as u64) != Ok(elf::ELFMAG.as_slice()) {
        return Err(ProxyError::NotElf);
    }
    let short = || damaged("it ends before its header does");
    let header: &elf::FileHeader64<LE> = file.read_at(0).map_err(|()| short())?;
    if header.e_ident.class != elf::ELFCLASS64 {
        return Err(ProxyError::Foreign { found: "32 bits".to_owned() });
    }
    if header.e_ident.data != elf::ELFDATA2LSB {
        return Err(ProxyError::Foreign { found: "big-endian".to_owned() });
    }
    Ok(header)
}

/// Type of an export; `None` if the symbol is not exported.
fn kind(symbol: &elf::Sym64<LE>) -> Option<ExportKind> {
    let is_visible = matches!(symbol.st_visibility(), elf::STV_DEFAULT | elf::STV_PROTECTED);
    let is_bound =
        matches!(symbol.st_bind(), elf::STB_GLOBAL | elf::STB_WEAK | elf::STB_GNU_UNIQUE);
    if !is_visible || !is_bound || symbol.st_shndx.get(LE) == elf::SHN_UNDEF {
        return None;
    }
    match symbol.st_type() {
        elf::STT_FUNC | elf::STT_GNU_IFUNC | elf::STT_NOTYPE => Some(ExportKind::Function),
        elf::STT_OBJECT | elf::STT_COMMON => Some(ExportKind::Data),
        _ => None,
    }
}
