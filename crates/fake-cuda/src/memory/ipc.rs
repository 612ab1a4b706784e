//! Device memory that several processes open by handle (`cuIpcGetMemHandle`,
//! `cuMemPoolExportPointer`).
//!
//! The granules of the allocation become a file beside the GPU's file, whose number is the handle.
//! The file exists while the process that created it has the memory; other processes that opened it
//! keep its contents.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use octavo_fake_gpu::BlockId;

use crate::code::{CallResult, Code};
use crate::context::device_of;
use crate::device::Device;
use crate::memory::arena;
use crate::memory::heap::{self, Range, RangeKind};
use crate::memory::vmm;
use crate::table::{Handle, lock};

/// A handle in C.
pub(crate) type IpcHandle = [u8; 64];

/// Granules that are files, by start address.
static SHARED: Mutex<Files> = Mutex::new(Files { own: BTreeMap::new(), opened: BTreeMap::new() });

struct Files {
    /// Memory of this process.
    own: BTreeMap<u64, SharedFile>,
    /// Memory of other processes, by start address.
    opened: BTreeMap<u64, OpenedFile>,
}

struct SharedFile {
    bytes: u64,
    device: usize,
    block: BlockId,
    path: PathBuf,
    number: u64,
}

struct OpenedFile {
    bytes: u64,
    device: usize,
    block: BlockId,
}

/// The handle of an allocation.
pub(crate) fn handle_of(address: u64) -> Result<IpcHandle, Code> {
    let range = heap::find(address).ok_or(Code::INVALID_VALUE)?;
    let (start, bytes) = heap::granules_of(&range).ok_or(Code::INVALID_VALUE)?;
    handle_within(range, start, bytes)
}

/// The handle of an allocation in these granules.
pub(crate) fn handle_within(range: Range, start: u64, bytes: u64) -> Result<IpcHandle, Code> {
    let device = device_of(range.device.ok_or(Code::INVALID_VALUE)?)?;
    let mut files = files();
    let number = match files.own.get(&start) {
        Some(own) => own.number,
        None => share(&mut files, device, start, bytes)?,
    };
    let mut handle = [0; 64];
    let offset = range.start - start;
    let words = [number, device.index.into(), bytes, offset, range.size];
    for (place, word) in handle.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    Ok(handle)
}

/// Opens memory of another process, which ends with a context (0 for none).
pub(crate) fn open(handle: &IpcHandle, context: Handle, kind: RangeKind) -> Result<u64, Code> {
    let mut words =
        handle.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
    let mut next = || words.next().unwrap_or(0);
    let [number, index, bytes, offset, size] = [next(), next(), next(), next(), next()];
    let devices = &crate::library::driver()?.devices;
    let device = devices.iter().find(|device| u64::from(device.index) == index);
    let device = device.ok_or(Code::INVALID_DEVICE)?;
    let path = device.shared_path(number);
    // The path is made of numbers only, though they come from outside.
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let file = opened.map_err(|_| Code::INVALID_VALUE)?;
    let shared = device.process_handle()?.use_shared(vmm::identity(&file)?);
    let (block, _) = shared.ok_or(Code::INVALID_VALUE)?;
    let drop_block = |code| {
        if let Some(process) = device.attached() {
            process.drop_shared(block);
        }
        code
    };
    let start = arena::reserve(bytes, 1).map_err(|_| drop_block(Code::OUT_OF_MEMORY))?;
    if arena::map_file(start, bytes, &file, 0).is_err() {
        arena::unmap(start, bytes);
        return Err(drop_block(Code::MAP_FAILED));
    }
    files().opened.insert(start, OpenedFile { bytes, device: device.ordinal, block });
    let start = start + offset;
    heap::note(Range { start, size, device: Some(device.ordinal), context, kind });
    Ok(start)
}

/// Closes memory of another process.
pub(crate) fn close(address: u64) -> CallResult {
    let range = heap::find(address).filter(|range| range.start == address);
    let range = range.filter(|range| range.kind == RangeKind::Imported);
    let range = range.ok_or(Code::INVALID_VALUE)?;
    heap::forget(address);
    forget(range);
    Ok(())
}

/// Drops memory of another process.
pub(crate) fn forget(range: Range) {
    let mut files = files();
    let Some(start) = files.opened.range(..=range.start).next_back().map(|(start, _)| *start)
    else {
        return;
    };
    let Some(opened) = files.opened.remove(&start) else { return };
    arena::unmap(start, opened.bytes);
    if let Some(process) = device_of(opened.device).ok().and_then(Device::attached) {
        process.drop_shared(opened.block);
    }
}

/// Whether an address is memory that other processes may share.
pub(crate) fn is_file(address: u64) -> bool {
    let files = files();
    let own = files.own.range(..=address).next_back();
    let opened = files.opened.range(..=address).next_back();
    own.is_some_and(|(start, own)| address - start < own.bytes)
        || opened.is_some_and(|(start, opened)| address - start < opened.bytes)
}

/// Whether the process shares memory with others, of its own or of theirs.
pub(crate) fn is_used() -> bool {
    let files = files();
    !files.own.is_empty() || !files.opened.is_empty()
}

/// Drops memory of this process that others may share; they keep it.
pub(crate) fn unshare(start: u64) {
    let Some(own) = files().own.remove(&start) else { return };
    // Processes that opened it keep it; others find nothing.
    let _ = std::fs::remove_file(own.path);
    if let Some(process) = device_of(own.device).ok().and_then(Device::attached) {
        process.drop_shared(own.block);
    }
}

fn share(files: &mut Files, device: &Device, start: u64, bytes: u64) -> Result<u64, Code> {
    let system = |_| Code::OPERATING_SYSTEM;
    sweep(device);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o666);
    // Any unused number will do.
    let made = (0..=u64::MAX).find_map(|try_| {
        let number =
            u64::from(std::process::id()) << 32 | (start / arena::GRANULE + try_) & 0xffff_ffff;
        match options.open(device.shared_path(number)) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => None,
            made => Some((number, made)),
        }
    });
    let (number, file) = made.ok_or(Code::OPERATING_SYSTEM)?;
    let mut file = file.map_err(system)?;
    // Independent of this process's umask.
    let _ = file.set_permissions(std::fs::Permissions::from_mode(0o666));
    file.set_len(bytes).map_err(system)?;
    save(&mut file, start, bytes).map_err(system)?;
    let block = device.process_handle()?.share(bytes, vmm::identity(&file)?).map_err(system)?;
    arena::map_file(start, bytes, &file, 0).map_err(system)?;
    let path = device.shared_path(number);
    files.own.insert(start, SharedFile { bytes, device: device.ordinal, block, path, number });
    Ok(number)
}

/// Removes files of processes that died without doing so. Recent files may still be under
/// construction.
fn sweep(device: &Device) {
    const MIN_AGE: Duration = Duration::from_mins(1);
    let own = device.shared_path(0);
    let (Some(folder), Some(name)) = (own.parent(), own.file_stem()) else { return };
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.extension().is_none() || path.file_stem() != Some(name) {
            continue;
        }
        let Ok(file) = File::open(&path) else { continue };
        let changed = file.metadata().and_then(|about| about.modified());
        let is_young = changed.map_or(true, |at| at.elapsed().is_ok_and(|age| age < MIN_AGE));
        let (Ok(process), Ok(contents)) = (device.process_handle(), vmm::identity(&file)) else {
            continue;
        };
        match process.use_shared(contents) {
            Some((block, _)) => process.drop_shared(block),
            None if is_young => {}
            // The file of another user is left to its owner.
            None => drop(std::fs::remove_file(&path)),
        }
    }
}

/// Writes memory to a file, except pages of zeros.
fn save(file: &mut File, start: u64, bytes: u64) -> std::io::Result<()> {
    const PAGE: u64 = 4096;
    const SIZE: usize = 4096;
    let mut page = [0_u8; SIZE];
    let buffer = page.as_mut_ptr().expose_provenance() as u64;
    for offset in (0..bytes).step_by(SIZE) {
        arena::copy(buffer, start + offset, PAGE);
        if page.iter().any(|byte| *byte != 0) {
            file.seek(SeekFrom::Start(offset))?;
            file.write_all(&page)?;
        }
    }
    Ok(())
}

fn files() -> MutexGuard<'static, Files> {
    lock(&SHARED)
}
