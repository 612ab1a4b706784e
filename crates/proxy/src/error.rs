//! Why no proxy can be written.

use std::path::PathBuf;

/// Why no proxy can be written of a driver's library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// It is not an ELF file.
    #[error(
        "the file is no ELF file, so it is no library of the driver; check that the path names the library \
         itself and not a linker script or a Git LFS pointer"
    )]
    NotElf,
    /// It is for another processor.
    #[error(
        "the library is for another processor ({found}): proxies are written for 64-bit x86-64 and arm64; \
         give the library of the folder that programs on this node load it from"
    )]
    Foreign {
        /// What it is for.
        found: String,
    },
    /// It is a program, an object file or static.
    #[error(
        "the file is no shared library ({found}), so no program can load it; give the driver's own library"
    )]
    NotShared {
        /// What it is.
        found: &'static str,
    },
    /// It contradicts itself.
    #[error(
        "the library is damaged: {what}; it may have been cut short while it was installed: install the \
         driver again"
    )]
    Damaged {
        /// What of it.
        what: &'static str,
    },
    /// It exports more than any driver does.
    #[error(
        "the library exports more than {limit} names, which no driver does; give the driver's own library"
    )]
    TooMany {
        /// Names that a library may export.
        limit: usize,
    },
    /// It is a proxy already.
    #[error(
        "the library is a proxy already: it was read where a proxy is mounted over it; give the driver's \
         own file"
    )]
    IsProxy,
    /// It is another library.
    #[error("the library calls itself {found} and not {expected}: give the driver's {expected}")]
    OtherLibrary {
        /// What it calls itself.
        found: String,
        /// What was asked for.
        expected: String,
    },
    /// It has none of the functions that the guard knows.
    #[error(
        "the library exports {exports} names and none that the guard hooks, so a proxy would hold nothing; \
         give the driver's own library"
    )]
    NothingToHook {
        /// Number of names that it exports.
        exports: usize,
    },
    /// A path of the plan cannot be used.
    #[error(
        "{} cannot stand in a library as a dependency: the dynamic linker finds only an absolute path \
         without looking at a container's search paths; give the path in the container",
        path.display()
    )]
    Path {
        /// The path.
        path: PathBuf,
    },
}
