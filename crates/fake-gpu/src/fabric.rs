//! GPU memory that the nodes of an NVLink fabric share: files in a folder that all of them see.
//!
//! The folder is `fabric` in the machine's folder; the lab links it to one folder of all nodes. A container of another
//! mount namespace has that folder at `/run/octavo-fabric`.
//!
//! A file holds the bytes of an allocation, and after them its handle. A handle that differs from it in any byte opens
//! nothing. Locks say who has the file, and the kernel drops them however a process ends: one of the process that made
//! it, and one of each process that imported it. A file without any is removed by the next process that makes one.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use octavo_machine::{FabricState, Machine};

use crate::file::{self, LockByte, LockKind};
use crate::locate::CONTAINER_FOLDER;
use crate::node_id::{NodeId, uuid_number};

/// The folder in a container, where links of the machine's folder lead nowhere.
const FOLDER_IN_CONTAINER: &str = "/run/octavo-fabric";

/// Bytes of a handle (`CUmemFabricHandle`).
pub const HANDLE_BYTES: usize = 64;

/// A node's place in its fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricPlace {
    /// The cluster's UUID.
    pub cluster: u128,
    /// The clique: GPUs of one clique reach each other.
    pub clique: u32,
    /// The node.
    pub node: NodeId,
}

impl FabricPlace {
    /// The place of a machine; `None` if it is in no fabric of several nodes, or not yet.
    pub fn of(machine: &Machine) -> Option<Self> {
        let fabric = machine.fabric.as_ref().filter(|fabric| fabric.spans_nodes())?;
        let is_member = fabric.state == FabricState::Completed;
        let cluster = uuid_number(&fabric.cluster_uuid).filter(|_| is_member)?;
        Some(Self { cluster, clique: fabric.clique_id, node: NodeId::of(machine)? })
    }
}

/// What names memory of a fabric to other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricHandle {
    /// Where its GPU is.
    pub place: FabricPlace,
    /// The IMEX channel of the process that made it.
    pub channel: u32,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its number, never 0.
    pub allocation: u64,
    /// A random number that nothing but the handle tells.
    secret: u64,
}

impl FabricHandle {
    /// The handle as programs send it.
    pub fn to_bytes(self) -> [u8; HANDLE_BYTES] {
        let mut bytes = [0; HANDLE_BYTES];
        bytes[..16].copy_from_slice(&self.place.cluster.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.place.node.0.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.place.clique.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.channel.to_le_bytes());
        for (index, number) in [self.bytes, self.allocation, self.secret].into_iter().enumerate() {
            bytes[40 + index * 8..48 + index * 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// The handle in these bytes, which may be any.
    pub fn from_bytes(bytes: &[u8; HANDLE_BYTES]) -> Self {
        fn number<const N: usize>(bytes: &[u8; HANDLE_BYTES], start: usize) -> [u8; N] {
            std::array::from_fn(|index| bytes[start + index])
        }
        Self {
            place: FabricPlace {
                cluster: u128::from_le_bytes(number(bytes, 0)),
                node: NodeId(u128::from_le_bytes(number(bytes, 16))),
                clique: u32::from_le_bytes(number(bytes, 32)),
            },
            channel: u32::from_le_bytes(number(bytes, 36)),
            bytes: u64::from_le_bytes(number(bytes, 40)),
            allocation: u64::from_le_bytes(number(bytes, 48)),
            secret: u64::from_le_bytes(number(bytes, 56)),
        }
    }
}

/// The folder with a fabric's memory, of the machine in this folder.
pub fn folder(machine: &Path) -> PathBuf {
    let in_container = Path::new(FOLDER_IN_CONTAINER);
    if machine == Path::new(CONTAINER_FOLDER) && in_container.is_dir() {
        return in_container.to_owned();
    }
    machine.join("fabric")
}

/// Makes memory of zeros. This process has it until the file is closed.
///
/// # Errors
///
/// The file cannot be made.
pub fn create(
    folder: &Path,
    place: FabricPlace,
    channel: u32,
    bytes: u64,
) -> io::Result<(FabricHandle, File)> {
    file::make_folder(folder)?;
    sweep(folder);
    let handle =
        FabricHandle { place, channel, bytes, allocation: random()?.max(1), secret: random()? };
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create_new(true).mode(0o666);
    let file = options.open(path(folder, handle.allocation))?;
    file::lock(&file, LockByte::Owner, LockKind::Write, false)?;
    // Independent of this process's umask.
    file.set_permissions(Permissions::from_mode(0o666))?;
    file.write_all_at(&handle.to_bytes(), bytes)?;
    Ok((handle, file))
}

/// Opens memory of another process. This process uses it until the file is closed.
///
/// # Errors
///
/// There is no such memory, or the handle is not its own.
pub fn open(folder: &Path, handle: &FabricHandle) -> io::Result<File> {
    let path = path(folder, handle.allocation);
    let file = OpenOptions::new().read(true).write(true).open(&path)?;
    file::lock(&file, LockByte::Making, LockKind::Write, true)?;
    file::lock(&file, LockByte::User, LockKind::Read, false)?;
    file::unlock(&file, LockByte::Making)?;
    // It may have been removed before the lock.
    let is_there = fs::metadata(&path)?.ino() == file.metadata()?.ino();
    let mut written = [0; HANDLE_BYTES];
    file.read_exact_at(&mut written, handle.bytes)?;
    if is_there && written == handle.to_bytes() {
        Ok(file)
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Removes memory that no other process knows.
pub fn remove(folder: &Path, handle: &FabricHandle) {
    // What stays is removed later, see `sweep`.
    let _ = fs::remove_file(path(folder, handle.allocation));
}

/// Removes memory unless another process has imported it. Returns whether it is gone.
pub(crate) fn remove_unless_imported(folder: &Path, allocation: u64) -> bool {
    if allocation == 0 {
        return true;
    }
    let path = path(folder, allocation);
    let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) else { return true };
    if file::lock(&file, LockByte::Making, LockKind::Write, true).is_err()
        || file::is_held(&file, LockByte::User)
    {
        return false;
    }
    // The file of another user is left to its owner.
    let _ = fs::remove_file(path);
    true
}

/// Whether another process has imported memory.
pub(crate) fn is_imported(folder: &Path, allocation: u64) -> bool {
    allocation != 0
        && File::open(path(folder, allocation))
            .is_ok_and(|file| file::is_held(&file, LockByte::User))
}

/// Removes files that no process has. A recent one may not have its lock yet.
fn sweep(folder: &Path) {
    const MIN_AGE: Duration = Duration::from_mins(1);
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let Ok(file) = File::open(&path) else { continue };
        let changed = file.metadata().and_then(|about| about.modified());
        let is_old = changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= MIN_AGE));
        let has_users = [LockByte::Owner, LockByte::User].map(|byte| file::is_held(&file, byte));
        if is_old && has_users == [false; 2] {
            // The file of another user is left to its owner.
            let _ = fs::remove_file(&path);
        }
    }
}

fn path(folder: &Path, allocation: u64) -> PathBuf {
    folder.join(format!("{allocation:016x}"))
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests;
