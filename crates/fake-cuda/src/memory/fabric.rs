//! Memory that processes of other nodes import (`CU_MEM_HANDLE_TYPE_FABRIC`).
//!
//! A process needs an IMEX channel to create such memory, and the exporter's channel to import it. Importing also needs
//! the node's IMEX service, ready and connected with the exporter's node. Nodes reach each other within a clique.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use octavo_fake_gpu::NodeId;
use octavo_fake_gpu::fabric::{self, FabricHandle, FabricPlace, HANDLE_BYTES};
use octavo_fake_gpu::imex::ServiceReport;

use crate::code::{CallResult, Code};
use crate::context;
use crate::library;
use crate::machine::Driver;

/// `CUmemFabricHandle`.
pub(crate) type HandleBytes = [u8; HANDLE_BYTES];

/// Whether this process has imported memory.
static HAS_IMPORTED: AtomicBool = AtomicBool::new(false);

/// Creates memory of zeros with a handle.
pub(crate) fn create(bytes: u64) -> Result<(FabricHandle, File), Code> {
    let driver = library::driver()?;
    let channel = driver.location.lowest_channel().ok_or(Code::NOT_PERMITTED)?;
    let place = place(driver)?;
    let folder = fabric::folder(&driver.location.folder);
    fabric::create(&folder, place, channel, bytes).map_err(|_| Code::OPERATING_SYSTEM)
}

/// Opens the memory of a handle, which may be any bytes.
pub(crate) fn open(bytes: &HandleBytes) -> Result<(FabricHandle, File), Code> {
    let driver = library::driver()?;
    let (own, handle) = (place(driver)?, FabricHandle::from_bytes(bytes));
    let FabricPlace { cluster, clique, node } = handle.place;
    if (cluster, clique) != (own.cluster, own.clique) {
        return Err(Code::NOT_SUPPORTED);
    }
    if !driver.location.may_open_channel(handle.channel) {
        return Err(Code::NOT_PERMITTED);
    }
    if !ServiceReport::read(&driver.location.folder).reaches(node) {
        return Err(Code::INVALID_HANDLE);
    }
    let folder = fabric::folder(&driver.location.folder);
    let file = fabric::open(&folder, &handle).map_err(|_| Code::INVALID_HANDLE)?;
    HAS_IMPORTED.store(true, Relaxed);
    Ok((handle, file))
}

/// Removes memory that no other process knows.
pub(crate) fn remove(handle: &FabricHandle) {
    if let Some(driver) = library::opened() {
        fabric::remove(&fabric::folder(&driver.location.folder), handle);
    }
}

/// Whether this process has imported memory: if not, all that it has is reachable.
pub(crate) fn has_imported() -> bool {
    HAS_IMPORTED.load(Relaxed)
}

/// Fails for memory of a node that the IMEX service has given up, and breaks the current context.
pub(crate) fn check_reachable(node: NodeId) -> CallResult {
    let driver = library::driver()?;
    if !ServiceReport::read(&driver.location.folder).lost.contains(&node) {
        return Ok(());
    }
    if let (Some(context), Some(device)) = (context::current_handle(), context::current_device()) {
        context::break_at(context, device.process_handle()?.submitted(), Code::ILLEGAL_ADDRESS)?;
    }
    Err(Code::ILLEGAL_ADDRESS)
}

fn place(driver: &Driver) -> Result<FabricPlace, Code> {
    FabricPlace::of(&driver.machine).ok_or(Code::NOT_SUPPORTED)
}
