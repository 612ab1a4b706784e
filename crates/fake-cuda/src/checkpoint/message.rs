//! What a caller and a process say to each other, a line of text each way:
//!
//! ```text
//! state | lock <milliseconds> | checkpoint | restore [<old UUID>=<new UUID> ...] | unlock | thread
//! <result code> <value>
//! ```

use std::fmt::{self, Display, Formatter};

use crate::code::Code;

/// What a caller asks of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Its state.
    State,
    /// Stop calls, and wait for work.
    Lock {
        /// Milliseconds until the caller gives up; 0 for never.
        timeout: u32,
    },
    /// Leave the GPUs.
    Checkpoint,
    /// Return to the GPUs.
    Restore(Vec<GpuPair>),
    /// Let calls go on.
    Unlock,
    /// The number of the thread that answers.
    Thread,
}

/// UUIDs of the GPU that a process had, and of the one that it is to have (`CUcheckpointGpuPair`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GpuPair {
    pub(crate) old: [u8; 16],
    pub(crate) new: [u8; 16],
}

/// `CUprocessState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessState {
    Running = 0,
    Locked = 1,
    Checkpointed = 2,
    Failed = 3,
}

/// The answer to a request.
pub(crate) type Answer = Result<u32, Code>;

impl Display for Request {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::State => f.write_str("state"),
            Self::Lock { timeout } => write!(f, "lock {timeout}"),
            Self::Checkpoint => f.write_str("checkpoint"),
            Self::Restore(pairs) => {
                f.write_str("restore")?;
                pairs.iter().try_for_each(|GpuPair { old, new }| {
                    let [old, new] = [old, new].map(|uuid| u128::from_be_bytes(*uuid));
                    write!(f, " {old:032x}={new:032x}")
                })
            }
            Self::Unlock => f.write_str("unlock"),
            Self::Thread => f.write_str("thread"),
        }
    }
}

impl Request {
    /// A request from its line.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        match words.next()? {
            "state" => Some(Self::State),
            "lock" => Some(Self::Lock { timeout: words.next()?.parse().ok()? }),
            "checkpoint" => Some(Self::Checkpoint),
            "restore" => words.map(pair).collect::<Option<_>>().map(Self::Restore),
            "unlock" => Some(Self::Unlock),
            "thread" => Some(Self::Thread),
            _ => None,
        }
    }
}

fn pair(word: &str) -> Option<GpuPair> {
    let uuid = |digits| u128::from_str_radix(digits, 16).ok().map(u128::to_be_bytes);
    let (old, new) = word.split_once('=')?;
    Some(GpuPair { old: uuid(old)?, new: uuid(new)? })
}

/// The line of an answer.
pub(crate) fn answer_line(answer: Answer) -> String {
    match answer {
        Ok(value) => format!("0 {value}\n"),
        Err(Code(code)) => format!("{code} 0\n"),
    }
}

/// An answer from its line; a process that ended in between has written none.
pub(crate) fn parse_answer(line: &str) -> Option<Answer> {
    let (code, value) = line.strip_suffix('\n')?.split_once(' ')?;
    match code.parse().ok()? {
        0 => value.parse().ok().map(Ok),
        code => Some(Err(Code(code))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_read_as_they_are_written() {
        let pairs =
            vec![GpuPair { old: [1; 16], new: [0xfe; 16] }, GpuPair { old: [0; 16], new: [7; 16] }];
        for request in [
            Request::State,
            Request::Lock { timeout: 250 },
            Request::Checkpoint,
            Request::Restore(Vec::new()),
            Request::Restore(pairs),
            Request::Unlock,
            Request::Thread,
        ] {
            assert_eq!(Request::parse(&request.to_string()), Some(request));
        }
        for answer in [Ok(3), Err(Code::NOT_READY)] {
            assert_eq!(parse_answer(&answer_line(answer)), Some(answer));
        }
        for line in ["", "lock", "restore 12", "stop"] {
            assert_eq!(Request::parse(line), None);
        }
        assert_eq!((parse_answer(""), parse_answer("0 1")), (None, None));
    }
}
