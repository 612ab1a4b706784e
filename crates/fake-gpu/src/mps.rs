//! What a program and the simulated MPS daemon say to each other, by lines of text over the daemon's socket.
//!
//! ```text
//! client:   client <pid> <UUID of a GPU>     daemon: limits <percentage> <bytes or ->
//! command:  command <text>                   daemon: the answer, to the end of the stream
//! ```
//!
//! A client's connection stays open. Its end is that of the daemon, or of the client.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The socket for clients, and for commands that change nothing.
pub const CONTROL: &str = "control";
/// The socket for commands that change something.
pub const CONTROL_PRIVILEGED: &str = "control_privileged";
/// The variable that names the folder of the sockets.
pub const PIPE_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// The folder without the variable.
pub const DEFAULT_PIPE: &str = "/tmp/nvidia-mps";

/// What a client may use of a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Part of the multiprocessors, in percent.
    pub percentage: f64,
    /// Memory in bytes; `None`: all.
    pub memory_bytes: Option<u64>,
}

/// A client of the daemon, as long as it is not dropped.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    limits: Limits,
}

impl Client {
    /// Connects a process to the daemon of a folder, for a GPU.
    ///
    /// # Errors
    ///
    /// There is no daemon ([`io::ErrorKind::NotFound`] or [`io::ErrorKind::ConnectionRefused`]), or it answers nothing.
    pub fn connect(folder: &Path, pid: u32, gpu: &str) -> io::Result<Self> {
        let mut stream = UnixStream::connect(folder.join(CONTROL))?;
        writeln!(stream, "client {pid} {gpu}")?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        let limits = parse(&line).ok_or(io::ErrorKind::InvalidData)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, limits })
    }

    /// What it may use.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Whether the daemon still serves it.
    pub fn is_served(&self) -> bool {
        use std::io::Read as _;
        let answer = (&self.stream).read(&mut [0]);
        matches!(answer, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// The line with a client's limits.
pub fn limits_line(limits: Limits) -> String {
    let bytes = limits.memory_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
    format!("limits {} {bytes}\n", limits.percentage)
}

fn parse(line: &str) -> Option<Limits> {
    let mut words = line.strip_prefix("limits ")?.split_whitespace();
    let percentage = words.next()?.parse().ok()?;
    let memory_bytes = match words.next()? {
        "-" => None,
        bytes => Some(bytes.parse().ok()?),
    };
    Some(Limits { percentage, memory_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_they_are_written() {
        for memory_bytes in [None, Some(1 << 30)] {
            let limits = Limits { percentage: 12.5, memory_bytes };
            assert_eq!(parse(&limits_line(limits)), Some(limits));
        }
        assert_eq!(parse("limits 3"), None);
        assert_eq!(parse("hello"), None);
    }
}
