//! What a program prints.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::process::Stdio;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

/// A file without a name that takes what a program prints. A pipe takes 64 KiB before it is read, and is open as long as a child of the
/// program has it.
#[derive(Debug)]
pub struct OutputFile(File);

impl OutputFile {
    /// An empty one.
    ///
    /// # Errors
    ///
    /// The kernel has no memory for it.
    pub fn new() -> io::Result<Self> {
        const NAME: &str = "octavo-output";
        // A machine may refuse files that can be executed. Linux before 6.3 does not know the flag.
        let file = match memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => memfd_create(NAME, MemfdFlags::CLOEXEC),
            file => file,
        };
        Ok(Self(file?.into()))
    }

    /// It, as an output of a program.
    ///
    /// # Errors
    ///
    /// The process has too many files open.
    pub fn stdio(&self) -> io::Result<Stdio> {
        Ok(self.0.try_clone()?.into())
    }

    /// How many bytes were printed so far.
    pub fn bytes(&self) -> u64 {
        self.0.metadata().map_or(0, |data| data.len())
    }

    /// The first bytes that were printed so far, at most this many.
    pub fn read(&self, most: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.bytes().min(most)).unwrap_or_default()];
        match self.0.read_exact_at(&mut bytes, 0) {
            Ok(()) => bytes,
            Err(_) => Vec::new(),
        }
    }
}
