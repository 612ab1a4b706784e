//! Moves with guards that the test plays.

use std::mem::offset_of;
use std::sync::Arc;
use std::thread::JoinHandle;

use octavo_guard_abi::lease_page::{CAN_MOVE, LeasePage, MOVE_UNKNOWN_CONTEXT, TO_HOST};
use tempfile::TempDir;

use super::*;
use crate::gpu_time::tests::{Guard, eventually, share, start};
use crate::process::Process;

/// A share with so many processes, all of which are this one.
struct Node {
    temp: TempDir,
    gpu_time: Arc<GpuTime>,
    guards: Vec<Guard>,
}

/// A process whose guard moves memory.
fn joined(gpu_time: &Arc<GpuTime>) -> Guard {
    let guard = Guard::of_this_process(gpu_time, "a");
    guard.write(&CAN_MOVE.to_ne_bytes(), offset_of!(LeasePage, can_move));
    guard
}

impl Node {
    fn with(guards: usize) -> Self {
        let gpu_time = start(vec![share("a", "GPU-1", 50)]);
        let guards = (0..guards).map(|_| joined(&gpu_time)).collect();
        let node = Self { temp: tempfile::tempdir().unwrap(), gpu_time, guards };
        let pid = std::process::id();
        let start_time = Proc::new("/proc".into()).stat(pid).unwrap().start_time;
        let processes = vec![Process { pid, start_time }.into()];
        Record { processes, bytes: 7, staying: 1 }.write(node.temp.path()).unwrap();
        node
    }

    fn record(&self) -> Option<Record> {
        Record::read(self.temp.path())
    }

    fn moves(&self, to_host: bool) -> JoinHandle<Result<(), MoveError>> {
        let (gpu_time, folder) = (Arc::clone(&self.gpu_time), self.temp.path().to_owned());
        thread::spawn(move || {
            if to_host {
                move_out(&gpu_time, "a", &folder)
            } else {
                move_back(&gpu_time, "a", &Proc::new("/proc".into()), &folder)
            }
        })
    }

    /// A guard is asked for a move, and ends it with a status and so many bytes on the host.
    fn answers(&self, index: usize, to_host: bool, status: u32, moved: u64) {
        let guard = &self.guards[index];
        let word = |offset| guard.word(offset);
        let (asked, done) = (offset_of!(LeasePage, move_asked), offset_of!(LeasePage, move_done));
        eventually("a request", || {
            word(asked) != word(done) && (word(asked) & TO_HOST != 0) == to_host
        });
        guard.write(&moved.to_ne_bytes(), offset_of!(LeasePage, moved_bytes));
        guard.write(&status.to_ne_bytes(), offset_of!(LeasePage, move_status));
        guard.write(&word(asked).to_ne_bytes(), done);
    }
}

#[test]
fn a_move_waits_for_all_guards() {
    let node = Node::with(2);
    let moved = node.moves(true);
    node.answers(0, true, 0, 5);
    assert!(!moved.is_finished());
    node.answers(1, true, 0, 2);
    moved.join().unwrap().unwrap();
    assert!(node.record().is_some());
    let moved = node.moves(false);
    (0..2).for_each(|index| node.answers(index, false, 0, 0));
    moved.join().unwrap().unwrap();
    assert_eq!(node.record(), None);
}

#[test]
fn if_one_keeps_its_memory_that_of_the_others_comes_back() {
    let node = Node::with(2);
    let moved = node.moves(true);
    node.answers(0, true, 0, 5);
    node.answers(1, true, MOVE_BUSY, 0);
    (0..2).for_each(|index| node.answers(index, false, 0, 0));
    let error = moved.join().unwrap().unwrap_err();
    assert!(matches!(&error, MoveError::Refused(_)), "{error:?}");
    assert_eq!(error.reason(), Some(CheckpointError::LockTimedOut));
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    assert_eq!(node.record(), None);
}

#[test]
fn what_does_not_come_back_stays_recorded() {
    let node = Node::with(2);
    let moved = node.moves(true);
    node.answers(0, true, 0, 5);
    node.answers(1, true, 304, 0);
    node.answers(0, false, OUT_OF_MEMORY, 5);
    node.answers(1, false, 0, 0);
    let error = moved.join().unwrap().unwrap_err();
    assert!(matches!(&error, MoveError::Stuck(_)), "{error:?}");
    assert!(error.to_string().contains("CUDA error 304"), "{error}");
    assert_eq!(node.record().map(|record| (record.bytes, record.staying)), Some((7, 1)));
    let moved = node.moves(false);
    node.answers(0, false, OUT_OF_MEMORY, 5);
    node.answers(1, false, 0, 0);
    let error = moved.join().unwrap().unwrap_err();
    assert_eq!(error.reason(), Some(CheckpointError::NoMemory));
    assert!(node.record().is_some());
}

#[test]
fn the_process_that_does_not_answer_is_named() {
    let node = Node::with(1);
    let pid = std::process::id();
    let asked = node.gpu_time.page_move("a", true);
    let error = step(&asked, &[], Duration::ZERO).unwrap_err();
    assert_eq!(error.message, format!("the guard of process {pid} has not answered within 0 s"));
    let none = node.gpu_time.page_move("b", false);
    let error = step(&none, &[pid], Duration::ZERO).unwrap_err();
    assert_eq!(error.message, format!("the guard of process {pid} has not connected within 0 s"));
}

#[test]
fn a_copy_that_goes_on_is_progress() {
    let node = Node::with(1);
    let asked = node.gpu_time.page_move("a", true);
    let before = asked.ask();
    assert_eq!(asked.ask(), before);
    node.guards[0].write(&1_u32.to_ne_bytes(), offset_of!(LeasePage, move_progress));
    assert_ne!(asked.ask(), before);
}

#[test]
fn a_context_that_the_guard_does_not_know_is_named() {
    let node = Node::with(1);
    let moved = node.moves(true);
    node.answers(0, true, MOVE_UNKNOWN_CONTEXT, 0);
    node.answers(0, false, 0, 0);
    let error = moved.join().unwrap().unwrap_err();
    assert_eq!(error.reason(), Some(CheckpointError::Refused));
    assert!(error.to_string().contains("does not know"), "{error}");
}

#[test]
fn a_process_that_connects_later_is_asked_then() {
    let mut node = Node::with(0);
    // It has a page of an earlier agent.
    let _page = Guard::of_this_process(&node.gpu_time, "b");
    let moved = node.moves(false);
    node.guards.push(joined(&node.gpu_time));
    node.answers(0, false, 0, 0);
    moved.join().unwrap().unwrap();
    assert_eq!(node.record(), None);
}

#[test]
fn a_process_that_has_executed_a_program_is_not_awaited() {
    let node = Node::with(0);
    let mut program = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let pid = program.id();
    let proc = Proc::new("/proc".into());
    // Until it has executed the program, the child has what this process maps.
    eventually("a program", || !proc.maps_memory_file(pid, octavo_lease_page::NAME));
    let start_time = proc.stat(pid).unwrap().start_time;
    let processes = vec![Process { pid, start_time }.into()];
    Record { processes, bytes: 7, staying: 1 }.write(node.temp.path()).unwrap();
    node.moves(false).join().unwrap().unwrap();
    assert_eq!(node.record(), None);
    program.kill().unwrap();
    program.wait().unwrap();
}

#[test]
fn an_older_guard_is_not_awaited() {
    let node = Node::with(1);
    let _older = Guard::of_this_process(&node.gpu_time, "a");
    let moved = node.moves(true);
    node.answers(0, true, 0, 5);
    moved.join().unwrap().unwrap();
}
