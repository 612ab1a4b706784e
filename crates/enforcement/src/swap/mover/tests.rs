//! Moves with a program that writes down its calls, and refuses those that the test names.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command};

use tempfile::TempDir;

use super::*;

/// A node, and the program.
struct Node {
    temp: TempDir,
    children: Vec<Child>,
    mover: Mover,
}

/// A mover with the program in a folder.
fn mover(folder: &Path) -> Mover {
    let settings =
        SwapSettings { host: HostBudget::of(Some(1 << 30)), driver_root: "/driver".into() };
    let proc = Proc::new("/proc".into());
    Mover::new(settings, folder.join("octavo"), proc, GpuTime::start().unwrap())
}

/// The share in a folder.
fn share(folder: &Path) -> MovingShare {
    MovingShare {
        name: "uid_share".to_owned(),
        folder: folder.join("uid_share"),
        unit: SwapUnit::Processes,
    }
}

/// Sizes of a share of which all moves.
fn sizes(bytes: u64) -> MoveSizes {
    MoveSizes { bytes, staying: 0, taken: 0 }
}

/// A process that is there.
fn process(pid: u32) -> Process {
    let start_time = Proc::new("/proc".into()).stat(pid).unwrap().start_time;
    Process { pid, start_time }
}

impl Node {
    /// A node with so many processes.
    fn with(processes: usize) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let program = temp.path().join("octavo");
        let folder = temp.path().display();
        let script = format!(
            "#!/bin/sh\n\
             # process-checkpoint ACTION --timeout T --pid PID --driver-root ROOT\n\
             echo \"$2 $6\" >> {folder}/calls\n\
             code=$(grep -s \"^$2 $6 \" {folder}/refused | cut -d' ' -f3)\n\
             if [ -n \"$code\" ]; then echo \"error: it is refused\" >&2; exit \"$code\"; fi\n\
             if [ \"$2\" = out ]; then touch {folder}/away.$6; else rm -f {folder}/away.$6; fi\n"
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let start = |_| Command::new("sleep").arg("600").spawn().unwrap();
        let children = (0..processes).map(start).collect();
        let mover = mover(temp.path());
        Self { temp, children, mover }
    }

    fn share(&self) -> MovingShare {
        share(self.temp.path())
    }

    fn processes(&self) -> Vec<Process> {
        self.children.iter().map(|child| process(child.id())).collect()
    }

    fn pid(&self, index: usize) -> u32 {
        self.children[index].id()
    }

    fn refuse(&self, lines: &[(&str, usize, u8)]) {
        let lines = lines
            .iter()
            .map(|(action, index, code)| format!("{action} {} {code}\n", self.pid(*index)));
        fs::write(self.temp.path().join("refused"), lines.collect::<String>()).unwrap();
    }

    /// The calls of the program so far, with the processes' places.
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.temp.path().join("calls")).unwrap_or_default();
        let named = text.lines().map(|line| {
            let (action, pid) = line.split_once(' ').unwrap();
            let index = (0..self.children.len()).find(|index| self.pid(*index).to_string() == pid);
            format!("{action} {}", index.expect("a known process"))
        });
        named.collect()
    }

    fn out(&self, bytes: u64) -> Result<(), MoveError> {
        self.mover.out(self.share(), self.processes(), Vec::new(), sizes(bytes));
        self.end(true)
    }

    fn back(&self) -> Result<(), MoveError> {
        self.mover.back(self.share());
        self.end(false)
    }

    fn end(&self, is_out: bool) -> Result<(), MoveError> {
        let moved = self.mover.receiver.recv().expect("an end");
        assert_eq!((moved.share.as_str(), moved.is_out), ("uid_share", is_out));
        moved.result
    }

    fn record(&self) -> Option<Record> {
        Record::read(&self.share().folder)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn processes_go_parents_first_and_come_back_in_reverse() {
    let node = Node::with(3);
    node.out(1 << 20).unwrap();
    assert_eq!(node.calls(), ["out 0", "out 1", "out 2"]);
    assert_eq!(node.record().map(|record| record.bytes), Some(1 << 20));
    node.back().unwrap();
    assert_eq!(node.calls()[3..], ["in 2", "in 1", "in 0"]);
    assert_eq!(node.record(), None);
}

#[test]
fn if_the_driver_refuses_one_the_others_come_back() {
    let node = Node::with(3);
    node.refuse(&[("out", 1, 4)]);
    let error = node.out(1).unwrap_err();
    assert!(matches!(&error, MoveError::Refused(_)), "{error:?}");
    assert_eq!(error.reason(), Some(CheckpointError::Refused));
    assert_eq!(error.to_string(), "it is refused");
    assert_eq!(node.calls(), ["out 0", "out 1", "in 1", "in 0"]);
    assert_eq!(node.record(), None);
}

#[test]
fn if_they_cannot_come_back_the_record_stays() {
    let node = Node::with(2);
    node.refuse(&[("out", 1, 1), ("in", 0, 1)]);
    let error = node.out(1).unwrap_err();
    assert!(matches!(&error, MoveError::Stuck(_)), "{error:?}");
    assert_eq!(node.record().map(|record| record.processes.len()), Some(2));
    node.refuse(&[]);
    node.back().unwrap();
    assert_eq!(node.record(), None);
}

#[test]
fn a_process_that_has_ended_stands_in_no_ones_way() {
    let mut node = Node::with(3);
    node.refuse(&[("out", 0, 7), ("in", 1, 7)]);
    node.out(1).unwrap();
    node.children[2].kill().unwrap();
    node.children[2].wait().unwrap();
    node.back().unwrap();
    assert_eq!(node.calls()[3..], ["in 1", "in 0"], "of the ended one nothing is asked");
    assert_eq!(node.record(), None);
}

#[test]
fn without_room_nothing_is_begun() {
    let node = Node::with(1);
    let error = node.out(2 << 30).unwrap_err();
    assert!(error.to_string().contains("swapHostMemory"), "{error}");
    assert!(node.calls().is_empty() && node.record().is_none());
}

#[test]
fn a_share_that_cannot_return_stays_recorded() {
    let node = Node::with(1);
    node.out(1).unwrap();
    node.refuse(&[("in", 0, 5)]);
    let error = node.back().unwrap_err();
    assert_eq!(error.reason(), Some(CheckpointError::NoMemory));
    assert!(node.record().is_some());
    node.refuse(&[]);
    node.back().unwrap();
}

/// Name of the test that plays the agent that is killed.
const SCRIPT: &str = "swap::mover::tests::an_agent_that_is_killed";
/// Its folder, and the pids of the processes that it moves.
const FOLDER: &str = "OCTAVO_TEST_FOLDER";
const PIDS: &str = "OCTAVO_TEST_PIDS";

/// Not a test of its own: moves a share out and back for a parent test.
#[test]
fn an_agent_that_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let pids = std::env::var(PIDS).unwrap();
    let processes = pids.split(' ').map(|pid| process(pid.parse().unwrap())).collect();
    let mover = mover(&folder);
    mover.out(share(&folder), processes, Vec::new(), sizes(1));
    mover.receiver.recv().expect("an end").result.unwrap();
    mover.back(share(&folder));
    mover.receiver.recv().expect("an end").result.unwrap();
}

#[test]
fn an_agent_killed_at_any_step_leaves_no_process_behind() {
    for point in ["swap.recorded", "swap.out", "swap.in"] {
        let node = Node::with(3);
        let pids: Vec<_> = (0..3).map(|index| node.pid(index).to_string()).collect();
        let killed = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", SCRIPT, "--quiet"])
            .env(FOLDER, node.temp.path())
            .env(PIDS, pids.join(" "))
            .env("OCTAVO_CRASH_AT", point)
            .output()
            .unwrap();
        assert_eq!(killed.status.signal(), Some(9), "{point} was not come by: {killed:?}");
        assert_eq!(super::super::swapped(&node.share().folder), Some((1, 0)), "{point}");
        node.back().unwrap();
        let left = fs::read_dir(node.temp.path()).unwrap().flatten();
        let away = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("away."));
        assert_eq!(away.count(), 0, "{point}");
        assert_eq!(node.record(), None, "{point}");
    }
}
