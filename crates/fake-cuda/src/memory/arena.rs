//! Addresses of device memory, and the host memory behind them.
//!
//! The addresses of a device are one reserved range, in which only written pages take host memory.
//! All copying of the crate is here as well.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;

/// Granularity of a GPU's memory, in bytes.
pub(crate) const GRANULE: u64 = 2 << 20;

/// Rounds up to whole granules.
pub(crate) fn granules(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(GRANULE)
}

/// Reserves zeroed, writable addresses, aligned to `align`, a power of two.
pub(crate) fn reserve(length: u64, align: u64) -> io::Result<u64> {
    let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
    let align = align.max(GRANULE);
    let wide = length.checked_add(align).ok_or_else(too_much)?;
    let size = usize::try_from(wide).map_err(|_| too_much())?;
    // JUSTIFICATION: addresses of the device must be addresses of the process.
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
    // Core dumps would include all device memory.
    advise(aligned, length, libc::MADV_DONTDUMP);
    Ok(aligned)
}

/// Reserves 32-bit addresses, if the processor has a way to request them.
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

/// Releases addresses.
pub(crate) fn unmap(start: u64, length: u64) {
    let Ok(size) = usize::try_from(length) else { return };
    // SAFETY: the caller has these addresses from `reserve`, and uses them no more.
    unsafe { libc::munmap(pointer(start), size) };
}

/// Discards written data: it reads as zero again and takes no host memory.
pub(crate) fn discard(start: u64, length: u64) {
    advise(start, length, libc::MADV_DONTNEED);
}

fn advise(start: u64, length: u64, advice: i32) {
    let Ok(size) = usize::try_from(length) else { return };
    // SAFETY: the addresses are from `reserve`; these kinds of advice affect no others.
    unsafe { libc::madvise(pointer(start), size, advice) };
}

/// Maps a file over reserved addresses.
pub(crate) fn map_file(start: u64, length: u64, file: &File, offset: u64) -> io::Result<()> {
    let too_much = |_| io::Error::from(io::ErrorKind::OutOfMemory);
    let size = usize::try_from(length).map_err(too_much)?;
    let offset = i64::try_from(offset).map_err(too_much)?;
    // JUSTIFICATION: memory that is mapped twice, or by two processes, must be the same memory.
    // SAFETY: the addresses are from `reserve`, and contained only device memory.
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

/// Replaces a mapped file by zeroed memory.
pub(crate) fn map_nothing(start: u64, length: u64) {
    let Ok(size) = usize::try_from(length) else { return };
    // SAFETY: the addresses are from `reserve`; the file mapped there is not used any more.
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

/// An anonymous file, for memory that is mapped more than once.
pub(crate) fn memory_file(length: u64) -> io::Result<File> {
    // JUSTIFICATION: the standard library cannot create such a file.
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"octavo-fake-cuda".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(length)?;
    Ok(file)
}

/// Copies bytes between ranges that may overlap.
///
/// Device addresses were checked against the allocations. The caller of the C function is
/// responsible for host addresses, as with the real driver.
pub(crate) fn copy(to: u64, from: u64, bytes: u64) {
    let Ok(size) = usize::try_from(bytes) else { return };
    // JUSTIFICATION: copying bytes between any two addresses is the purpose of the call.
    // SAFETY: device memory is reserved, readable and writable; the caller is responsible for host
    // memory.
    unsafe { ptr::copy(pointer(from).cast::<u8>().cast_const(), pointer(to).cast(), size) };
}

/// A number of at most eight bytes. The address is checked as for [`copy`].
pub(crate) fn read(from: u64, bytes: u64) -> u64 {
    let mut number = [0_u8; 8];
    let size = usize::try_from(bytes).unwrap_or(0).min(number.len());
    // JUSTIFICATION: a kernel reads memory of the device.
    // SAFETY: the caller checked that it is device memory; at most eight bytes go to an array of eight.
    unsafe { ptr::copy_nonoverlapping(pointer(from).cast::<u8>(), number.as_mut_ptr(), size) };
    u64::from_le_bytes(number)
}

/// Writes the lowest bytes of a number, at most eight. The address is checked as for [`copy`].
pub(crate) fn write(to: u64, number: u64, bytes: u64) {
    let number = number.to_le_bytes();
    let size = usize::try_from(bytes).unwrap_or(0).min(number.len());
    // JUSTIFICATION: a kernel writes memory of the device.
    // SAFETY: as for `read`.
    unsafe { ptr::copy_nonoverlapping(number.as_ptr(), pointer(to).cast(), size) };
}

/// Fills memory with `count` values of one, two or four bytes.
pub(crate) fn fill(to: u64, value: u32, width: u64, count: u64) {
    if value == 0 && clear(to, width * count) {
        return;
    }
    let Ok(length) = usize::try_from(count) else { return };
    let target = pointer(to);
    if width == 1 {
        // SAFETY: the caller checked that all of it is device memory.
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

/// Zeroes a large range without writing to it, if possible. Pages of a file shared with other
/// processes must be written.
fn clear(to: u64, bytes: u64) -> bool {
    const MIN_CLEAR_BYTES: u64 = 4 << 20;
    if bytes < MIN_CLEAR_BYTES {
        return false;
    }
    let (start, end) = (to.next_multiple_of(GRANULE), (to + bytes) / GRANULE * GRANULE);
    let mut is_private = start < end;
    let mut at = start;
    while is_private && at < end {
        is_private = !crate::memory::mappings::is_file(at) && !crate::memory::ipc::is_file(at);
        at += GRANULE;
    }
    if !is_private {
        return false;
    }
    discard(start, end - start);
    for (from, until) in [(to, start), (end, to + bytes)] {
        let Ok(size) = usize::try_from(until - from) else { continue };
        // SAFETY: part of the range that the caller checked.
        unsafe { ptr::write_bytes(pointer(from).cast::<u8>(), 0, size) };
    }
    true
}

fn pointer(address: u64) -> *mut libc::c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}
