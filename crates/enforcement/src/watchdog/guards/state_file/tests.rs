use std::fs;
use std::mem::offset_of;
use std::os::unix::fs::{FileExt as _, symlink};

use octavo_guard_abi::STATE_FILE;
use octavo_guard_abi::state::{self, Damage, Slot, State};
use tempfile::TempDir;

use super::{StateBuffer, StateDamage, StateFile, bytes};

const GENERATION: u64 = 7;

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut text = state::header(GENERATION).to_vec();
    text.resize(state::SIZE, 0);
    fs::write(folder.path().join(STATE_FILE), text).unwrap();
    folder
}

fn put(folder: &TempDir, offset: usize, value: u64) {
    let path = folder.path().join(STATE_FILE);
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&value.to_ne_bytes(), offset as u64).unwrap();
}

fn slot(folder: &TempDir, index: usize, pid: u64, used: u64) {
    let at = offset_of!(State, slots) + index * size_of::<Slot>();
    put(folder, at + offset_of!(Slot, pid), pid);
    put(folder, at + offset_of!(Slot, used_bytes), used);
}

#[test]
fn slots_are_read_up_to_the_highest_that_was_taken() {
    let folder = folder();
    let file = StateFile::open(folder.path(), GENERATION).unwrap();
    let mut copy = StateBuffer::default();
    assert_eq!(file.slots(&mut copy), Ok(Vec::new()));
    put(&folder, offset_of!(State, high), 3);
    slot(&folder, 0, 10, 100);
    slot(&folder, 2, 12, u64::MAX);
    slot(&folder, 3, 13, 300);
    let slots = file.slots(&mut copy).unwrap();
    assert_eq!(slots.iter().map(|slot| slot.pid).collect::<Vec<_>>(), [10, 12]);
    assert_eq!(bytes(&slots), u64::MAX, "sums do not wrap");
    // An invalid slot count makes the agent read all slots, but no leftovers of another share.
    put(&folder, offset_of!(State, high), u64::MAX);
    assert_eq!(file.slots(&mut copy).unwrap().len(), 3);
}

#[test]
fn kinds_of_damage_are_distinguished() {
    let mut copy = StateBuffer::default();
    let folder = folder();
    let path = folder.path().join(STATE_FILE);
    let file = StateFile::open(folder.path(), GENERATION).unwrap();
    let other = StateFile::open(folder.path(), 8).unwrap();
    assert_eq!(other.slots(&mut copy), Err(StateDamage::Damaged(Damage::Generation(GENERATION))));
    put(&folder, 0, 0);
    assert_eq!(file.slots(&mut copy), Err(StateDamage::Damaged(Damage::Magic)));
    for length in [0, 100, state::SIZE as u64 + 1] {
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
        assert_eq!(file.slots(&mut copy), Err(StateDamage::Damaged(Damage::Size)), "{length}");
    }
    fs::rename(&path, folder.path().join("away")).unwrap();
    assert_eq!(file.slots(&mut copy), Err(StateDamage::Gone));
    fs::write(&path, vec![0; state::SIZE]).unwrap();
    assert_eq!(file.slots(&mut copy), Err(StateDamage::Gone), "another file");
}

#[test]
fn what_is_no_file_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    assert!(StateFile::open(folder.path(), GENERATION).is_err());
    symlink("/etc/passwd", folder.path().join(STATE_FILE)).unwrap();
    assert!(StateFile::open(folder.path(), GENERATION).is_err());
    fs::remove_file(folder.path().join(STATE_FILE)).unwrap();
    fs::create_dir(folder.path().join(STATE_FILE)).unwrap();
    assert!(StateFile::open(folder.path(), GENERATION).is_err());
}
