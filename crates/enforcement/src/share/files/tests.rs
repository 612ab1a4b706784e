use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

fn read_state(share: &Path) -> Vec<u8> {
    fs::read(share.join("state")).expect("reads")
}

const TERMS: Terms = Terms {
    generation: 7,
    gpu: [1; 16],
    memory_bytes: 20 << 30,
    context_bytes: 300 << 20,
    compute_milli_percent: 12_500,
    flags: 0,
};

fn share() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let share = folder.path().join("uid_share");
    assert!(write(&share, &TERMS, 0).expect("writes"));
    (folder, share)
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).expect("is there").ino()
}

#[test]
fn files_are_made_once_with_the_rights_that_containers_need() {
    let (_folder, share) = share();
    let mode = |name| fs::metadata(share.join(name)).expect("is there").mode() & 0o777;
    assert_eq!((mode("limits"), mode("state")), (0o644, 0o666));
    let file = LimitsFile::open(&share).expect("opens");
    assert_eq!(file.terms(), Ok(TERMS));
    let open = RuntimeWords {
        gate: ShareGate::Open,
        epoch: 0,
        untracked_bytes: 0,
        driver_bytes: 0,
        withheld_bytes: 0,
    };
    assert_eq!(file.live().expect("reads"), open);
    let state = read_state(&share);
    assert_eq!(state::slots(&state, 7).expect("is whole").count(), 0);
    assert!(!write(&share, &TERMS, 0).expect("has nothing to do"));
    assert_eq!(fs::read_dir(&share).expect("reads").count(), 2, "nothing half-made stays");
    assert_eq!(generation(&share), Some(7));
    assert_eq!(generation(&share.join("other")), None);
}

#[test]
fn another_limit_leaves_what_may_be_had_as_it_is() {
    let (_folder, share) = share();
    let file = LimitsFile::open(&share).expect("opens");
    file.set_withheld(10 << 30).expect("writes");
    let withheld = |gibibytes: u64| {
        let terms = Terms { memory_bytes: gibibytes << 30, ..TERMS };
        assert!(write(&share, &terms, 0).expect("writes"));
        file.live().expect("reads").withheld_bytes >> 30
    };
    assert_eq!(withheld(60), 50, "10 GiB may be had, as before");
    assert_eq!(withheld(20), 10);
    assert_eq!(withheld(8), 0, "no more than the limit");
}

#[test]
fn changed_terms_are_written_in_place_and_leave_the_gate_alone() {
    let (_folder, share) = share();
    let limits = share.join("limits");
    let before = (inode(&limits), inode(&share.join("state")));
    let file = LimitsFile::open(&share).expect("opens");
    file.set_gate(ShareGate::Paused).expect("writes");
    file.set_untracked(5, 6).expect("writes");
    let more = Terms { memory_bytes: 30 << 30, flags: limits::STRICT, ..TERMS };
    assert!(write(&share, &more, 0).expect("writes"));
    assert_eq!(file.terms(), Ok(more), "a file that was open before sees it");
    assert_eq!((inode(&limits), inode(&share.join("state"))), before);
    let live = file.live().expect("reads");
    assert_eq!((live.gate, live.epoch), (ShareGate::Paused, 1));
    assert_eq!((live.untracked_bytes, live.driver_bytes), (5, 6));
    file.set_gate(ShareGate::Paused).expect("stands so already");
    assert_eq!(file.live().expect("reads").epoch, 1);
}

/// A kind of damage, and the change of the file.
type Damaged = (&'static str, fn(&mut Vec<u8>));

#[test]
fn a_damaged_limits_file_is_made_whole_in_place() {
    let whole = TERMS.file();
    let damages: [Damaged; 6] = [
        ("empty", |file| file.clear()),
        ("short", |file| file.truncate(100)),
        ("long", |file| file.push(0)),
        ("magic", |file| file[0] ^= 1),
        ("version", |file| file[8] = 9),
        ("unfinished", |file| file[limits::SEQUENCE_OFFSET] = 3),
    ];
    for (name, damage) in damages {
        let (_folder, share) = share();
        let limits = share.join("limits");
        let before = inode(&limits);
        let mut bytes = whole.to_vec();
        damage(&mut bytes);
        fs::write(&limits, &bytes).expect("writes");
        assert!(LimitsFile::open(&share).expect("opens").terms().is_err(), "{name}");
        assert!(write(&share, &TERMS, 0).expect(name));
        let file = LimitsFile::open(&share).expect("opens");
        assert_eq!(file.terms(), Ok(TERMS), "{name}");
        assert_eq!(file.live().expect("reads").gate, ShareGate::Open, "{name}");
        assert_eq!(inode(&limits), before, "{name}");
    }
}

#[test]
fn a_state_file_is_the_containers_own() {
    let (_folder, share) = share();
    fs::write(share.join("state"), "noise").expect("writes");
    assert!(!write(&share, &TERMS, 0).expect("leaves it"));
    assert_eq!(read_state(&share), b"noise");
}

#[test]
fn what_is_no_plain_file_is_neither_followed_nor_waited_for() {
    let (folder, share) = share();
    let secret = folder.path().join("secret");
    fs::write(&secret, vec![0; state::SIZE]).expect("writes");
    let limits = share.join("limits");
    fs::remove_file(&limits).expect("removes");
    let kind = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, &limits, kind, mode, 0).expect("a pipe");
    assert!(write(&share, &TERMS, 0).is_err());
    fs::remove_file(&limits).expect("removes");
    symlink(&secret, &limits).expect("links");
    assert!(write(&share, &TERMS, 0).is_err());
    assert_eq!(fs::read(&secret).expect("reads"), vec![0; state::SIZE]);
}

#[test]
fn what_was_learned_of_contexts_stays_when_the_limits_are_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let known = Terms { generation: 7, memory_bytes: 1000, context_bytes: 256, ..Terms::default() };
    assert!(write(folder.path(), &known, 0).unwrap());
    let file = LimitsFile::open(folder.path()).unwrap();
    file.set_context_bytes(500).unwrap();
    assert_eq!(file.terms().unwrap(), Terms { context_bytes: 500, ..known });
    assert!(!write(folder.path(), &known, 0).unwrap(), "it says what it should");
    assert_eq!(file.terms().unwrap().context_bytes, 500);
    let refreshed = Terms { generation: 8, ..known };
    assert!(write(folder.path(), &refreshed, 0).unwrap());
    assert_eq!(file.terms().unwrap(), refreshed, "another writing of the share knows nothing");
}
