//! Physical memory (`cuMemCreate`). It lives until its last handle is released and its last mapping is removed.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use octavo_fake_gpu::fabric::FabricHandle;
use octavo_fake_gpu::{BlockId, FileIdentity, NodeId};

use crate::abi::{FABRIC, MemAllocationProp, location};
use crate::code::{CallResult, Code};
use crate::context::{self, device_of};
use crate::memory::arena::{self, GRANULE};
use crate::memory::fabric::{self, HandleBytes};
use crate::table::{Handle, HandleKind, Table};

/// Physical memory.
pub(crate) struct Memory {
    pub(crate) prop: MemAllocationProp,
    pub(crate) size: u64,
    /// Ordinal of the device; `None` for host memory.
    device: Option<usize>,
    /// Number of unreleased handles.
    handles: u32,
    mappings: u32,
    file: Option<Arc<File>>,
    charge: Charge,
    /// Its handle for processes of other nodes.
    fabric: Option<FabricHandle>,
    is_multicast: bool,
}

/// Where memory of a device is counted.
#[derive(Clone, Copy)]
enum Charge {
    /// For this process.
    Process,
    /// In a block of the GPU, which other processes may use.
    Block(BlockId),
    /// On the GPU of the process that has exported it.
    Exporter,
}

/// All physical memory of the process.
static MEMORY: Table<Memory> = Table::new(HandleKind::Memory);

/// Creates physical memory.
pub(crate) fn create(size: u64, prop: MemAllocationProp) -> Result<Handle, Code> {
    if size == 0 || !size.is_multiple_of(GRANULE) {
        return Err(Code::INVALID_VALUE);
    }
    let device = match prop.location.kind {
        location::DEVICE => Some(prop.ordinal()?),
        location::HOST | location::HOST_NUMA | location::HOST_NUMA_CURRENT => None,
        _ => return Err(Code::INVALID_VALUE),
    };
    if prop.handle_types & FABRIC != 0 {
        return create_in_fabric(size, prop, device.ok_or(Code::NOT_SUPPORTED)?);
    }
    if let Some(device) = device {
        device_of(device)?.charge(size)?;
    }
    MEMORY.insert(Memory::new(prop, size, device))
}

fn create_in_fabric(size: u64, prop: MemAllocationProp, ordinal: usize) -> Result<Handle, Code> {
    let (fabric, file) = fabric::create(size)?;
    let device = device_of(ordinal)?;
    device.charge(size).inspect_err(|_| fabric::remove(&fabric))?;
    MEMORY.insert(Memory {
        file: Some(Arc::new(file)),
        fabric: Some(fabric),
        ..Memory::new(prop, size, Some(ordinal))
    })
}

/// Creates a multicast object. It has no memory of its own.
pub(crate) fn create_multicast(size: u64) -> Result<Handle, Code> {
    let memory = Memory::new(MemAllocationProp::default(), size, None);
    MEMORY.insert(Memory { is_multicast: true, ..memory })
}

/// Checks that a handle is a multicast object.
pub(crate) fn check_multicast(handle: Handle) -> CallResult {
    let is_one = MEMORY.with(handle, |memory| Ok(memory.is_multicast));
    if is_one == Ok(true) { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// Releases a handle once.
pub(crate) fn release(handle: Handle) -> CallResult {
    let is_unused = with(handle, |memory| {
        memory.handles = memory.handles.checked_sub(1).ok_or(Code::INVALID_VALUE)?;
        Ok(memory.is_unused())
    })?;
    if is_unused { end(handle) } else { Ok(()) }
}

/// Counts one more handle. Returns it.
pub(crate) fn retain(handle: Handle) -> Result<Handle, Code> {
    with(handle, |memory| {
        memory.handles += 1;
        Ok(handle)
    })
}

/// Maps a part of memory over reserved addresses. Returns the ordinal of its device.
pub(crate) fn map(
    handle: Handle,
    start: u64,
    size: u64,
    offset: u64,
) -> Result<Option<usize>, Code> {
    with(handle, |memory| {
        if memory.handles == 0 || offset.checked_add(size).is_none_or(|end| end > memory.size) {
            return Err(Code::INVALID_VALUE);
        }
        let file = memory.file()?;
        arena::map_file(start, size, &file, offset).map_err(|_| Code::OUT_OF_MEMORY)?;
        memory.mappings += 1;
        Ok(memory.device)
    })
}

/// Counts one mapping less.
pub(crate) fn unmap(handle: Handle) -> CallResult {
    let is_unused = with(handle, |memory| {
        memory.mappings -= 1;
        Ok(memory.is_unused())
    })?;
    if is_unused { end(handle) } else { Ok(()) }
}

/// Properties of physical memory.
pub(crate) fn prop(handle: Handle) -> Result<MemAllocationProp, Code> {
    with(handle, |memory| Ok(memory.prop))
}

/// A file descriptor for other processes.
pub(crate) fn export(handle: Handle) -> Result<OwnedFd, Code> {
    with(handle, |memory| {
        let file = memory.file()?;
        memory.share(&file)?;
        file.as_fd().try_clone_to_owned().map_err(|_| Code::OPERATING_SYSTEM)
    })
}

/// A handle for processes of other nodes.
pub(crate) fn export_to_fabric(handle: Handle) -> Result<HandleBytes, Code> {
    with(handle, |memory| {
        let fabric = memory.fabric.ok_or(Code::INVALID_VALUE)?;
        let file = memory.file()?;
        memory.share(&file)?;
        Ok(fabric.to_bytes())
    })
}

/// Memory of another process, by its exported descriptor.
pub(crate) fn import(file: File) -> Result<Handle, Code> {
    let contents = identity(&file)?;
    let driver = crate::library::driver()?;
    let found = driver.devices.iter().find_map(|device| {
        let (block, size) = device.process_handle().ok()?.use_shared(contents)?;
        Some((device.ordinal, block, size))
    });
    let (device, block, size) = found.ok_or(Code::INVALID_VALUE)?;
    MEMORY.insert(Memory {
        file: Some(Arc::new(file)),
        charge: Charge::Block(block),
        ..Memory::new(MemAllocationProp::on(device), size, Some(device))
    })
}

/// Memory of a process of any node. To programs it is on the GPU of the current context.
pub(crate) fn import_from_fabric(bytes: &HandleBytes) -> Result<Handle, Code> {
    let (fabric, file) = fabric::open(bytes)?;
    let device = context::current_device().map_or(0, |device| device.ordinal);
    let prop = MemAllocationProp { handle_types: FABRIC, ..MemAllocationProp::on(device) };
    MEMORY.insert(Memory {
        file: Some(Arc::new(file)),
        charge: Charge::Exporter,
        fabric: Some(fabric),
        ..Memory::new(prop, fabric.bytes, Some(device))
    })
}

/// The node whose memory this is, if it was imported from a fabric.
pub(crate) fn exporter(handle: Handle) -> Option<NodeId> {
    let find = |memory: &mut Memory| {
        let is_imported = matches!(memory.charge, Charge::Exporter);
        Ok(memory.fabric.filter(|_| is_imported).map(|fabric| fabric.place.node))
    };
    with(handle, find).ok().flatten()
}

/// Whether the process has physical memory that it has exported or imported.
pub(crate) fn is_shared() -> bool {
    let is_shared = |handle: &Handle| {
        MEMORY.with(*handle, |memory| Ok(!matches!(memory.charge, Charge::Process)))
    };
    MEMORY.handles().iter().any(|handle| is_shared(handle) == Ok(true))
}

fn with<A>(handle: Handle, body: impl FnOnce(&mut Memory) -> Result<A, Code>) -> Result<A, Code> {
    MEMORY.with(handle, body).map_err(|code| match code {
        Code::INVALID_HANDLE => Code::INVALID_VALUE,
        code => code,
    })
}

fn end(handle: Handle) -> CallResult {
    let memory = MEMORY.remove(handle)?;
    let Some(device) = memory.device else { return Ok(()) };
    let device = device_of(device)?;
    match memory.charge {
        Charge::Block(block) => device.process_handle()?.drop_shared(block),
        Charge::Process => {
            device.refund(memory.size);
            if let Some(fabric) = &memory.fabric {
                fabric::remove(fabric);
            }
        }
        Charge::Exporter => {}
    }
    Ok(())
}

/// Identity of a file's contents.
pub(crate) fn identity(file: &File) -> Result<FileIdentity, Code> {
    let about = file.metadata().map_err(|_| Code::INVALID_VALUE)?;
    Ok(FileIdentity { device: about.dev(), inode: about.ino() })
}

impl Memory {
    /// Memory with one handle that no other process has.
    fn new(prop: MemAllocationProp, size: u64, device: Option<usize>) -> Self {
        Self {
            prop,
            size,
            device,
            handles: 1,
            mappings: 0,
            file: None,
            charge: Charge::Process,
            fabric: None,
            is_multicast: false,
        }
    }

    fn is_unused(&self) -> bool {
        self.handles == 0 && self.mappings == 0
    }

    /// Counts it in a block of its GPU from now on, so that other processes can use it.
    fn share(&mut self, file: &File) -> CallResult {
        if let (Some(device), Charge::Process) = (self.device, self.charge) {
            let process = device_of(device)?.process_handle()?;
            let allocation = self.fabric.map_or(0, |fabric| fabric.allocation);
            let shared = process.share_in_fabric(self.size, identity(file)?, allocation);
            self.charge = Charge::Block(shared.map_err(|_| Code::OPERATING_SYSTEM)?);
        }
        Ok(())
    }

    fn file(&mut self) -> Result<Arc<File>, Code> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = arena::memory_file(self.size).map_err(|_| Code::OPERATING_SYSTEM)?;
        Ok(self.file.insert(Arc::new(file)).clone())
    }
}
