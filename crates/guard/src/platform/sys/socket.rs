//! A stream socket to the agent.

use super::{Errno, call, file::File, number};

const UNIX: u16 = 1;
const STREAM: usize = 1;
const NON_BLOCKING: usize = 0o4000;
const CLOSE_ON_EXEC: usize = 0o2_000_000;
const NO_SIGNAL: usize = 0x4000;
const DONT_WAIT: usize = 0x40;
const PEEK: usize = 2;

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
