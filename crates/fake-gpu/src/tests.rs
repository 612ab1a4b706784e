use std::path::Path;

use tempfile::TempDir;

use super::contexts::{Contexts, SLICE, SWITCH};
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
fn processes_with_work_take_turns_at_the_end_of_a_kernel() {
    let folder = folder();
    let (first, second) = (process(folder.path()), process(folder.path()));
    let long = [(); 3].map(|()| first.submit(1_500_000));
    let short = second.submit(100_000);
    assert!(second.wait(short, &mut never));
    assert_eq!(second.now(), 3_000_000 + SWITCH + 100_000, "after two kernels in a slice");
    assert!(first.wait(long[2], &mut never));
    assert_eq!(
        long.map(|mark| first.done_at(mark).unwrap()),
        [1_500_000, 3_000_000, 4_600_000 + 2 * SWITCH]
    );
    let gpu = FakeGpu::existing(folder.path(), 3, Clock::Virtual).unwrap();
    assert_eq!(gpu.busy(), 4_600_000 + 2 * SWITCH);
}

/// The file of a GPU and [`contexts::Contexts`] are one model.
#[test]
fn kernels_of_processes_end_as_those_of_contexts_in_memory() {
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    for _ in 0..20 {
        let folder = folder();
        let processes = [(); 3].map(|()| process(folder.path()));
        let mut gpu = Contexts::new(SLICE, SWITCH);
        let all = [(); 3].map(|()| gpu.create());
        let mut marks = [const { Vec::new() }; 3];
        for _ in 0..60 {
            let owner = usize::try_from(next(3)).unwrap();
            let nanos = 1 + next(900_000);
            marks[owner].push(processes[owner].submit(nanos));
            gpu.launch(all[owner], nanos);
        }
        let mut ends = [const { Vec::new() }; 3];
        while let Some(end) = gpu.next_end() {
            gpu.advance(end);
            for (context, ends) in all.iter().zip(&mut ends) {
                if gpu.completed(*context) > u64::try_from(ends.len()).unwrap() {
                    ends.push(end);
                }
            }
        }
        for (process, marks) in processes.iter().zip(&marks) {
            let last = marks.last().copied().unwrap_or(0);
            assert!(process.wait(last, &mut never));
        }
        for ((process, marks), ends) in processes.iter().zip(&marks).zip(&ends) {
            let found: Vec<u64> =
                marks.iter().map(|mark| process.done_at(*mark).unwrap()).collect();
            assert_eq!(found, *ends);
        }
    }
}

#[test]
fn more_kernels_than_the_file_has_room_for_are_served_whole() {
    let folder = folder();
    let process = process(folder.path());
    let marks: Vec<u64> = (0..3_000).map(|_| process.submit(10)).collect();
    assert!(process.mark_before_room().is_some());
    assert!(process.wait(marks[2_999], &mut never));
    assert_eq!((process.now(), process.mark_before_room()), (30_000, None));
    assert_eq!(process.done_at(marks[2_046]), Some(20_470));
    assert_eq!(process.done_at(marks[2_500]), Some(30_000), "it is part of the last one");
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
    assert_eq!(second.now(), SLICE + SWITCH + 1_000, "after a slice of the first");
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
