//! Reports of the guard to the agent.

use std::io::{ErrorKind, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use octavo_guard_abi::message::{Frame, Kind, SIZE};

use crate::container::{Container, GENERATION, GIB, Interposition, eventually};

/// Listens in place of the agent.
fn agent(container: &Container, share: &str) -> UnixListener {
    let path = container.folder(share).join("agent.sock");
    // A starting agent removes the socket of its predecessor.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(path).expect("bound");
    listener.set_nonblocking(true).expect("set");
    listener
}

fn accepted(listener: &UnixListener) -> UnixStream {
    let mut accepted = None;
    eventually("the guard connects", || match listener.accept() {
        Ok((stream, _)) => {
            accepted = Some(stream);
            true
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    });
    let stream = accepted.expect("accepted");
    stream.set_nonblocking(false).expect("set");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    stream
}

fn frame(stream: &mut UnixStream) -> Frame {
    let mut bytes = [0; SIZE];
    stream.read_exact(&mut bytes).expect("a frame");
    Frame::decode(&bytes).expect("a frame")
}

#[test]
fn a_process_introduces_itself_with_its_first_context() {
    let container = Container::of(8 * GIB);
    let listener = agent(&container, "one");
    let program = container.ready(Interposition::Proxy);
    let mut stream = accepted(&listener);
    let hello = frame(&mut stream);
    assert_eq!((hello.kind, hello.slot, hello.value), (Kind::Hello, 0, GENERATION));
    drop(program);
    assert_eq!(stream.read(&mut [0; 1]).expect("closed"), 0);
}

#[test]
fn an_agent_that_comes_back_is_greeted_again() {
    let container = Container::of(8 * GIB);
    let listener = agent(&container, "one");
    let mut program = container.ready(Interposition::Proxy);
    let mut stream = accepted(&listener);
    assert_eq!(frame(&mut stream).kind, Kind::Hello);
    drop((stream, listener));
    let listener = agent(&container, "one");
    let mut stream = accepted(&listener);
    assert_eq!(frame(&mut stream).kind, Kind::Hello);
    assert_eq!(program.allocate(9 * GIB), 2);
    assert_eq!(frame(&mut stream).kind, Kind::Refused);
}

#[test]
fn refusals_are_reported_as_a_count() {
    let container = Container::of(8 * GIB);
    let listener = agent(&container, "one");
    let mut program = container.ready(Interposition::Proxy);
    for _ in 0..5 {
        assert_eq!(program.allocate(9 * GIB), 2);
    }
    let mut stream = accepted(&listener);
    assert_eq!(frame(&mut stream).kind, Kind::Hello);
    let mut reported = 0;
    while reported < 5 {
        let frame = frame(&mut stream);
        assert_eq!(frame.kind, Kind::Refused);
        reported += frame.value;
    }
    assert_eq!(reported, 5);
}

#[test]
fn unknown_functions_are_reported_once_by_name() {
    let container = Container::of(8 * GIB);
    let listener = agent(&container, "one");
    let mut program = container.ready(Interposition::Proxy);
    let mut stream = accepted(&listener);
    assert_eq!(frame(&mut stream).kind, Kind::Hello);
    for _ in 0..3 {
        assert_eq!(program.say("novel"), "0 7654321 402");
    }
    let mut names: Vec<_> = (0..2)
        .map(|_| {
            let frame = frame(&mut stream);
            assert_eq!((frame.kind, frame.value), (Kind::Unknown, 0));
            String::from_utf8_lossy(frame.text()).into_owned()
        })
        .collect();
    names.sort();
    assert_eq!(names, ["cuLaunchNovelKernel", "cuMemNovelAlloc"]);
    assert_eq!(program.allocate(9 * GIB), 2);
    assert_eq!(frame(&mut stream).kind, Kind::Refused);
}

#[test]
fn a_changed_state_file_is_reported() {
    let container = Container::of(8 * GIB);
    let listener = agent(&container, "one");
    let mut program = container.ready(Interposition::Proxy);
    let mut stream = accepted(&listener);
    assert_eq!(frame(&mut stream).kind, Kind::Hello);
    let state = container.folder("one").join("state");
    assert_eq!(program.say(&format!("write {}", state.display())), "0");
    let frame = frame(&mut stream);
    assert_eq!((frame.kind, frame.value), (Kind::Tampered, 1));
}

#[test]
fn a_closed_container_reports_why() {
    let container = Container::of(8 * GIB);
    let listener = agent(&container, "one");
    std::fs::write(container.folder("one").join("limits"), "").expect("written");
    let mut program = container.start(Interposition::Proxy, "dlsym");
    assert_eq!(program.say("init"), "100");
    let mut stream = accepted(&listener);
    let hello = frame(&mut stream);
    assert_eq!((hello.kind, hello.slot), (Kind::Hello, u32::MAX));
    let why = frame(&mut stream);
    assert_eq!(why.kind, Kind::Refused);
    assert!(String::from_utf8_lossy(why.text()).starts_with("closed: "));
}

#[test]
fn a_child_of_a_fork_introduces_itself() {
    let container = Container::of(8 * GIB);
    let listener = agent(&container, "one");
    let mut program = container.ready(Interposition::Proxy);
    let mut stream = accepted(&listener);
    assert_eq!(frame(&mut stream).slot, 0);
    program.tell("fork retain 0;pause");
    assert_eq!(program.hear(), "0");
    let mut stream = accepted(&listener);
    let hello = frame(&mut stream);
    assert_eq!((hello.kind, hello.slot), (Kind::Hello, 1));
    assert_eq!(program.hear(), "0");
}
