use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use super::kill;
use crate::process::Process;
use crate::process::proc::Proc;

#[test]
fn a_process_is_killed_and_one_with_its_pid_is_not() {
    let proc = Proc::new("/proc".into());
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = child.id();
    let start_time = proc.stat(pid).unwrap().start_time;
    kill(&proc, Process { pid, start_time: start_time + 1 }).unwrap();
    assert!(child.try_wait().unwrap().is_none(), "it is another process");
    kill(&proc, Process { pid, start_time }).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    // Gone.
    kill(&proc, Process { pid, start_time }).unwrap();
}
