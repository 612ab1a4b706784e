//! Errors of writing a proxy.

use std::path::PathBuf;

/// Why no proxy can be written for a driver's library.
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
        /// The processor that it is for.
        found: String,
    },
    /// It is a program, an object file or static.
    #[error(
        "the file is no shared library ({found}), so no program can load it; give the driver's own library"
    )]
    NotShared {
        /// Type of the file.
        found: &'static str,
    },
    /// It is inconsistent.
    #[error(
        "the library is damaged: {what}; it may have been cut short while it was installed: install the \
         driver again"
    )]
    Damaged {
        /// The inconsistency.
        what: &'static str,
    },
    /// It has more exports than any driver.
    #[error(
        "the library exports more than {limit} names, which no driver does; give the driver's own library"
    )]
    TooMany {
        /// Maximum number of exports.
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
        /// Its SONAME.
        found: String,
        /// The expected SONAME.
        expected: String,
    },
    /// It has none of the hooked functions.
    #[error(
        "the library exports {exports} names and none that the guard hooks, so a proxy would hold nothing; \
         give the driver's own library"
    )]
    NothingToHook {
        /// Number of its exports.
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
