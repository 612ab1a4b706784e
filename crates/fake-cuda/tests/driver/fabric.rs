//! Memory shared between nodes of a fabric, with their IMEX services.

use octavo_fake_gpu::imex::ServiceReport;

use crate::call;
use crate::node::{CONTEXT, Cuda, GIB, INVALID_VALUE, MIB, Node, OUT_OF_MEMORY};
use crate::processes::{Other, machine, say_ready_and_wait};
use crate::rack::{Rack, eventually, fabric_node, memory_files, set_channels, start};

const FABRIC: u32 = 8;
const INVALID_HANDLE: u32 = 400;
const ILLEGAL_ADDRESS: u32 = 700;
const NOT_PERMITTED: u32 = 800;
const NOT_SUPPORTED: u32 = 801;

/// `CUmemFabricHandle`.
type FabricHandle = [u8; 64];

impl Cuda {
    fn export(&self, memory: usize) -> Result<FabricHandle, u32> {
        let mut handle = [0; 64];
        match call!(self, cuMemExportToShareableHandle(
            handle.as_mut_ptr() => *mut u8, memory => usize, FABRIC => u32, 0 => u64))
        {
            0 => Ok(handle),
            code => Err(code),
        }
    }

    fn import(&self, handle: &FabricHandle) -> Result<usize, u32> {
        let mut memory = 0_usize;
        match call!(self, cuMemImportFromShareableHandle(
            &raw mut memory => *mut usize, handle.as_ptr() => *const u8, FABRIC => u32))
        {
            0 => Ok(memory),
            code => Err(code),
        }
    }

    /// New addresses of memory, with access.
    fn mapped(&self, memory: usize, size: u64) -> u64 {
        let address = self.reserve(size);
        assert_eq!((self.map(address, size, memory), self.allow(address, size)), (0, 0));
        address
    }

    /// Exported memory: itself, and its handle.
    fn exported_memory(&self, size: u64) -> (usize, FabricHandle) {
        let memory = self.create_for(FABRIC, size).unwrap();
        (memory, self.export(memory).unwrap())
    }

    /// Whether the first GPU can have fabric handles.
    fn has_fabric_handles(&self) -> i32 {
        let mut value = -1;
        let code =
            call!(self, cuDeviceGetAttribute(&raw mut value => *mut i32, 128 => u32, 0 => i32));
        assert_eq!(code, 0);
        value
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_node_writes_the_other_reads() {
    let rack = Rack::new();
    let _services = rack.connected().await;
    let (one, two) = (rack.first.ready(), rack.second.ready());
    assert_eq!(one.has_fabric_handles(), 1);
    let (memory, handle) = one.exported_memory(4 * MIB);
    let here = one.mapped(memory, 4 * MIB);
    assert_eq!(one.upload(here + MIB, b"from one"), 0);
    let imported = two.import(&handle).unwrap();
    let there = two.mapped(imported, 4 * MIB);
    assert_eq!(two.download(there + MIB, 8).unwrap(), b"from one");
    let local = two.allocate(MIB).unwrap();
    assert_eq!(call!(two, cuMemcpyDtoD_v2(local => u64, there + MIB => u64, 8 => usize)), 0);
    assert_eq!(two.download(local, 8).unwrap(), b"from one");
    assert_eq!(two.upload(there, b"from two"), 0);
    assert_eq!(one.download(here, 8).unwrap(), b"from two");
    let mut prop = [0_u32; 8];
    let code = call!(two, cuMemGetAllocationPropertiesFromHandle(
        prop.as_mut_ptr() => *mut u32, imported => usize));
    assert_eq!((code, prop[1]), (0, FABRIC));
    let mut again = 0_usize;
    let code = call!(two, cuMemRetainAllocationHandle(
        &raw mut again => *mut usize, there => u64));
    assert_eq!((code, again), (0, imported));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_counted_on_its_own_gpu_until_the_last_user_is_done() {
    let rack = Rack::new();
    let _services = rack.connected().await;
    let (one, two) = (rack.first.ready(), rack.second.ready());
    let (memory, handle) = one.exported_memory(GIB);
    let imported = two.import(&handle).unwrap();
    let there = two.mapped(imported, GIB);
    assert_eq!((one.used(), two.used()), (CONTEXT + GIB, CONTEXT));
    assert_eq!(one.release(memory), 0);
    assert_eq!(two.release(imported), 0);
    assert_eq!(one.used(), CONTEXT + GIB, "the other node has it mapped");
    assert_eq!(two.upload(there, b"still there"), 0);
    assert_eq!(two.unmap(there, GIB), 0);
    assert_eq!((one.used(), two.used(), memory_files(&rack)), (CONTEXT, CONTEXT, 0));
    assert_eq!(two.import(&handle), Err(INVALID_HANDLE), "it is gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exporter_s_own_process_and_node_import_by_the_same_rules() {
    let rack = Rack::new();
    let one = rack.first.ready();
    let (memory, handle) = one.exported_memory(2 * MIB);
    assert_eq!(one.import(&handle), Err(INVALID_HANDLE), "no service");
    let _services = rack.connected().await;
    let imported = one.import(&handle).unwrap();
    assert_eq!(one.used(), CONTEXT + 2 * MIB);
    assert_eq!((one.release(memory), one.used()), (0, CONTEXT + 2 * MIB));
    assert_eq!((one.release(imported), one.used()), (0, CONTEXT));
}

#[test]
fn memory_needs_a_channel_and_importers_need_the_same() {
    let rack = Rack::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _services = runtime.block_on(rack.connected());
    set_channels(&rack.first, &[7, 3]);
    set_channels(&rack.second, &[]);
    let (one, two) = (rack.first.ready(), rack.second.ready());
    assert_eq!(two.has_fabric_handles(), 1, "the GPU can, the process may not");
    assert_eq!(two.create_for(FABRIC, 2 * MIB), Err(NOT_PERMITTED));
    assert_eq!(two.create_for(1, 2 * MIB).err(), None);
    let (_memory, handle) = one.exported_memory(2 * MIB);
    assert_eq!(two.import(&handle), Err(NOT_PERMITTED));
    set_channels(&rack.second, &[7]);
    assert_eq!(two.import(&handle), Err(NOT_PERMITTED), "it is of channel 3");
    set_channels(&rack.second, &[3]);
    assert!(two.import(&handle).is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_imported_only_while_the_services_are_connected() {
    let rack = Rack::new();
    let (one, two) = (rack.first.ready(), rack.second.ready());
    let (_memory, handle) = one.exported_memory(2 * MIB);
    assert_eq!(two.import(&handle), Err(INVALID_HANDLE), "no service");
    let second = start(rack.second.folder.path()).await;
    let own = fabric_node(&rack.second);
    eventually(|| ServiceReport::read(rack.second.folder.path()).reaches(own)).await;
    assert_eq!(two.import(&handle), Err(INVALID_HANDLE), "its peer is missing");
    let first = start(rack.first.folder.path()).await;
    rack.wait_until_reached(true).await;
    assert!(two.import(&handle).is_ok());
    first.shut_down().await;
    rack.wait_until_reached(false).await;
    assert_eq!(two.import(&handle), Err(INVALID_HANDLE), "its peer has ended");
    second.shut_down().await;
    assert_eq!(two.import(&handle), Err(INVALID_HANDLE));
}

#[test]
fn is_an_imex_service() {
    let Some(machine) = machine() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _service = runtime.block_on(start(&machine));
    say_ready_and_wait();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_service_counts_no_more() {
    let rack = Rack::new();
    let _first = start(rack.first.folder.path()).await;
    let mut second = Other::start_as(&rack.second, "fabric::is_an_imex_service");
    rack.wait_until_reached(true).await;
    let (one, two) = (rack.first.ready(), rack.second.ready());
    let (_memory, handle) = one.exported_memory(2 * MIB);
    assert!(two.import(&handle).is_ok());
    second.kill();
    assert_eq!(two.import(&handle), Err(INVALID_HANDLE));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_of_a_lost_node_cannot_be_accessed() {
    let rack = Rack::new();
    let [first, _second] = rack.connected().await;
    let (one, two) = (rack.first.ready(), rack.second.ready());
    let (_memory, handle) = one.exported_memory(2 * MIB);
    let there = two.mapped(two.import(&handle).unwrap(), 2 * MIB);
    first.shut_down().await;
    let lost = fabric_node(&rack.first);
    eventually(|| ServiceReport::read(rack.second.folder.path()).lost.contains(&lost)).await;
    assert_eq!(two.download(there, 4), Err(ILLEGAL_ADDRESS));
    assert_eq!(two.synchronize(), ILLEGAL_ADDRESS, "its context is broken");
    assert_eq!(one.used(), CONTEXT + 2 * MIB, "the exporter has it as before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_that_was_not_exported_is_refused() {
    let rack = Rack::new();
    let _services = rack.connected().await;
    let (one, two) = (rack.first.ready(), rack.second.ready());
    let (_memory, handle) = one.exported_memory(2 * MIB);
    for index in 0..handle.len() {
        let mut forged = handle;
        forged[index] ^= 0x40;
        let refused = two.import(&forged);
        assert!(matches!(refused, Err(INVALID_HANDLE | NOT_SUPPORTED)), "{index}: {refused:?}");
    }
    assert_eq!(two.import(&[0; 64]), Err(NOT_SUPPORTED));
    let plain = one.create(2 * MIB).unwrap();
    assert_eq!(one.export(plain), Err(INVALID_VALUE), "it was not created for that");
    assert!(two.import(&handle).is_ok());
}

#[test]
fn memory_that_does_not_fit_is_refused_and_leaves_nothing() {
    let rack = Rack::new();
    let one = rack.first.ready();
    assert_eq!(one.create_for(FABRIC, 512 * GIB), Err(OUT_OF_MEMORY));
    let memory = one.create_for(FABRIC | 1, 2 * MIB).unwrap();
    assert_eq!((one.used(), memory_files(&rack)), (CONTEXT + 2 * MIB, 1));
    assert_eq!((one.release(memory), one.used(), memory_files(&rack)), (0, CONTEXT, 0));
}

#[test]
fn machines_without_a_fabric_of_several_nodes_have_no_such_memory() {
    for (name, has_attribute) in [("t4", 0), ("dgx-h100", 1)] {
        let node = Node::new(name);
        let cuda = node.ready();
        assert_eq!(cuda.has_fabric_handles(), has_attribute);
        assert_eq!(cuda.create_for(FABRIC, 2 * MIB), Err(NOT_SUPPORTED));
        assert_eq!(cuda.import(&[0; 64]), Err(NOT_SUPPORTED));
        assert_eq!(cuda.used(), CONTEXT);
    }
}
