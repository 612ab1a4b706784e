//! Reads the kernel's log: `/dev/kmsg`, or a file with lines such as a copy of it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::KernelLogEvent;

/// Longest record of `/dev/kmsg` (`CONSOLE_EXT_LOG_MAX` in the kernel's sources), and of a file's unfinished line that is kept.
const MAX_RECORD_BYTES: usize = 8192;

/// Most records of one look. Others wait for the next: a flood of messages must not keep its reader for ever.
const MAX_RECORDS: usize = 4096;

/// Most looks that pass over what is in `/dev/kmsg` already, for the same reason.
const MAX_PASSES: usize = 256;

/// The kernel's log cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the kernel's log {path} cannot be read: {error}")]
pub struct KernelLogError {
    path: PathBuf,
    #[source]
    error: io::Error,
}

/// How far a kernel's log was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelLogPosition {
    /// Device and inode of a plain file; `None` for `/dev/kmsg`.
    pub file: Option<(u64, u64)>,
    /// What is read next: an offset in a plain file, in bytes, or the sequence number of a record. The kernel counts records from its
    /// boot on.
    pub next: u64,
}

/// The kernel's log, from some position on.
#[derive(Debug)]
pub struct KernelLog {
    path: PathBuf,
    file: File,
    /// Device and inode of a plain file, which may be replaced; `None` for `/dev/kmsg`.
    plain: Option<(u64, u64)>,
    /// As in [`KernelLogPosition`].
    next: u64,
    /// The beginning of a file's line whose end has not been written yet.
    unfinished: Vec<u8>,
}

impl KernelLog {
    /// Opens a log where it was read to. A plain file that is shorter or another one by now is read from its beginning. Without a
    /// position, or with that of a log of another kind, what is in it already is passed over.
    ///
    /// # Errors
    ///
    /// It cannot be opened or read, or is neither a device nor a plain file.
    pub fn open(path: &Path, position: Option<KernelLogPosition>) -> Result<Self, KernelLogError> {
        Self::open_at(path, position)
            .map_err(|error| KernelLogError { path: path.to_owned(), error })
    }

    fn open_at(path: &Path, position: Option<KernelLogPosition>) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        // The device begins with the oldest record that the kernel has.
        let mut file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let metadata = file.metadata()?;
        let plain = metadata.is_file().then(|| (metadata.dev(), metadata.ino()));
        if plain.is_none() && !metadata.file_type().is_char_device() {
            return Err(io::Error::other("it is neither a device nor a plain file"));
        }
        let position = position.filter(|position| position.file.is_some() == plain.is_some());
        let mut next = position.map_or(0, |position| position.next);
        if plain.is_some() {
            let start = match position {
                Some(position) if position.file == plain && next <= metadata.len() => {
                    SeekFrom::Start(next)
                }
                Some(_) => SeekFrom::Start(0),
                None => SeekFrom::End(0),
            };
            next = file.seek(start)?;
        }
        let mut log = Self { path: path.to_owned(), file, plain, next, unfinished: Vec::new() };
        if plain.is_none() && position.is_none() {
            log.pass_records()?;
        }
        Ok(log)
    }

    /// The events since the last look. A file that was replaced or cut is read from its beginning.
    ///
    /// # Errors
    ///
    /// It cannot be read. What was read in this look is lost, unless the log is opened at an earlier position.
    pub fn read(&mut self) -> Result<Vec<KernelLogEvent>, KernelLogError> {
        let found = if self.plain.is_some() {
            self.read_lines()
        } else {
            records(&mut self.file, &mut self.next)
        };
        found.map_err(|error| KernelLogError { path: self.path.clone(), error })
    }

    /// How far it was read. A line whose end has not been written yet is still to be read.
    pub fn position(&self) -> KernelLogPosition {
        KernelLogPosition { file: self.plain, next: self.next }
    }

    /// Passes over the records that `/dev/kmsg` has. They are read for their numbers: after a seek to the end none is known.
    fn pass_records(&mut self) -> io::Result<()> {
        for _ in 0..MAX_PASSES {
            let before = self.next;
            records(&mut self.file, &mut self.next)?;
            if self.next == before {
                break;
            }
        }
        Ok(())
    }

    fn read_lines(&mut self) -> io::Result<Vec<KernelLogEvent>> {
        let mut events = Vec::new();
        self.take_lines(&mut events)?;
        let position = self.file.stream_position()?;
        let now = fs::metadata(&self.path).ok().filter(fs::Metadata::is_file);
        let is_other = now
            .is_some_and(|now| self.plain != Some((now.dev(), now.ino())) || now.len() < position);
        if is_other {
            let beginning = KernelLogPosition { file: self.plain, next: 0 };
            *self = Self::open_at(&self.path, Some(beginning))?;
            self.take_lines(&mut events)?;
        }
        Ok(events)
    }

    fn take_lines(&mut self, events: &mut Vec<KernelLogEvent>) -> io::Result<()> {
        let mut buffer = [0; MAX_RECORD_BYTES];
        for _ in 0..MAX_RECORDS {
            let length = match self.file.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.unfinished.extend_from_slice(&buffer[..length]);
            while let Some(end) = self.unfinished.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unfinished.drain(..=end).collect();
                self.next += bytes(&line);
                events.extend(KernelLogEvent::parse(&String::from_utf8_lossy(&line)));
            }
            if self.unfinished.len() > MAX_RECORD_BYTES {
                self.next += bytes(&self.unfinished);
                self.unfinished.clear();
            }
        }
        Ok(())
    }
}

/// The events of the records of `/dev/kmsg` from the number `next` on, which is then that of the record after them. Each read gives one.
/// Records before `next` are passed over, however many they are.
pub(super) fn records(device: &mut impl Read, next: &mut u64) -> io::Result<Vec<KernelLogEvent>> {
    let mut buffer = [0; MAX_RECORD_BYTES];
    let mut events = Vec::new();
    let mut left = MAX_RECORDS;
    while left > 0 {
        match device.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                let text = String::from_utf8_lossy(&buffer[..length]);
                let (number, line) = record(&text);
                if number.is_some_and(|number| number < *next) {
                    continue;
                }
                *next = number.map_or(*next, |number| number.saturating_add(1));
                events.extend(KernelLogEvent::parse(line));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            // Records were overwritten before they were read (EPIPE): the next read has the oldest that is left.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        left -= 1;
    }
    Ok(events)
}

/// The sequence number of a record, and its line: `6,1234,56789,-;text`, and after it lines with the device that it is about.
pub(super) fn record(text: &str) -> (Option<u64>, &str) {
    let (head, text) = text.split_once(';').unwrap_or(("", text));
    let number = head.split(',').nth(1).and_then(|number| number.parse().ok());
    (number, text.lines().next().unwrap_or_default())
}

fn bytes(text: &[u8]) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}
