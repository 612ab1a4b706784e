use std::path::Path;

use tempfile::TempDir;

use super::*;

const GIB: u64 = 1 << 30;

fn process(folder: &Path) -> ProcessHandle {
    FakeGpu::open(folder, 3, 8 * GIB, Clock::Virtual).unwrap().attach().unwrap()
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn never() -> bool {
    false
}

#[test]
fn two_processes_have_together_no_more_than_there_is() {
    let folder = folder();
    let (first, second) = (process(folder.path()), process(folder.path()));
    assert!(first.charge(5 * GIB));
    assert!(!second.charge(3 * GIB + 1));
    assert!(second.charge(3 * GIB));
    assert_eq!((first.free(), second.free()), (0, 0));
    first.refund(5 * GIB);
    assert_eq!(second.free(), 5 * GIB);
    let gpu = FakeGpu::existing(folder.path(), 3, Clock::Virtual).unwrap();
    assert_eq!((gpu.used(), gpu.capacity()), (3 * GIB, 8 * GIB));
}

#[test]
fn memory_of_a_dead_process_is_free_at_once() {
    let folder = folder();
    let (first, second) = (process(folder.path()), process(folder.path()));
    assert!(first.charge(6 * GIB));
    assert!(!second.charge(4 * GIB));
    // Closing the file is what the kernel does when a process is killed.
    drop(first);
    assert!(second.charge(8 * GIB));
}

#[test]
fn a_lock_of_a_dead_process_is_taken_over() {
    let folder = folder();
    let (first, second) = (process(folder.path()), process(folder.path()));
    assert!(first.charge(GIB));
    std::mem::forget(first.lock());
    drop(first);
    assert_eq!(second.free(), 8 * GIB);
    let next = process(folder.path());
    assert!(next.charge(8 * GIB));
}

#[test]
fn a_slot_is_reused_only_after_its_process_died() {
    let folder = folder();
    let (first, second) = (process(folder.path()), process(folder.path()));
    assert_eq!((first.slot_index(), second.slot_index()), (0, 1));
    drop(first);
    let next = process(folder.path());
    assert_eq!((next.slot_index(), next.used()), (0, 0));
}

#[test]
fn shared_memory_lives_until_the_last_user_is_done() {
    let folder = folder();
    let (first, second) = (process(folder.path()), process(folder.path()));
    let contents = FileIdentity { device: 1, inode: 2 };
    assert!(first.charge(2 * GIB));
    first.share(2 * GIB, contents).unwrap();
    assert_eq!(first.used(), 0);
    let (id, bytes) = second.use_shared(contents).unwrap();
    assert_eq!((bytes, second.free()), (2 * GIB, 6 * GIB));
    assert_eq!(second.use_shared(FileIdentity { device: 1, inode: 3 }), None);
    drop(first);
    assert_eq!(second.free(), 6 * GIB, "the second process still has it");
    second.drop_shared(id);
    assert_eq!(second.free(), 8 * GIB);
}

#[test]
fn a_block_is_its_makers_in_the_list_of_processes() {
    let folder = folder();
    let (first, second) = (process(folder.path()), process(folder.path()));
    let contents = FileIdentity { device: 1, inode: 2 };
    first.add_context();
    second.add_context();
    assert!(first.charge(GIB));
    let id = first.share(GIB, contents).unwrap();
    second.use_shared(contents).unwrap();
    let gpu = FakeGpu::existing(folder.path(), 3, Clock::Virtual).unwrap();
    let used =
        |gpu: &FakeGpu| gpu.processes().iter().map(|process| process.used).collect::<Vec<_>>();
    assert_eq!(used(&gpu), [GIB, 0]);
    assert_eq!(gpu.processes()[0].pid, std::process::id());
    first.drop_shared(id);
    assert_eq!((used(&gpu), gpu.used()), (vec![0, 0], GIB));
}

#[test]
fn work_is_done_in_order_and_takes_as_long_as_it_says() {
    let folder = folder();
    let process = process(folder.path());
    let (first, second) = (process.submit(1000), process.submit(500));
    assert!(!process.is_known_done(first));
    assert!(process.wait(second, &mut never));
    assert_eq!(process.now(), 1500);
    assert_eq!((process.done_at(first), process.done_at(second)), (Some(1000), Some(1500)));
    // Work after idle time starts at the current time.
    let third = process.submit(7);
    assert!(process.wait(third, &mut never));
    assert_eq!(process.done_at(third), Some(1507));
}

#[test]
fn processes_with_work_share_the_chip_evenly() {
    let folder = folder();
    let (first, second) = (process(folder.path()), process(folder.path()));
    let long = first.submit(10_000);
    let short = second.submit(2_000);
    assert!(second.wait(short, &mut never));
    assert_eq!(second.now(), 4_000, "half of the GPU each");
    assert!(first.wait(long, &mut never));
    assert_eq!(first.done_at(long), Some(12_000), "all of it once the other is done");
    let gpu = FakeGpu::existing(folder.path(), 3, Clock::Virtual).unwrap();
    assert_eq!(gpu.busy(), 12_000);
}

#[test]
fn a_dead_process_has_no_work() {
    let folder = folder();
    let (first, second) = (process(folder.path()), process(folder.path()));
    first.submit(ENDLESS);
    drop(first);
    let mark = second.submit(3_000);
    assert!(second.wait(mark, &mut never));
    assert_eq!(second.now(), 3_000);
}

#[test]
fn work_without_end_is_given_up_and_others_go_on() {
    let folder = folder();
    let (first, second) = (process(folder.path()), process(folder.path()));
    let mark = first.submit(ENDLESS);
    let mut asked = 0;
    let mut enough = || {
        asked += 1;
        asked > 2
    };
    assert!(!first.wait(mark, &mut enough));
    let other = second.submit(1_000);
    assert!(second.wait(other, &mut never));
    assert_eq!(second.now(), 2_000);
}

#[test]
fn on_the_host_clock_work_takes_its_time() {
    let folder = folder();
    let first = FakeGpu::open(folder.path(), 0, GIB, Clock::Host).unwrap().attach().unwrap();
    let before = first.now();
    let mark = first.submit(3_000_000);
    assert!(first.wait(mark, &mut never));
    assert!(first.done_at(mark).unwrap() - before >= 3_000_000);
}

#[test]
fn threads_of_many_processes_never_have_too_much() {
    let folder = folder();
    let members: Vec<ProcessHandle> = (0..4).map(|_| process(folder.path())).collect();
    std::thread::scope(|scope| {
        for (seed, process) in members.iter().enumerate() {
            scope.spawn(move || {
                let mut random = u64::try_from(seed).unwrap() + 1;
                let mut held = Vec::new();
                for _ in 0..5_000 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let bytes = random % GIB;
                    if random % 3 > 0 && process.charge(bytes) {
                        held.push(bytes);
                    } else if let Some(bytes) = held.pop() {
                        process.refund(bytes);
                    }
                    let total =
                        process.map().header.total.load(std::sync::atomic::Ordering::Relaxed);
                    assert!(total <= 8 * GIB);
                }
                assert_eq!(process.used(), held.iter().sum::<u64>());
            });
        }
    });
    let all: u64 = members.iter().map(ProcessHandle::used).sum();
    assert_eq!(members[0].free(), 8 * GIB - all);
}
