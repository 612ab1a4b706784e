//! Files: opening, identity, folders and locks.

use core::ffi::CStr;
use core::mem::MaybeUninit;

use super::{Errno, address_of, call, number};

const AT_FDCWD: usize = (-100_isize).cast_unsigned();
const AT_EMPTY_PATH: usize = 0x1000;
const O_RDWR: usize = 2;
const O_CLOEXEC: usize = 0o2_000_000;
const STATX_BASIC: usize = 0x7ff;
const F_DUPFD_CLOEXEC: usize = 1030;
const F_OFD_SETLK: usize = 37;

#[cfg(target_arch = "x86_64")]
const O_DIRECTORY: usize = 0o200_000;
#[cfg(target_arch = "aarch64")]
const O_DIRECTORY: usize = 0o40_000;

/// Lowest descriptor of the guard: above those that programs close in a loop at start.
const MIN_DESCRIPTOR: usize = 900;

/// An open file, closed when it is dropped.
#[derive(Debug)]
pub(crate) struct File(i32);

/// Identity of a file, whatever its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Device number.
    pub(crate) device: u64,
    /// Inode number.
    pub(crate) inode: u64,
}

/// Access mode of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
    /// Listing a folder.
    Folder,
}

impl File {
    /// Opens a file.
    pub(crate) fn open(path: &CStr, mode: Mode) -> Result<Self, Errno> {
        let flags = match mode {
            Mode::Read => O_CLOEXEC,
            Mode::Write => O_CLOEXEC | O_RDWR,
            Mode::Folder => O_CLOEXEC | O_DIRECTORY,
        };
        Self::of(call(number::OPENAT, [AT_FDCWD, address_of(path), flags, 0, 0, 0])?)
    }

    /// Wraps a descriptor that the kernel has just returned.
    pub(super) fn of(descriptor: usize) -> Result<Self, Errno> {
        i32::try_from(descriptor).map(Self).map_err(|_| Errno(9))
    }

    /// Takes over a descriptor from [`File::into_descriptor`].
    pub(crate) fn from_descriptor(descriptor: i32) -> Self {
        Self(descriptor)
    }

    /// Its descriptor, which the caller must close.
    pub(crate) fn into_descriptor(self) -> i32 {
        let descriptor = self.0;
        core::mem::forget(self);
        descriptor
    }

    /// Its descriptor, which still belongs to the file.
    pub(crate) fn descriptor(&self) -> i32 {
        self.0
    }

    pub(super) fn number(&self) -> usize {
        self.0.cast_unsigned() as usize
    }

    /// The same open file under a high descriptor, where programs seldom interfere; unchanged if
    /// there is none.
    pub(crate) fn move_high(self) -> Self {
        match call(number::FCNTL, [self.number(), F_DUPFD_CLOEXEC, MIN_DESCRIPTOR, 0, 0, 0]) {
            Ok(descriptor) => Self::of(descriptor).unwrap_or(self),
            Err(_) => self,
        }
    }

    /// Its size in bytes, and its identity.
    pub(crate) fn identity(&self) -> Result<(u64, Identity), Errno> {
        let mut stat = MaybeUninit::<Statx>::zeroed();
        let address = stat.as_mut_ptr() as usize;
        call(
            number::STATX,
            [self.number(), address_of(c""), AT_EMPTY_PATH, STATX_BASIC, address, 0],
        )?;
        // JUSTIFICATION: the kernel fills a C structure.
        // SAFETY: all bytes were zero before, and every value of them is a `Statx`.
        let stat = unsafe { stat.assume_init() };
        let device = u64::from(stat.device_major) << 32 | u64::from(stat.device_minor);
        Ok((stat.size, Identity { device, inode: stat.inode }))
    }

    /// Whether it was opened through a read-only mount.
    pub(crate) fn is_read_only_mount(&self) -> Result<bool, Errno> {
        /// `ST_RDONLY`.
        const READ_ONLY: u64 = 1;
        /// Word of the flags in `struct statfs` (15 words) on 64-bit machines.
        const FLAGS: usize = 10;
        let mut words = [0_u64; 15];
        call(number::FSTATFS, [self.number(), words.as_mut_ptr() as usize, 0, 0, 0, 0])?;
        Ok(words[FLAGS] & READ_ONLY != 0)
    }

    /// Reads at the current position.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        call(number::READ, [self.number(), bytes.as_mut_ptr() as usize, bytes.len(), 0, 0, 0])
    }

    /// Reads entries of a folder, to be parsed by [`entries`].
    pub(crate) fn list(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        call(number::GETDENTS64, [self.number(), bytes.as_mut_ptr() as usize, bytes.len(), 0, 0, 0])
    }

    /// Locks one byte for writing, for this open file description; fails at once if it is locked.
    pub(crate) fn lock(&self, offset: u64) -> Result<(), Errno> {
        self.set_lock(1, offset)
    }

    /// Unlocks a byte.
    pub(crate) fn unlock(&self, offset: u64) -> Result<(), Errno> {
        self.set_lock(2, offset)
    }

    fn set_lock(&self, kind: i16, offset: u64) -> Result<(), Errno> {
        let lock = Flock { kind, whence: 0, start: offset.cast_signed(), length: 1, process: 0 };
        let address = (&raw const lock) as usize;
        call(number::FCNTL, [self.number(), F_OFD_SETLK, address, 0, 0, 0]).map(drop)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // The descriptor is closed, whatever `close` returns.
        let _ = call(number::CLOSE, [self.number(), 0, 0, 0, 0, 0]);
    }
}

/// `struct statx` of the kernel.
#[repr(C)]
struct Statx {
    mask: u32,
    block_size: u32,
    attributes: u64,
    links: u32,
    user: u32,
    group: u32,
    mode: u16,
    _pad: u16,
    inode: u64,
    size: u64,
    blocks: u64,
    attributes_mask: u64,
    times: [u64; 8],
    special_major: u32,
    special_minor: u32,
    device_major: u32,
    device_minor: u32,
    _rest: [u64; 14],
}

const _: () = assert!(size_of::<Statx>() == 256);

/// `struct flock` of 64-bit machines.
#[repr(C)]
struct Flock {
    kind: i16,
    whence: i16,
    start: i64,
    length: i64,
    process: i32,
}

/// Names in the result of [`File::list`], without their final zero.
pub(crate) fn entries(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    // u64 inode, i64 offset, u16 length, u8 kind, name, zero.
    const NAME: usize = 19;
    core::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes([*bytes.get(16)?, *bytes.get(17)?]));
        let entry = bytes.get(..length)?;
        bytes = bytes.get(length..)?;
        let name = entry.get(NAME..)?;
        let end = name.iter().position(|byte| *byte == 0)?;
        name.get(..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_lists_its_entries() {
        let folder = File::open(c"/proc/self", Mode::Folder).expect("a folder");
        let mut bytes = [0; 16384];
        let length = folder.list(&mut bytes).expect("entries");
        assert!(entries(&bytes[..length]).any(|name| name == b"stat"));
    }

    #[test]
    fn a_mount_is_known_by_what_may_be_written_through_it() {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let mut known = 0;
        for line in mounts.lines() {
            let point = line.split(' ').nth(4).expect("a mount point");
            let name = std::ffi::CString::new(point).expect("no zero");
            let Ok(file) = File::open(&name, Mode::Read) else { continue };
            // The mount that is visible there may be another than that of the line.
            let about = std::format!("/proc/self/fdinfo/{}", file.descriptor());
            let about = std::fs::read_to_string(about).expect("an open file");
            let id =
                about.lines().find_map(|line| line.strip_prefix("mnt_id:\t")).expect("a mount");
            let Some(mount) = mounts.lines().find(|line| line.split(' ').next() == Some(id)) else {
                continue;
            };
            let is_so = |options: &str| options.split(',').any(|option| option == "ro");
            let own = mount.split(' ').nth(5).expect("options");
            let whole = mount.rsplit(' ').next().expect("options");
            assert_eq!(file.is_read_only_mount(), Ok(is_so(own) || is_so(whole)), "{mount}");
            known += 1;
        }
        assert!(known > 0);
    }

    #[test]
    fn a_lock_belongs_to_the_open_file() {
        let path = std::env::temp_dir().join(std::format!("octavo-lock-{}", std::process::id()));
        std::fs::write(&path, b"").expect("a file");
        let name = std::ffi::CString::new(path.to_str().expect("a name")).expect("no zero");
        let first = File::open(&name, Mode::Write).expect("opened").move_high();
        let second = File::open(&name, Mode::Write).expect("opened");
        assert!(first.number() >= MIN_DESCRIPTOR);
        first.lock(1 << 32).expect("locked");
        assert_eq!(second.lock(1 << 32), Err(Errno::AGAIN));
        assert_eq!(second.lock(1 + (1 << 32)), Ok(()));
        drop(first);
        assert_eq!(second.lock(1 << 32), Ok(()));
        assert_eq!(second.identity().expect("known").0, 0);
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn a_lock_outlives_its_descriptor_while_the_open_file_is_mapped() {
        let path = std::env::temp_dir().join(std::format!("octavo-kept-{}", std::process::id()));
        std::fs::write(&path, b"something").expect("a file");
        let name = std::ffi::CString::new(path.to_str().expect("a name")).expect("no zero");
        let first = File::open(&name, Mode::Write).expect("opened");
        let second = File::open(&name, Mode::Write).expect("opened");
        first.lock(1 << 32).expect("locked");
        let kept = super::super::memory::pin_open_file(&first).expect("mapped");
        drop(first);
        assert_eq!(second.lock(1 << 32), Err(Errno::AGAIN));
        // SAFETY: no reference to it exists.
        unsafe { super::super::memory::unmap(kept, super::super::memory::PIN_BYTES) };
        assert_eq!(second.lock(1 << 32), Ok(()));
        std::fs::remove_file(path).expect("removed");
    }
}
