//! Memory that processes of other nodes can import.

use octavo_fake_gpu::NodeId;
use octavo_fake_gpu::imex::{Publication, ServiceReport};
use octavo_machine::Machine;

use crate::cuda::{Cuda, GIB, OUT_OF_MEMORY, Prop, ok};
use crate::{call, inside};

const FABRIC: u32 = 8;

impl Cuda {
    fn create_for_fabric(&self, bytes: u64) -> Result<u64, u32> {
        self.create_with(bytes, Prop::for_fabric())
    }

    /// The node's IMEX service, ready, until the returned value is dropped.
    fn start_service(&self) -> Publication {
        let folder = self.folder.join("driver");
        let machine = Machine::read(&folder.join("machine.yaml")).unwrap();
        let connected = NodeId::of(&machine).into_iter().collect();
        let mut publication = Publication::new(&folder);
        let report = ServiceReport { is_ready: true, connected, ..ServiceReport::default() };
        publication.publish(&report).unwrap();
        publication
    }
}

#[test]
fn memory_for_a_fabric_is_counted_like_any_other() {
    let cuda = inside!(4 * GIB);
    assert_eq!(cuda.create_for_fabric(4 * GIB), Err(OUT_OF_MEMORY));
    let handle = cuda.create_for_fabric(3 * GIB).unwrap();
    assert_eq!((cuda.counted(), cuda.used()), (3 * GIB, 3 * GIB));
    assert_eq!(cuda.create_for_fabric(GIB), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.allocate(GIB), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.release(handle), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn memory_is_exported_whole_and_imported_without_a_charge() {
    let cuda = inside!(4 * GIB);
    let _service = cuda.start_service();
    let memory = cuda.create_for_fabric(3 * GIB).unwrap();
    let (mut handle, mut imported) = ([0_u8; 64], 0_u64);
    let code = call!(cuda, cuMemExportToShareableHandle(
        handle.as_mut_ptr() => *mut u8, memory => u64, FABRIC => u32, 0 => u64));
    assert_eq!(code, 0);
    let code = call!(cuda, cuMemImportFromShareableHandle(
        &raw mut imported => *mut u64, handle.as_ptr() => *const u8, FABRIC => u32));
    let imported = ok(code, imported).unwrap();
    assert_ne!(imported, memory);
    assert_eq!((cuda.counted(), cuda.used()), (3 * GIB, 3 * GIB));
    assert_eq!((cuda.release(imported), cuda.release(memory)), (0, 0));
    assert_eq!((cuda.counted(), cuda.used()), (0, 0), "no process has it any more");
}
