use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::{FreezeError, Freezer, UNIFIED, VERSION_1};
use crate::process::Process;
use crate::process::proc::{Cgroups, Proc};

fn process(pid: u32) -> Process {
    Process { pid, start_time: 1 }
}

/// A folder in the form of a cgroup.
fn cgroup(root: &Path, path: &str, file: &str, pids: &[u32]) -> PathBuf {
    let folder = root.join(path);
    fs::create_dir_all(&folder).unwrap();
    let pids: Vec<_> = pids.iter().map(|pid| format!("{pid}\n")).collect();
    fs::write(folder.join("cgroup.procs"), pids.concat()).unwrap();
    fs::write(folder.join(file), "").unwrap();
    folder.join(file)
}

fn unified(path: &str) -> Cgroups {
    Cgroups { unified: Some(path.to_owned()), freezer: None }
}

#[test]
fn a_container_is_frozen_and_goes_on_in_either_version() {
    let temp = tempfile::tempdir().unwrap();
    let (root, share) = (temp.path().join("cgroup"), temp.path().join("share"));
    fs::create_dir_all(&share).unwrap();
    let freezer = Freezer::new(&root, Cgroups::default());
    let two = cgroup(&root, "pods/c1", UNIFIED, &[10]);
    let hybrid = cgroup(&root, "unified/pods/c2", UNIFIED, &[20]);
    let one = cgroup(&root, "freezer/pods/c3", VERSION_1, &[30]);
    freezer.freeze(&share, process(10), &unified("/pods/c1")).unwrap();
    freezer.freeze(&share, process(20), &unified("/pods/c2")).unwrap();
    let old = Cgroups { unified: None, freezer: Some("/pods/c3".to_owned()) };
    freezer.freeze(&share, process(30), &old).unwrap();
    assert!(Freezer::has_frozen(&share));
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    assert_eq!((read(&two), read(&hybrid), read(&one)), ("1".into(), "1".into(), "FROZEN".into()));
    // One container is gone meanwhile.
    fs::remove_dir_all(hybrid.parent().unwrap()).unwrap();
    // Another agent goes on.
    Freezer::new(&root, Cgroups::default()).thaw(&share).unwrap();
    assert_eq!((read(&two), read(&one)), ("0".into(), "THAWED".into()));
    assert!(!Freezer::has_frozen(&share));
    freezer.thaw(&share).unwrap();
}

#[test]
fn only_the_cgroup_of_the_process_is_frozen_and_never_the_agent_s() {
    let temp = tempfile::tempdir().unwrap();
    let (root, share) = (temp.path().join("cgroup"), temp.path().join("share"));
    fs::create_dir_all(&share).unwrap();
    let freezer = Freezer::new(&root, unified("/system/agent"));
    cgroup(&root, "pods/c1", UNIFIED, &[11]);
    cgroup(&root, "system", UNIFIED, &[10]);
    cgroup(&root, "pods/both", UNIFIED, &[10, std::process::id()]);
    cgroup(&root, "", UNIFIED, &[10]);
    for path in ["/pods/c1", "/pods/gone", "/system", "/pods/both"] {
        let frozen = freezer.freeze(&share, process(10), &unified(path));
        assert!(matches!(frozen, Err(FreezeError::NoCgroup)), "{path}");
    }
    assert!(matches!(
        freezer.freeze(&share, process(10), &Cgroups::default()),
        Err(FreezeError::NoCgroup)
    ));
    assert!(!Freezer::has_frozen(&share));
}

#[test]
fn cgroup_outside_the_agents_namespace_is_found_by_path_suffix() {
    let temp = tempfile::tempdir().unwrap();
    let (root, share) = (temp.path().join("cgroup"), temp.path().join("share"));
    fs::create_dir_all(&share).unwrap();
    let freezer = Freezer::new(&root, Cgroups::default());
    let control = cgroup(&root, "kubepods.slice/pod2.slice/c2.scope", UNIFIED, &[10]);
    cgroup(&root, "kubepods.slice/other/pod2.slice/c2.scope", UNIFIED, &[12]);
    freezer.freeze(&share, process(10), &unified("/../../pod2.slice/c2.scope")).unwrap();
    assert_eq!(fs::read_to_string(control).unwrap(), "1");
}

#[test]
fn a_line_that_leads_elsewhere_is_not_written() {
    let temp = tempfile::tempdir().unwrap();
    let share = temp.path().join("share");
    fs::create_dir_all(&share).unwrap();
    let other = temp.path().join("other");
    fs::write(&other, "as it was").unwrap();
    fs::write(share.join("frozen"), format!("{}\n", other.display())).unwrap();
    Freezer::new(&temp.path().join("cgroup"), Cgroups::default()).thaw(&share).unwrap();
    assert_eq!(fs::read_to_string(other).unwrap(), "as it was");
    assert!(!Freezer::has_frozen(&share));
}

/// A process in a cgroup of its own; both go with the value.
struct Caged {
    child: Child,
    folder: PathBuf,
}

impl Caged {
    /// `None` where this machine gives no cgroup.
    fn new(folder: &Path) -> Option<Self> {
        fs::create_dir(folder).ok()?;
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let caged = Self { child, folder: folder.to_owned() };
        fs::write(folder.join("cgroup.procs"), caged.child.id().to_string()).ok()?;
        Some(caged)
    }
}

impl Drop for Caged {
    fn drop(&mut self) {
        let _ = fs::write(self.folder.join(UNIFIED), "0");
        let _ = fs::write(self.folder.join(VERSION_1), "THAWED");
        let _ = self.child.kill();
        let _ = self.child.wait();
        let deadline = Instant::now() + Duration::from_secs(10);
        while fs::remove_dir(&self.folder).is_err() && Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

/// Whether a control file's text means frozen.
fn until(path: &Path, word: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !fs::read_to_string(path).unwrap().contains(word) {
        assert!(Instant::now() < deadline, "{} is never {word}", path.display());
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

#[test]
fn the_kernel_freezes_a_real_container() {
    let root = Path::new("/sys/fs/cgroup");
    let name = format!("octavo-test-{}", std::process::id());
    let mut is_tried = false;
    for (base, state, [frozen, thawed]) in [
        ("", "cgroup.events", ["frozen 1", "frozen 0"]),
        ("unified", "cgroup.events", ["frozen 1", "frozen 0"]),
        ("freezer", VERSION_1, ["FROZEN", "THAWED"]),
    ] {
        if !root.join(base).join("cgroup.procs").exists() {
            continue;
        }
        let folder = root.join(base).join(&name);
        let Some(caged) = Caged::new(&folder) else { continue };
        is_tried = true;
        let proc = Proc::new("/proc".into());
        let pid = caged.child.id();
        let share = tempfile::tempdir().unwrap();
        let freezer = Freezer::new(root, proc.cgroups("self").unwrap());
        let cgroups = proc.cgroups(&pid.to_string()).unwrap();
        freezer.freeze(share.path(), process(pid), &cgroups).unwrap();
        until(&folder.join(state), frozen);
        freezer.thaw(share.path()).unwrap();
        until(&folder.join(state), thawed);
    }
    if !is_tried {
        let mut out = std::io::stderr().lock();
        writeln!(out, "skipped: this machine lets nobody make a cgroup in {}", root.display())
            .unwrap();
    }
}
