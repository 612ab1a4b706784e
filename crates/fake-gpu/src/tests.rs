use std::path::Path;

use tempfile::TempDir;

use super::*;

const GIB: u64 = 1 << 30;

fn member(folder: &Path) -> Member {
    Chip::open(folder, 3, 8 * GIB, Clock::Virtual).unwrap().join().unwrap()
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
    let (one, two) = (member(folder.path()), member(folder.path()));
    assert!(one.charge(5 * GIB));
    assert!(!two.charge(3 * GIB + 1));
    assert!(two.charge(3 * GIB));
    assert_eq!((one.free(), two.free()), (0, 0));
    one.refund(5 * GIB);
    assert_eq!(two.free(), 5 * GIB);
    let chip = Chip::existing(folder.path(), 3, Clock::Virtual).unwrap();
    assert_eq!((chip.used(), chip.capacity()), (3 * GIB, 8 * GIB));
}

#[test]
fn memory_of_a_dead_process_is_free_at_once() {
    let folder = folder();
    let (one, two) = (member(folder.path()), member(folder.path()));
    assert!(one.charge(6 * GIB));
    assert!(!two.charge(4 * GIB));
    // Closing the file is what the kernel does for a process that is killed.
    drop(one);
    assert!(two.charge(8 * GIB));
}

#[test]
fn a_lock_of_a_dead_process_is_taken_over() {
    let folder = folder();
    let (one, two) = (member(folder.path()), member(folder.path()));
    assert!(one.charge(GIB));
    std::mem::forget(one.lock());
    drop(one);
    assert_eq!(two.free(), 8 * GIB);
    let next = member(folder.path());
    assert!(next.charge(8 * GIB));
}

#[test]
fn a_slot_is_reused_only_after_its_process_died() {
    let folder = folder();
    let (one, two) = (member(folder.path()), member(folder.path()));
    assert_eq!((one.slot(), two.slot()), (0, 1));
    drop(one);
    let next = member(folder.path());
    assert_eq!((next.slot(), next.used()), (0, 0));
}

#[test]
fn shared_memory_lives_until_the_last_user_is_done() {
    let folder = folder();
    let (one, two) = (member(folder.path()), member(folder.path()));
    let contents = Identity { device: 1, inode: 2 };
    assert!(one.charge(2 * GIB));
    one.share(2 * GIB, contents).unwrap();
    assert_eq!(one.used(), 0);
    let (id, bytes) = two.use_shared(contents).unwrap();
    assert_eq!((bytes, two.free()), (2 * GIB, 6 * GIB));
    assert_eq!(two.use_shared(Identity { device: 1, inode: 3 }), None);
    drop(one);
    assert_eq!(two.free(), 6 * GIB, "the second one still has it");
    two.drop_shared(id);
    assert_eq!(two.free(), 8 * GIB);
}

#[test]
fn a_block_is_its_makers_in_the_list_of_processes() {
    let folder = folder();
    let (one, two) = (member(folder.path()), member(folder.path()));
    let contents = Identity { device: 1, inode: 2 };
    one.add_context();
    two.add_context();
    assert!(one.charge(GIB));
    let id = one.share(GIB, contents).unwrap();
    two.use_shared(contents).unwrap();
    let chip = Chip::existing(folder.path(), 3, Clock::Virtual).unwrap();
    let used =
        |chip: &Chip| chip.processes().iter().map(|process| process.used).collect::<Vec<_>>();
    assert_eq!(used(&chip), [GIB, 0]);
    assert_eq!(chip.processes()[0].pid, std::process::id());
    one.drop_shared(id);
    assert_eq!((used(&chip), chip.used()), (vec![0, 0], GIB));
}

#[test]
fn work_is_done_in_order_and_takes_as_long_as_it_says() {
    let folder = folder();
    let one = member(folder.path());
    let (first, second) = (one.submit(1000), one.submit(500));
    assert!(!one.was_done(first));
    assert!(one.wait(second, &mut never));
    assert_eq!(one.now(), 1500);
    assert_eq!((one.done_at(first), one.done_at(second)), (Some(1000), Some(1500)));
    // What comes after idle time begins anew.
    let third = one.submit(7);
    assert!(one.wait(third, &mut never));
    assert_eq!(one.done_at(third), Some(1507));
}

#[test]
fn processes_with_work_share_the_chip_evenly() {
    let folder = folder();
    let (one, two) = (member(folder.path()), member(folder.path()));
    let long = one.submit(10_000);
    let short = two.submit(2_000);
    assert!(two.wait(short, &mut never));
    assert_eq!(two.now(), 4_000, "half of the chip each");
    assert!(one.wait(long, &mut never));
    assert_eq!(one.done_at(long), Some(12_000), "all of it once the other is done");
    let chip = Chip::existing(folder.path(), 3, Clock::Virtual).unwrap();
    assert_eq!(chip.busy(), 12_000);
}

#[test]
fn a_dead_process_has_no_work() {
    let folder = folder();
    let (one, two) = (member(folder.path()), member(folder.path()));
    one.submit(ENDLESS);
    drop(one);
    let mark = two.submit(3_000);
    assert!(two.wait(mark, &mut never));
    assert_eq!(two.now(), 3_000);
}

#[test]
fn work_without_end_is_given_up_and_others_go_on() {
    let folder = folder();
    let (one, two) = (member(folder.path()), member(folder.path()));
    let mark = one.submit(ENDLESS);
    let mut asked = 0;
    let mut enough = || {
        asked += 1;
        asked > 2
    };
    assert!(!one.wait(mark, &mut enough));
    let other = two.submit(1_000);
    assert!(two.wait(other, &mut never));
    assert_eq!(two.now(), 2_000);
}

#[test]
fn on_the_host_clock_work_takes_its_time() {
    let folder = folder();
    let one = Chip::open(folder.path(), 0, GIB, Clock::Wall).unwrap().join().unwrap();
    let before = one.now();
    let mark = one.submit(3_000_000);
    assert!(one.wait(mark, &mut never));
    assert!(one.done_at(mark).unwrap() - before >= 3_000_000);
}

#[test]
fn threads_of_many_processes_never_have_too_much() {
    let folder = folder();
    let members: Vec<Member> = (0..4).map(|_| member(folder.path())).collect();
    std::thread::scope(|scope| {
        for (seed, member) in members.iter().enumerate() {
            scope.spawn(move || {
                let mut random = u64::try_from(seed).unwrap() + 1;
                let mut held = Vec::new();
                for _ in 0..5_000 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let bytes = random % GIB;
                    if random % 3 > 0 && member.charge(bytes) {
                        held.push(bytes);
                    } else if let Some(bytes) = held.pop() {
                        member.refund(bytes);
                    }
                    let total =
                        member.map().header.total.load(std::sync::atomic::Ordering::Relaxed);
                    assert!(total <= 8 * GIB);
                }
                assert_eq!(member.used(), held.iter().sum::<u64>());
            });
        }
    });
    let all: u64 = members.iter().map(Member::used).sum();
    assert_eq!(members[0].free(), 8 * GIB - all);
}
