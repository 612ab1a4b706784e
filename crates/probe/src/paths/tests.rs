use std::fs;
use std::path::Path;

use super::*;

/// The driver of a simulated machine in a folder, with the machine's state as JSON.
pub(crate) fn with_driver(machine: &str, state: &str, body: impl FnOnce(&Cuda)) {
    let folder = tempfile::tempdir().expect("a folder");
    let test = std::env::current_exe().expect("this program");
    let deps = test.parent().expect("a folder");
    let library = folder.path().join("libcuda.so.1");
    fs::copy(deps.join("liboctavo_fake_cuda.so"), &library).expect("cargo builds the library");
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    fs::copy(machines.join(machine), folder.path().join("machine.yaml")).expect("a machine");
    fs::write(folder.path().join("state.json"), state).expect("a state");
    let cuda = Cuda::open(&library.to_string_lossy()).expect("the library");
    cuda.init(0).expect("a driver");
    body(&cuda);
}

/// The first GPU of a simulated machine.
pub(crate) fn with_gpu(machine: &str, body: impl FnOnce(&GpuContext<'_>)) {
    with_driver(machine, "{}", |cuda| {
        let mut context = std::ptr::null_mut();
        cuda.primary_retain(&mut context, 0).expect("a context");
        cuda.context_set(context).expect("a context");
        body(&GpuContext { cuda, device: 0, context });
    });
}

fn path(name: &str) -> &'static AllocationPath {
    ALLOCATION_PATHS.iter().find(|path| path.name == name).expect("a path")
}

#[test]
fn the_path_for_a_fabric_is_tried_on_gpus_that_other_nodes_reach() {
    with_gpu("gb200-tray.yaml", |context| {
        assert!(is_possible(path("fabric"), context) && is_possible(path("create"), context));
        let capacity = free(context.cuda).expect("memory") / MIN_PIECE_BYTES * MIN_PIECE_BYTES;
        let finding = try_path(path("fabric"), context, capacity, true);
        assert_eq!(finding.verdict, Verdict::Holds, "{finding:?}");
        assert_eq!(finding.granted_bytes, Some(capacity));
        assert_eq!(finding.lost_bytes, None);
    });
    with_gpu("t4.yaml", |context| {
        assert!(!is_possible(path("fabric"), context) && is_possible(path("create"), context));
        let finding = try_path(path("fabric"), context, 64 << 20, true);
        assert_eq!(finding.verdict, Verdict::Unsupported, "if it is named: {finding:?}");
    });
}
