use octavo_testkit::eventually;

use super::*;

fn shell(script: &str) -> CommandLine {
    CommandLine {
        program: "/bin/sh".into(),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: BTreeMap::new(),
    }
}

#[test]
fn the_start_time_is_read_past_a_name_with_parentheses() {
    let tail = "1 1 1 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 987654 1000 10";
    assert_eq!(parse_stat(&format!("42 (a) b) (c)) S {tail}")), Some(987_654));
    assert_eq!(parse_stat(&format!("42 (a) Z {tail}")), None);
    assert_eq!(parse_stat("42 (a"), None);
}

#[test]
fn a_zombie_whose_threads_still_end_holds_its_sockets_and_is_alive() {
    let tail = "1 1 1 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 3 0 987654 1000 10";
    assert_eq!(parse_stat(&format!("42 (a) Z {tail}")), Some(987_654));
    assert_eq!(parse_stat(&format!("42 (a) X {tail}")), None);
}

#[test]
fn a_recycled_process_id_is_neither_alive_nor_signalled() {
    let me = Process::of(i32::try_from(std::process::id()).unwrap()).unwrap();
    assert!(me.is_alive());
    let other = Process { start: me.start + 1, ..me };
    assert!(!other.is_alive());
    // Would kill this test if it reached the process.
    other.signal(Signal::KILL);
}

#[test]
fn a_pid_file_is_read_back_and_a_broken_one_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("etcd");
    let process = Process { pid: 12, start: 345 };
    process.write(&path).unwrap();
    assert_eq!(Process::read(&path), Some(process));
    std::fs::write(&path, "12").unwrap();
    assert_eq!(Process::read(&path), None);
    assert_eq!(Process::read(&folder.path().join("none")), None);
}

#[tokio::test]
async fn the_end_of_a_process_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let (log, pid_file) = (folder.path().join("log"), folder.path().join("pid"));
    let process = spawn(&shell("exec sleep 60"), folder.path(), &log, &pid_file).unwrap();
    let mut ended = std::pin::pin!(process.ended());
    let waited = tokio::time::timeout(Duration::from_millis(50), &mut ended);
    waited.await.unwrap_err();
    process.signal(Signal::KILL);
    ended.await;
    assert!(!process.is_alive());
    process.ended().await;
}

#[tokio::test]
async fn a_started_program_logs_is_found_by_its_mark_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let (log, pid_file) = (folder.path().join("log"), folder.path().join("pid"));
    let command = shell("echo out; echo err >&2; exec sleep 60");
    let process = spawn(&command, folder.path(), &log, &pid_file).unwrap();
    assert_eq!(Process::read(&pid_file), Some(process));
    eventually("both streams in the log", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("out") && text.contains("err"))
    })
    .await;
    // During exec a process shows no environment.
    eventually("it is found by its mark", || processes_of_lab(folder.path()) == [process]).await;
    assert_eq!(processes_of_lab(Path::new("/no/such/lab")), []);
    stop(&[process], Duration::from_secs(10)).await;
    assert!(!process.is_alive());
    assert_eq!(processes_of_lab(folder.path()), []);
}

#[tokio::test]
async fn a_program_that_ignores_the_request_to_stop_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let command = shell("trap '' TERM; echo ready; while :; do sleep 1; done");
    let process = spawn(&command, folder.path(), &log, &folder.path().join("pid")).unwrap();
    eventually("the trap is set", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("ready"))
    })
    .await;
    stop(&[process], Duration::from_millis(50)).await;
    assert!(!process.is_alive());
    stop(&processes_of_lab(folder.path()), Duration::from_millis(50)).await;
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let command = CommandLine { program: "/no/such/program".into(), ..shell("") };
    let paths = (folder.path().join("log"), folder.path().join("pid"));
    let error = spawn(&command, folder.path(), &paths.0, &paths.1).unwrap_err();
    assert!(error.to_string().contains("/no/such/program"));
}
