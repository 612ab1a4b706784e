//! The file: creating and mapping it, and locks on single bytes of it.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::layout::{Layout, MAGIC, SIZE};

/// Locked bytes lie far beyond the end of the file and hold no data.
const LOCK_BASE: i64 = 1 << 40;

/// A lockable byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockByte {
    /// Creation of the file.
    Making,
    /// Life of the process in a slot.
    Slot(usize),
    /// Use of a shared block.
    Block(usize),
    /// Life of the process that has made a file of the fabric, or of an IMEX service.
    Owner,
    /// Use of a file of the fabric by a process that has imported it.
    User,
}

impl LockByte {
    fn offset(self) -> i64 {
        let number = |base: i64, index: usize| base + i64::try_from(index).unwrap_or(0);
        match self {
            Self::Making => LOCK_BASE,
            Self::Owner => LOCK_BASE + 1,
            Self::User => LOCK_BASE + 2,
            Self::Slot(index) => number(LOCK_BASE + (1 << 20), index),
            Self::Block(index) => number(LOCK_BASE + (1 << 21), index),
        }
    }
}

/// Opens the file of a GPU, and creates it if needed.
pub(crate) fn open(path: &Path, capacity: u64) -> io::Result<(File, Map)> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => make(path)?,
        opened => opened?,
    };
    lock(&file, LockByte::Making, LockKind::Write, true)?;
    let map = prepare(&file, path, capacity);
    unlock(&file, LockByte::Making)?;
    Ok((file, map?))
}

/// Opens the file of a GPU if it exists.
pub(crate) fn open_existing(path: &Path) -> io::Result<(File, Map)> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let map = map(path)?;
    if map.header.magic.load(Acquire) != MAGIC {
        return Err(version_mismatch(path));
    }
    Ok((file, map))
}

fn version_mismatch(path: &Path) -> io::Error {
    let message = format!("{} is not a simulated GPU of this version; remove it", path.display());
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn make(path: &Path) -> io::Result<File> {
    let permissions = |mode| Permissions::from_mode(mode);
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
    }
    let mut options = OpenOptions::new();
    let file =
        options.read(true).write(true).create(true).truncate(false).mode(0o666).open(path)?;
    // Independent of this process's umask. The file of another user has its mode already.
    let _ = file.set_permissions(permissions(0o666));
    Ok(file)
}

/// Makes a folder in which processes of any user have files: containers run as any user, and all of them share the GPU.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    if DirBuilder::new().mode(0o777).create(folder).is_ok() {
        std::fs::set_permissions(folder, Permissions::from_mode(0o1777))?;
    }
    Ok(())
}

fn prepare(file: &File, path: &Path, capacity: u64) -> io::Result<Map> {
    let size = u64::try_from(SIZE).unwrap_or(u64::MAX);
    let is_new = file.metadata()?.len() == 0;
    if is_new {
        file.set_len(size)?;
    } else if file.metadata()?.len() != size {
        return Err(version_mismatch(path));
    }
    let map = map(path)?;
    let header = &map.header;
    if header.magic.load(Acquire) == 0 {
        header.size.store(size, Relaxed);
        header.capacity.store(capacity, Relaxed);
        header.magic.store(MAGIC, Release);
    } else if header.magic.load(Acquire) != MAGIC || header.size.load(Relaxed) != size {
        return Err(version_mismatch(path));
    }
    // The machine's description may have changed since.
    header.capacity.store(capacity, Relaxed);
    Ok(map)
}

/// Maps the file through a separate open file. A mapping keeps its open file, with all locks, as
/// long as a child of `fork` has the mapping.
fn map(path: &Path) -> io::Result<Map> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    if file.metadata()?.len() < u64::try_from(SIZE).unwrap_or(u64::MAX) {
        return Err(version_mismatch(path));
    }
    // JUSTIFICATION: processes share the GPU by mapping its file.
    // SAFETY: a new mapping of a file that is open for reading and writing; it replaces nothing.
    let place = unsafe {
        libc::mmap(
            ptr::null_mut(),
            SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if place == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(place.cast()).map(Map).ok_or_else(io::Error::last_os_error)
}

/// A mapping of the file.
#[derive(Debug)]
pub(crate) struct Map(NonNull<Layout>);

// SAFETY: the mapping belongs to the process and not to a thread, and all its fields are atomic.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Deref for Map {
    type Target = Layout;

    fn deref(&self) -> &Layout {
        // JUSTIFICATION: see `map`.
        // SAFETY: a mapping of `SIZE` bytes, page-aligned, which lives as long as `self`. Every bit
        // pattern is a valid layout, and other processes change it through atomics only.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, to which no reference outlives `self`.
        unsafe { libc::munmap(self.0.as_ptr().cast(), SIZE) };
    }
}

/// Kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
}

/// Locks a byte for this open file; without `wait`, fails if another file holds it.
pub(crate) fn lock(file: &File, byte: LockByte, kind: LockKind, wait: bool) -> io::Result<()> {
    let command = if wait { libc::F_OFD_SETLKW } else { libc::F_OFD_SETLK };
    loop {
        match request(file.as_raw_fd(), command, byte, kind_number(kind)) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer.map(drop),
        }
    }
}

/// Unlocks a byte.
pub(crate) fn unlock(file: &File, byte: LockByte) -> io::Result<()> {
    request(file.as_raw_fd(), libc::F_OFD_SETLK, byte, libc::F_UNLCK).map(drop)
}

/// Whether another open file holds a lock on the byte.
pub(crate) fn is_held(file: &File, byte: LockByte) -> bool {
    match request(file.as_raw_fd(), libc::F_OFD_GETLK, byte, libc::F_WRLCK) {
        Ok(kind) => i32::from(kind) != libc::F_UNLCK,
        // If the query fails, the process counts as alive.
        Err(_) => true,
    }
}

fn kind_number(kind: LockKind) -> i32 {
    match kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
    }
}

fn request(fd: RawFd, command: i32, byte: LockByte, kind: i32) -> io::Result<i16> {
    let mut wanted = libc::flock {
        l_type: i16::try_from(kind).unwrap_or(0),
        l_whence: i16::try_from(libc::SEEK_SET).unwrap_or(0),
        l_start: byte.offset(),
        l_len: 1,
        // Must be zero for locks of open files.
        l_pid: 0,
    };
    // JUSTIFICATION: the standard library has no locks on single bytes.
    // SAFETY: `fd` is open, and the structure has the type that these commands take.
    let answer = unsafe { libc::fcntl(fd, command, &raw mut wanted) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(wanted.l_type) }
}

/// Closes the file in a child of `fork`: only the parent owns the slot.
pub(crate) fn close_in_child(file: &File) {
    // JUSTIFICATION: the file cannot be dropped, because other references to it may exist, and the
    // child may only do what is async-signal-safe.
    // SAFETY: closing a descriptor touches no memory. By the contract of
    // [`ProcessHandle::leave_in_child`](crate::ProcessHandle::leave_in_child), the child does not
    // use it afterwards.
    unsafe { libc::close(file.as_raw_fd()) };
}
