//! Memory that processes share: it lives until the last of them is done with it.

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::file::{self, LockByte, LockKind};
use crate::layout::{BLOCKS, Block};
use crate::lock::Locked;
use crate::process_handle::ProcessHandle;

/// A shared block of a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockId(usize);

/// What tells the file with a block's contents from all others: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// Number of the file system.
    pub device: u64,
    /// Number of the file in it.
    pub inode: u64,
}

impl ProcessHandle {
    /// Makes memory that this process has into a shared block, which it uses from now on.
    ///
    /// # Errors
    ///
    /// All blocks are taken, or the chip's file cannot be locked.
    pub fn share(&self, bytes: u64, contents: FileIdentity) -> io::Result<BlockId> {
        let locked = self.lock();
        locked.reap();
        let free = (0..BLOCKS).find(|&index| self.block(index).state.load(Acquire) == 0);
        let index =
            free.ok_or_else(|| io::Error::other("too much memory of the chip is shared"))?;
        self.hold(index)?;
        let block = self.block(index);
        block.owner.store(self.number(), Relaxed);
        block.bytes.store(bytes, Relaxed);
        block.device.store(contents.device, Relaxed);
        block.inode.store(contents.inode, Relaxed);
        block.state.store(1, Release);
        let used = u32::try_from(index + 1).unwrap_or(u32::MAX);
        self.map().header.blocks_used.fetch_max(used, AcqRel);
        let slot = self.slot();
        slot.used.store(slot.used.load(Relaxed).saturating_sub(bytes), Relaxed);
        locked.recompute_total();
        Ok(BlockId(index))
    }

    /// The block with these contents and its size in bytes, which this process uses from now on.
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

    /// Ends this process's use of a block; the last one frees its memory.
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

    /// Counts one use less; whether it was the last of this process.
    fn release_use(&self, index: usize) -> bool {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(uses) = shared.get_mut(&index) else { return false };
        *uses -= 1;
        if *uses > 0 {
            return false;
        }
        shared.remove(&index);
        // Nothing is left to do where a lock cannot be given back.
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
    /// Frees blocks that nobody uses; whether there were any. A process does not see its own locks.
    pub(crate) fn reap_blocks(&self) -> bool {
        let (map, file) = (self.0.map(), self.0.file());
        let used = map.header.blocks_used.load(Acquire) as usize;
        let mut is_changed = false;
        for (index, block) in map.blocks.iter().enumerate().take(used) {
            let byte = LockByte::Block(index);
            if block.state.load(Acquire) == 0 || file::is_held(file, byte) || self.0.uses(index) {
                continue;
            }
            block.bytes.store(0, Relaxed);
            block.owner.store(0, Relaxed);
            block.state.store(0, Release);
            is_changed = true;
        }
        is_changed
    }

    /// Blocks of a slot whose process is dead count for nobody: the next one there is another.
    pub(crate) fn disown(&self, slot: usize) {
        let number = u32::try_from(slot + 1).unwrap_or(u32::MAX);
        for block in &self.0.map().blocks {
            let _ = block.owner.compare_exchange(number, 0, AcqRel, Relaxed);
        }
    }
}
