//! A stream socket to the agent.

use super::{Errno, call, file::File, number};

const UNIX: u16 = 1;
const STREAM: usize = 1;
const NON_BLOCKING: usize = 0o4000;
const CLOSE_ON_EXEC: usize = 0o2_000_000;
const NO_SIGNAL: usize = 0x4000;
const DONT_WAIT: usize = 0x40;
const PEEK: usize = 2;
const CLOSE_ON_EXEC_RECEIVED: usize = 0x4000_0000;

/// Maximum length of a socket's path, without its final zero.
pub(crate) const MAX_PATH: usize = 107;

/// `struct sockaddr_un`.
#[repr(C)]
struct Address {
    family: u16,
    path: [u8; MAX_PATH + 1],
}

/// Connects to a socket without blocking.
pub(crate) fn connect(path: &[u8]) -> Result<File, Errno> {
    let mut name = Address { family: UNIX, path: [0; MAX_PATH + 1] };
    name.path
        .get_mut(..path.len())
        .filter(|_| path.len() <= MAX_PATH)
        .ok_or(Errno(36))?
        .copy_from_slice(path);
    let kind = STREAM | NON_BLOCKING | CLOSE_ON_EXEC;
    let socket = File::of(call(number::SOCKET, [usize::from(UNIX), kind, 0, 0, 0, 0])?)?;
    let socket = socket.move_high();
    let address = (&raw const name) as usize;
    call(number::CONNECT, [socket.number(), address, size_of::<Address>(), 0, 0, 0])?;
    Ok(socket)
}

/// Sends bytes and returns how many were sent; never blocks and never raises a signal.
pub(crate) fn send(socket: &File, bytes: &[u8]) -> Result<usize, Errno> {
    let flags = NO_SIGNAL | DONT_WAIT;
    let address = bytes.as_ptr() as usize;
    call(number::SENDTO, [socket.number(), address, bytes.len(), flags, 0, 0])
}

/// Whether the other end is still open.
pub(crate) fn is_alive(socket: &File) -> bool {
    let mut byte = 0_u8;
    let address = (&raw mut byte) as usize;
    let received = call(number::RECVFROM, [socket.number(), address, 1, PEEK | DONT_WAIT, 0, 0]);
    matches!(received, Ok(1..) | Err(Errno::AGAIN | Errno::INTR))
}

/// Waits until there is something to receive, or the other end is gone, for a limited time.
pub(crate) fn wait_readable(socket: &File, milliseconds: u32) {
    /// `struct pollfd`: the descriptor, the events that are wanted (`POLLIN`), and those that happened.
    #[repr(C)]
    struct Poll {
        descriptor: i32,
        wanted: i16,
        happened: i16,
    }
    let poll = Poll { descriptor: socket.descriptor(), wanted: 1, happened: 0 };
    let milliseconds = u64::from(milliseconds);
    let time = [milliseconds / 1000, milliseconds % 1000 * 1_000_000];
    let (place, time) = ((&raw const poll) as usize, time.as_ptr() as usize);
    // The caller receives in any case.
    let _ = call(number::PPOLL, [place, 1, time, 0, 0, 0]);
}

/// Receives one byte with two descriptors. Returns `None` if nothing has come, or something else.
pub(crate) fn receive_two(socket: &File, expected: u8) -> Option<[File; 2]> {
    /// `struct msghdr` of 64-bit machines.
    #[repr(C)]
    struct Message {
        name: usize,
        name_length: usize,
        parts: usize,
        part_count: usize,
        control: usize,
        control_length: usize,
        flags: usize,
    }
    /// `struct cmsghdr` of 64-bit machines with two descriptors: length, `SOL_SOCKET`, `SCM_RIGHTS`.
    #[derive(Default, PartialEq)]
    #[repr(C)]
    struct Control {
        length: usize,
        level: i32,
        kind: i32,
        descriptors: [i32; 2],
    }
    let (mut byte, mut control) = (0_u8, Control::default());
    let part = [(&raw mut byte) as usize, 1];
    let mut message = Message {
        name: 0,
        name_length: 0,
        parts: part.as_ptr() as usize,
        part_count: 1,
        control: (&raw mut control) as usize,
        control_length: size_of::<Control>(),
        flags: 0,
    };
    let flags = DONT_WAIT | CLOSE_ON_EXEC_RECEIVED;
    let place = (&raw mut message) as usize;
    let received = call(number::RECVMSG, [socket.number(), place, flags, 0, 0, 0]);
    let has_both = message.control_length == size_of::<Control>()
        && control.length == size_of::<Control>()
        && (control.level, control.kind) == (1, 1);
    let files = has_both.then(|| control.descriptors.map(File::from_descriptor));
    files.filter(|_| received == Ok(1) && byte == expected)
}
