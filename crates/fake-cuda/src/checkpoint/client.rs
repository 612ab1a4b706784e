//! Asks another process, or this one.

use std::io::{self, BufRead as _, BufReader, Write as _};

use octavo_fake_gpu::{privilege, process_socket};

use crate::checkpoint::message::{Answer, Request, parse_answer};
use crate::code::Code;
use crate::library;

/// Asks a process, by its pid in this process's namespace.
pub(crate) fn ask(pid: i32, request: &Request) -> Answer {
    let pid = u32::try_from(pid).map_err(|_| Code::INVALID_VALUE)?;
    match privilege::may_control(pid) {
        Ok(true) => {}
        Ok(false) => return Err(Code::NOT_PERMITTED),
        Err(_) => return Err(Code::INVALID_VALUE),
    }
    let folder = &library::driver()?.location.folder;
    let stream = process_socket::connect(folder, pid).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Code::NOT_PERMITTED,
        _ => Code::INVALID_VALUE,
    })?;
    let mut line = String::new();
    let sent = writeln!(&stream, "{request}");
    let read = sent.and_then(|()| BufReader::new(&stream).read_line(&mut line));
    // A process that ends is none any more.
    let answer = read.ok().and_then(|_| parse_answer(&line)).ok_or(Code::INVALID_VALUE)?;
    match (request, answer) {
        (Request::Thread, Ok(thread)) => {
            process_socket::thread_of(pid, thread).map_err(|_| Code::INVALID_VALUE)
        }
        (_, answer) => answer,
    }
}
