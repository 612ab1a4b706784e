use super::*;

const GIB: u64 = 1 << 30;

fn machine() -> Machine {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/t4.yaml");
    Machine::read(&path).unwrap()
}

#[test]
fn an_unused_gpu_has_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut gpu = GpuUsage::default();
    assert!(gpu.open(folder.path(), 0, &machine()).is_none());
    assert_eq!((gpu.used(), gpu.users(), gpu.percent()), (0, Vec::new(), 0));
    assert!(!folder.path().join("chip").exists(), "looking makes nothing");
}

#[test]
fn a_process_is_listed_with_its_memory_while_it_has_contexts() {
    let folder = tempfile::tempdir().unwrap();
    let gpu = FakeGpu::open(folder.path(), 0, 8 * GIB, Clock::Virtual).unwrap();
    let process = gpu.attach().unwrap();
    assert!(process.charge(GIB));
    let mut gpu = GpuUsage::default();
    gpu.open(folder.path(), 0, &machine()).unwrap();
    assert_eq!((gpu.users(), gpu.used()), (Vec::new(), GIB));
    process.add_context();
    let users = gpu.users();
    assert_eq!((users.len(), users[0].pid, users[0].used), (1, std::process::id(), GIB));
    drop(process);
    assert_eq!((gpu.users(), gpu.used()), (Vec::new(), 0));
}

#[test]
fn utilization_covers_the_time_since_the_last_query() {
    let folder = tempfile::tempdir().unwrap();
    let gpu = FakeGpu::open(folder.path(), 0, 8 * GIB, Clock::Virtual).unwrap();
    let process = gpu.attach().unwrap();
    process.add_context();
    let mut gpu = GpuUsage::default();
    gpu.open(folder.path(), 0, &machine()).unwrap();
    let mark = process.submit(5_000);
    assert_eq!((gpu.percent(), gpu.shares()[0].1), (100, 100), "there is work that waits");
    assert!(process.wait(mark, &mut || false));
    assert_eq!(gpu.percent(), 100, "the answer holds for a while");
}
