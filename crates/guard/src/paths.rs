//! Paths in a container. A tenant can set none of them.

use core::ffi::CStr;

/// The folder of the shares, as it is opened.
#[cfg(not(feature = "test-paths"))]
pub(crate) const SHARES: &str = octavo_guard_abi::SHARES;

/// As above, below the working directory: each test has its own folder.
#[cfg(feature = "test-paths")]
pub(crate) const SHARES: &str = "octavo/shares";

/// Whether a library is one of the driver's own files.
#[cfg(not(feature = "test-paths"))]
pub(crate) fn is_driver_file(path: &[u8]) -> bool {
    path.strip_prefix(octavo_guard_abi::REAL.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
}

/// As above, for the folder of a test.
#[cfg(feature = "test-paths")]
pub(crate) fn is_driver_file(path: &[u8]) -> bool {
    path.windows(12).any(|part| part == b"octavo/real/")
}

/// A path below the folder of the shares, with its final zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    bytes: [u8; Self::SIZE],
    length: usize,
}

impl Path {
    /// Claims and shares have no longer names.
    const SIZE: usize = 128;

    /// `<shares>/<share>/<file>`; `None` if that is too long.
    pub(crate) fn of(share: &[u8], file: &str) -> Option<Self> {
        let mut path = Self { bytes: [0; Self::SIZE], length: 0 };
        path.push(SHARES.as_bytes())?;
        path.push(b"/")?;
        path.push(share)?;
        if !file.is_empty() {
            path.push(b"/")?;
            path.push(file.as_bytes())?;
        }
        Some(path)
    }

    fn push(&mut self, part: &[u8]) -> Option<()> {
        let end = self.length + part.len();
        // One byte remains zero.
        if end >= Self::SIZE {
            return None;
        }
        self.bytes.get_mut(self.length..end)?.copy_from_slice(part);
        self.length = end;
        Some(())
    }

    /// Without the final zero.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    /// With it; a part that contains a zero ends there.
    pub(crate) fn text(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

/// The folder of the shares, with its final zero.
pub(crate) fn shares() -> Option<Path> {
    let mut path = Path { bytes: [0; Path::SIZE], length: 0 };
    path.push(SHARES.as_bytes())?;
    Some(path)
}
