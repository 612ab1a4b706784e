use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use octavo_guard_abi::limits::Terms;
use octavo_node::files::write_atomically;

use super::super::files;
use super::*;

/// Set where a test runs in a mount namespace of its own.
const INSIDE: &str = "OCTAVO_TEST_IN_MOUNT_NAMESPACE";

/// Runs the test again in its own mount namespace, and `body` there.
fn in_namespace(test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", &format!("share::mount::tests::{test}")])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn a_share_s_files_fill_their_own_file_system_only() {
    in_namespace("a_share_s_files_fill_their_own_file_system_only", || {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("shares/uid_s");
        // An agent that was killed had mounted it.
        make(&temporary(&folder)).unwrap();
        mount("tmpfs", temporary(&folder), "tmpfs", MountFlags::NOSUID, None).unwrap();
        ensure(&folder).unwrap();
        assert!(is_mounted(&folder).unwrap());
        let names = fs::read_dir(folder.parent().unwrap()).unwrap();
        assert_eq!(names.count(), 1, "nothing else stays");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let of_folder = mounts.lines().filter(|line| line.contains("uid_s")).collect::<Vec<_>>();
        let [line] = of_folder[..] else { panic!("{of_folder:?}") };
        assert_eq!(line.split(' ').nth(3), Some("/shares/uid_s"), "by which processes are found");
        let state = File::create(folder.join("state")).unwrap();
        state.set_len(state::SIZE as u64).unwrap();
        ensure(&folder).unwrap();
        assert!(folder.join("state").exists(), "it is not covered by a second one");
        let block = vec![1; 64 << 10];
        let written = (0..64).take_while(|n| state.write_all_at(&block, n * (64 << 10)).is_ok());
        assert!(written.count() < 64, "the file grows without a bound");
        remove(&folder).unwrap();
        assert!(!is_mounted(&folder).unwrap());
        state.write_all_at(b"x", 0).unwrap();
        remove(&folder).unwrap();
        fs::remove_dir(&folder).unwrap();
        remove(&folder).unwrap();
    });
}

#[test]
fn files_of_an_older_version_stay_where_they_are() {
    in_namespace("files_of_an_older_version_stay_where_they_are", || {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("uid_s");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("limits"), "mapped").unwrap();
        ensure(&folder).unwrap();
        assert!(!is_mounted(&folder).unwrap());
        assert_eq!(fs::read_to_string(folder.join("limits")).unwrap(), "mapped");
        remove(&folder).unwrap();
        assert!(folder.join("limits").exists());
    });
}

#[test]
fn a_container_that_fills_the_file_system_hinders_no_new_limits_for_long() {
    in_namespace("a_container_that_fills_the_file_system_hinders_no_new_limits_for_long", || {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("shares/uid_s");
        ensure(&folder).unwrap();
        let terms = |memory_bytes| Terms {
            generation: 7,
            gpu: [1; 16],
            memory_bytes,
            context_bytes: 1,
            compute_milli_percent: 0,
            flags: 0,
        };
        files::write(&folder, &terms(1 << 30), 0).unwrap();
        write_atomically(&folder.join("limits.json"), b"first", false).unwrap();
        let state = File::options().write(true).open(folder.join("state")).unwrap();
        let block = vec![1; 4 << 10];
        let full =
            (0..1 << 20).find(|n| state.write_all_at(&block, n * (4 << 10)).is_err()).unwrap();
        assert!(full > 0);
        // What is there is changed in place, so limits for guards are never late.
        files::write(&folder, &terms(2 << 30), 0).unwrap();
        let limits = files::LimitsFile::open(&folder).unwrap();
        assert_eq!(limits.terms().unwrap().memory_bytes, 2 << 30);
        // The file for people is replaced as a whole: the error says so, and the first stays.
        let large = vec![b'x'; 64 << 10];
        let error = write_atomically(&folder.join("limits.json"), &large, false).unwrap_err();
        assert_eq!(error.error.kind(), io::ErrorKind::StorageFull, "{error}");
        assert_eq!(fs::read(folder.join("limits.json")).unwrap(), b"first");
        // The watchdog cuts the state back to its size; the next attempt succeeds.
        state.set_len(state::SIZE as u64).unwrap();
        write_atomically(&folder.join("limits.json"), &large, false).unwrap();
        assert_eq!(fs::read(folder.join("limits.json")).unwrap(), large);
    });
}
