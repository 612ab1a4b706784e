//! Addresses of device memory, and the host's memory behind them.
//!
//! A device's addresses are one reserved stretch in which only pages that were written take
//! memory of the host. All of the crate's copying is here, too.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;

/// Bytes in which chips give memory.
pub(crate) const GRANULE: u64 = 2 << 20;

/// Rounds up to what a gpu gives.
pub(crate) fn granules(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(GRANULE)
}

/// Reserves addresses; what is written to them is kept. Aligned to `align`, a power of two.
pub(crate) fn reserve(length: u64, align: u64) -> io::Result<u64> {
    let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
    let align = align.max(GRANULE);
    let wide = length.checked_add(align).ok_or_else(too_much)?;
    let size = usize::try_from(wide).map_err(|_| too_much())?;
    // JUSTIFICATION: addresses of the device must be addresses of the process, too.
    // SAFETY: a new private mapping that replaces nothing.
    let place = unsafe {
        libc::mmap(
            ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if place == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start = place.expose_provenance() as u64;
    let aligned = start.next_multiple_of(align);
    if aligned > start {
        unmap(start, aligned - start);
    }
    if start + wide > aligned + length {
        unmap(aligned + length, start + wide - aligned - length);
    }
    // Dumps of crashed programs would hold all that their GPU had.
    advise(aligned, length, libc::MADV_DONTDUMP);
    Ok(aligned)
}

/// Reserves addresses of 32 bits, where the processor has a entry to ask for such.
pub(crate) fn reserve_low(length: u64) -> io::Result<u64> {
    #[cfg(target_arch = "x86_64")]
    const LOW: libc::c_int = libc::MAP_32BIT;
    #[cfg(not(target_arch = "x86_64"))]
    const LOW: libc::c_int = 0;
    let too_much = |_| io::Error::from(io::ErrorKind::OutOfMemory);
    let size = usize::try_from(length).map_err(too_much)?;
    // JUSTIFICATION: as for `reserve`.
    // SAFETY: a new private mapping that replaces nothing.
    let place = unsafe {
        libc::mmap(
            ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | LOW,
            -1,
            0,
        )
    };
    if place == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start = place.expose_provenance() as u64;
    if start + length > u64::from(u32::MAX) {
        unmap(start, length);
        return Err(io::Error::from(io::ErrorKind::OutOfMemory));
    }
    Ok(start)
}

/// Gives addresses back.
pub(crate) fn unmap(start: u64, length: u64) {
    let Ok(size) = usize::try_from(length) else { return };
    // SAFETY: the caller has these addresses from `reserve`, and uses them no more.
    unsafe { libc::munmap(pointer(start), size) };
}

/// Forgets what was written: it reads as zero again and takes no memory of the host.
pub(crate) fn discard(start: u64, length: u64) {
    advise(start, length, libc::MADV_DONTNEED);
}

fn advise(start: u64, length: u64, advice: i32) {
    let Ok(size) = usize::try_from(length) else { return };
    // SAFETY: the addresses are from `reserve`; none of these kinds of advice touches others.
    unsafe { libc::madvise(pointer(start), size, advice) };
}

/// Puts a file's contents in the place of reserved addresses.
pub(crate) fn map_file(start: u64, length: u64, file: &File, offset: u64) -> io::Result<()> {
    let too_much = |_| io::Error::from(io::ErrorKind::OutOfMemory);
    let size = usize::try_from(length).map_err(too_much)?;
    let offset = i64::try_from(offset).map_err(too_much)?;
    // JUSTIFICATION: memory that is mapped twice, or by two processes, is one memory.
    // SAFETY: the addresses are from `reserve`; nothing but device memory was there.
    let place = unsafe {
        libc::mmap(
            pointer(start),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE,
            file.as_raw_fd(),
            offset,
        )
    };
    if place == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Puts empty memory in the place of a file's contents.
pub(crate) fn map_nothing(start: u64, length: u64) {
    let Ok(size) = usize::try_from(length) else { return };
    // SAFETY: the addresses are from `reserve`; the file that was there is not used any more.
    unsafe {
        libc::mmap(
            pointer(start),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
            -1,
            0,
        )
    };
}

/// A file that lies nowhere, for memory that is mapped more than once.
pub(crate) fn memory_file(length: u64) -> io::Result<File> {
    // JUSTIFICATION: the standard library makes no such file.
    // SAFETY: the name is a text that ends in zero.
    let fd = unsafe { libc::memfd_create(c"octavo-fake-cuda".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and belongs to nobody else.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(length)?;
    Ok(file)
}

/// Copies bytes; the stretches may overlap.
///
/// Addresses of the device were checked against what is allocated; for those of the host the
/// caller of the C function answers, as with the real driver.
pub(crate) fn copy(to: u64, from: u64, bytes: u64) {
    let Ok(size) = usize::try_from(bytes) else { return };
    // JUSTIFICATION: moving bytes between any two addresses is what the call is for.
    // SAFETY: device memory is reserved, readable and writable; the caller vouches for the rest.
    unsafe { ptr::copy(pointer(from).cast::<u8>().cast_const(), pointer(to).cast(), size) };
}

/// Fills memory with a value of one, two or four bytes, `count` times.
pub(crate) fn fill(to: u64, value: u32, width: u64, count: u64) {
    if value == 0 && clear(to, width * count) {
        return;
    }
    let Ok(length) = usize::try_from(count) else { return };
    let target = pointer(to);
    if width == 1 {
        // SAFETY: the caller checked that all of it is memory of the device.
        unsafe { ptr::write_bytes(target.cast::<u8>(), value.to_le_bytes()[0], length) };
        return;
    }
    let size = usize::try_from(width).unwrap_or(0);
    let bytes = value.to_le_bytes();
    for index in 0..length {
        // SAFETY: as above.
        let place = unsafe { target.cast::<u8>().add(index * size) };
        // SAFETY: as above; at most four bytes from an array of four.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place, size) };
    }
}

/// Makes much memory zero without touching it, where that is possible: pages of a file that other
/// processes have, too, must be written.
fn clear(to: u64, bytes: u64) -> bool {
    const MIN_CLEAR_BYTES: u64 = 4 << 20;
    if bytes < MIN_CLEAR_BYTES {
        return false;
    }
    let (start, end) = (to.next_multiple_of(GRANULE), (to + bytes) / GRANULE * GRANULE);
    let mut is_private = start < end;
    let mut at = start;
    while is_private && at < end {
        is_private = !crate::memory::vmm::is_file(at) && !crate::memory::ipc::is_file(at);
        at += GRANULE;
    }
    if !is_private {
        return false;
    }
    discard(start, end - start);
    for (from, until) in [(to, start), (end, to + bytes)] {
        let Ok(size) = usize::try_from(until - from) else { continue };
        // SAFETY: part of what the caller checked.
        unsafe { ptr::write_bytes(pointer(from).cast::<u8>(), 0, size) };
    }
    true
}

fn pointer(address: u64) -> *mut libc::c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}
