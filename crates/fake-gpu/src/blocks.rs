//! Memory shared between processes: it lives until its last user drops it.

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::fabric;
use crate::file::{self, LockByte, LockKind};
use crate::layout::{BLOCKS, Block};
use crate::lock::Locked;
use crate::process_handle::ProcessHandle;

/// A shared block of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockId(usize);

/// Identity of the file with a block's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// Device number of the file system.
    pub device: u64,
    /// Inode.
    pub inode: u64,
}

impl ProcessHandle {
    /// Turns memory of this process into a shared block. This process becomes its first user.
    ///
    /// # Errors
    ///
    /// All blocks are in use, or the GPU's file cannot be locked.
    pub fn share(&self, bytes: u64, contents: FileIdentity) -> io::Result<BlockId> {
        self.share_in_fabric(bytes, contents, 0)
    }

    /// As [`share`](Self::share), for memory that other nodes can import under this number: it lives until they have
    /// dropped it as well.
    ///
    /// # Errors
    ///
    /// As for `share`.
    pub fn share_in_fabric(
        &self,
        bytes: u64,
        contents: FileIdentity,
        allocation: u64,
    ) -> io::Result<BlockId> {
        let locked = self.lock();
        locked.reap();
        let free = (0..BLOCKS).find(|&index| self.block(index).state.load(Acquire) == 0);
        let index =
            free.ok_or_else(|| io::Error::other("all shared blocks of the GPU are in use"))?;
        self.hold(index)?;
        let block = self.block(index);
        block.owner.store(self.number(), Relaxed);
        block.bytes.store(bytes, Relaxed);
        block.device.store(contents.device, Relaxed);
        block.inode.store(contents.inode, Relaxed);
        block.allocation.store(allocation, Relaxed);
        block.state.store(1, Release);
        let used = u32::try_from(index + 1).unwrap_or(u32::MAX);
        self.map().header.blocks_used.fetch_max(used, AcqRel);
        let slot = self.slot();
        slot.used.store(slot.used.load(Relaxed).saturating_sub(bytes), Relaxed);
        locked.recompute_total();
        Ok(BlockId(index))
    }

    /// Finds the block with these contents and its size in bytes. This process becomes a user of
    /// it.
    pub fn use_shared(&self, contents: FileIdentity) -> Option<(BlockId, u64)> {
        let _locked = self.lock();
        let index = (0..BLOCKS).find(|&index| {
            let block = self.block(index);
            block.state.load(Acquire) != 0
                && block.inode.load(Relaxed) == contents.inode
                && block.device.load(Relaxed) == contents.device
        })?;
        self.hold(index).ok()?;
        Some((BlockId(index), self.block(index).bytes.load(Relaxed)))
    }

    /// Ends one use of a block by this process. The last user frees its memory.
    pub fn drop_shared(&self, id: BlockId) {
        let locked = self.lock();
        if !self.release_use(id.0) {
            return;
        }
        let block = self.block(id.0);
        if block.owner.load(Relaxed) == self.number() {
            block.owner.store(0, Relaxed);
        }
        if locked.reap_blocks() {
            locked.recompute_total();
        }
    }

    /// Counts one more use of a block by this process.
    fn hold(&self, index: usize) -> io::Result<()> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uses) = shared.get_mut(&index) {
            *uses += 1;
            return Ok(());
        }
        file::lock(self.file(), LockByte::Block(index), LockKind::Read, false)?;
        shared.insert(index, 1);
        Ok(())
    }

    /// Counts one use less. Returns whether it was the last of this process.
    fn release_use(&self, index: usize) -> bool {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(uses) = shared.get_mut(&index) else { return false };
        *uses -= 1;
        if *uses > 0 {
            return false;
        }
        shared.remove(&index);
        // A failed unlock cannot be handled.
        let _ = file::unlock(self.file(), LockByte::Block(index));
        true
    }

    fn uses(&self, index: usize) -> bool {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&index)
    }

    fn block(&self, index: usize) -> &Block {
        &self.map().blocks[index]
    }
}

impl Locked<'_> {
    /// Frees blocks without users. Returns whether there were any. A process does not see its own
    /// locks.
    pub(crate) fn reap_blocks(&self) -> bool {
        let (map, file) = (self.0.map(), self.0.file());
        let used = map.header.blocks_used.load(Acquire) as usize;
        let mut is_changed = false;
        for (index, block) in map.blocks.iter().enumerate().take(used) {
            let byte = LockByte::Block(index);
            if block.state.load(Acquire) == 0 || file::is_held(file, byte) || self.0.uses(index) {
                continue;
            }
            if !fabric::remove_unless_imported(self.0.fabric(), block.allocation.load(Relaxed)) {
                continue;
            }
            block.bytes.store(0, Relaxed);
            block.owner.store(0, Relaxed);
            block.state.store(0, Release);
            is_changed = true;
        }
        is_changed
    }

    /// Clears the owner of blocks whose process has died: the slot's next process is another one.
    pub(crate) fn disown(&self, slot: usize) {
        let number = u32::try_from(slot + 1).unwrap_or(u32::MAX);
        for block in &self.0.map().blocks {
            let _ = block.owner.compare_exchange(number, 0, AcqRel, Relaxed);
        }
    }
}
