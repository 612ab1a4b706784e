//! Missing and damaged shares, and tampering tenants.

use std::fs;
use std::os::unix::fs::FileExt;

use octavo_guard_abi::limits::{self, SEQUENCE_OFFSET, ShareGate};
use octavo_guard_abi::state;

use crate::container::{Container, GIB, Interposition, eventually, terms};

const NO_DEVICE: &str = "100";

/// A change of a file.
type Damage<'a> = dyn Fn(&mut Vec<u8>) + 'a;

/// Checks that a new program has no GPU, whatever it tries.
fn is_closed(container: &Container) {
    for interposition in [Interposition::Proxy, Interposition::Preload] {
        let mut program = container.start(interposition, "dlsym");
        assert_eq!(program.say("init"), NO_DEVICE);
        assert_eq!(program.say("retain 0"), NO_DEVICE);
        assert_eq!(program.say("alloc 512"), "100 -1");
        assert_eq!(program.say("launch"), NO_DEVICE);
    }
}

#[test]
fn a_container_without_shares_has_no_gpu() {
    let container = Container::empty();
    is_closed(&container);
    fs::remove_dir_all(container.path().join("octavo/shares")).expect("removed");
    is_closed(&container);
}

#[test]
fn a_share_without_its_limits_closes_the_container() {
    let container = Container::of(8 * GIB);
    container.share("two", &terms(1, GIB));
    fs::remove_file(container.folder("two").join("limits")).expect("removed");
    is_closed(&container);
}

#[test]
fn a_process_that_is_closed_leaves_the_shares_that_are_whole() {
    let container = Container::empty();
    // In any order of the folder, some shares come before the damaged one.
    for share in ["a", "b", "c", "d", "e", "f"] {
        container.share(share, &terms(0, GIB));
    }
    let damaged = ["a", "f"].map(|share| container.folder(share).join("limits"));
    for path in damaged {
        let whole = fs::read(&path).expect("limits");
        fs::write(&path, &whole[1..]).expect("written");
        let mut program = container.start(Interposition::Proxy, "dlsym");
        let id = u64::from(program.id());
        for _ in 0..3 {
            assert_eq!(program.say("init"), NO_DEVICE);
        }
        for share in ["a", "b", "c", "d", "e", "f"] {
            assert!(container.slots(share).iter().all(|slot| slot.pid != id), "{share}");
        }
        fs::write(&path, &whole).expect("written");
        assert_eq!(program.say("init"), "0");
    }
}

#[test]
fn a_context_counts_while_the_limits_cannot_be_read() {
    let container = Container::of(8 * GIB);
    let mut program = container.start(Interposition::Proxy, "dlsym");
    assert_eq!(program.say("init"), "0");
    let path = container.folder("one").join("limits");
    let file = fs::OpenOptions::new().write(true).open(path).expect("limits");
    file.write_all_at(&[1], SEQUENCE_OFFSET as u64).expect("written");
    assert_eq!(program.say("retain 0"), "0");
    assert_eq!(container.used("one"), 256 << 20);
}

#[test]
fn damaged_limits_close_the_container_until_they_are_mended() {
    let container = Container::of(8 * GIB);
    let path = container.folder("one").join("limits");
    let whole = fs::read(&path).expect("limits");
    let damages: [&Damage<'_>; 6] = [
        &|file| file.truncate(256),
        &|file| file.extend([0; 4096]),
        &|file| file.clear(),
        &|file| file[0] ^= 1,
        &|file| file[8] += 1,
        &|file| file[SEQUENCE_OFFSET] |= 1,
    ];
    for damage in damages {
        let mut file = whole.clone();
        damage(&mut file);
        fs::write(&path, &file).expect("written");
        is_closed(&container);
    }
    // A process that started with damaged limits may retry once they are repaired.
    let mut program = container.start(Interposition::Proxy, "dlsym");
    assert_eq!(program.say("init"), NO_DEVICE);
    fs::write(&path, &whole).expect("written");
    assert_eq!(program.say("init"), "0");
    assert_eq!(whole.len(), limits::SIZE);
}

#[test]
fn a_damaged_state_closes_the_container() {
    let container = Container::of(8 * GIB);
    let path = container.folder("one").join("state");
    let whole = fs::read(&path).expect("state");
    let other = state::header(99);
    let damages: [&Damage<'_>; 4] =
        [&|file| file.truncate(4096), &|file| file[0] ^= 1, &|file| file[8] += 1, &|file| {
            file[..other.len()].copy_from_slice(&other);
        }];
    for damage in damages {
        let mut file = whole.clone();
        damage(&mut file);
        fs::write(&path, &file).expect("written");
        is_closed(&container);
    }
    fs::remove_file(&path).expect("removed");
    is_closed(&container);
}

#[test]
fn a_tenant_that_overwrites_its_state_is_fenced() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    assert_eq!(program.allocate(GIB), 0);
    let state = container.folder("one").join("state");
    assert_eq!(program.say(&format!("write {}", state.display())), "0");
    assert_eq!(program.allocate(GIB), 800);
    // Restoring it does not help.
    let file = fs::OpenOptions::new().write(true).open(&state).expect("a file");
    file.write_all_at(&state::header(7), 0).expect("written");
    assert_eq!(program.allocate(GIB), 800);
    assert_eq!(program.say("free 0"), "0");
}

#[test]
fn a_tenant_that_cuts_its_state_short_harms_itself_alone() {
    let container = Container::of(8 * GIB);
    let neighbour = Container::of(8 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    let mut other = neighbour.ready(Interposition::Proxy);
    let state = container.folder("one").join("state");
    assert_eq!(program.say(&format!("cut {} 0", state.display())), "0");
    program.tell(&format!("alloc {GIB}"));
    assert_eq!(program.hear(), "");
    assert!(!program.end().success());
    assert_eq!(other.allocate(GIB), 0);
}

#[test]
fn a_tenant_that_deletes_its_state_gains_nothing() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    fs::remove_file(container.folder("one").join("state")).expect("removed");
    assert_eq!(program.allocate(9 * GIB), 2);
    assert_eq!(program.allocate(GIB), 0);
    is_closed(&container);
}

#[test]
fn a_fenced_share_refuses_work_and_memory() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    container.set_gate("one", ShareGate::Fenced, 1);
    assert_eq!(program.say("launch"), "800");
    assert_eq!(program.say("graph"), "800");
    assert_eq!(program.allocate(512), 800);
    container.set_gate("one", ShareGate::Open, 2);
    assert_eq!(program.say("launch"), "0");
    assert_eq!(program.allocate(512), 0);
}

#[test]
fn a_paused_share_waits() {
    let container = Container::of(8 * GIB);
    let mut launching = container.ready(Interposition::Proxy);
    let mut allocating = container.ready(Interposition::Proxy);
    container.set_gate("one", ShareGate::Paused, 1);
    launching.tell("launch");
    allocating.tell("alloc 512");
    eventually("both have heeded the gate", || {
        let state = container.state("one");
        container.slots("one").iter().all(|slot| epoch(&state, slot.index) == 1)
    });
    assert!(container.slots("one").iter().all(|slot| slot.launches == 0));
    assert!(container.slots("one").iter().all(|slot| slot.used_bytes == 256 << 20));
    container.set_gate("one", ShareGate::Open, 2);
    assert_eq!(launching.hear(), "0");
    assert_eq!(allocating.hear(), "0 0");
    eventually("the helpers have heeded it, too", || {
        let state = container.state("one");
        container.slots("one").iter().all(|slot| epoch(&state, slot.index) == 2)
    });
}

/// The epoch of a slot, which an agent's copy lacks.
fn epoch(file: &[u8], slot: usize) -> u64 {
    let offset = std::mem::offset_of!(state::State, slots)
        + slot * size_of::<state::Slot>()
        + std::mem::offset_of!(state::Slot, epoch);
    u64::from_ne_bytes(file[offset..][..8].try_into().expect("eight bytes"))
}
