//! Reads the kernel's log: `/dev/kmsg`, or a file with lines such as a copy of it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::KernelLogEvent;

/// Longest record of `/dev/kmsg` (`CONSOLE_EXT_LOG_MAX` in the kernel's sources), and of a file's unfinished line that is kept.
const MAX_RECORD_BYTES: usize = 8192;

/// Most records of one look. Others wait for the next: a flood of messages must not keep its reader for ever.
const MAX_RECORDS: usize = 4096;

/// The kernel's log cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the kernel's log {path} cannot be read: {error}")]
pub struct KernelLogError {
    path: PathBuf,
    #[source]
    error: io::Error,
}

/// The kernel's log, from the moment on at which it was opened.
#[derive(Debug)]
pub struct KernelLog {
    path: PathBuf,
    file: File,
    /// Device and inode of a plain file, which may be replaced; `None` for `/dev/kmsg`.
    plain: Option<(u64, u64)>,
    /// The beginning of a file's line whose end has not been written yet.
    unfinished: Vec<u8>,
}

impl KernelLog {
    /// Opens a log. What is in it already is passed over.
    pub fn open(path: &Path) -> Result<Self, KernelLogError> {
        Self::open_at(path, SeekFrom::End(0))
            .map_err(|error| KernelLogError { path: path.to_owned(), error })
    }

    fn open_at(path: &Path, position: SeekFrom) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let mut file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let metadata = file.metadata()?;
        let plain = metadata.is_file().then(|| (metadata.dev(), metadata.ino()));
        if plain.is_none() && !metadata.file_type().is_char_device() {
            return Err(io::Error::other("it is neither a device nor a plain file"));
        }
        file.seek(position)?;
        Ok(Self { path: path.to_owned(), file, plain, unfinished: Vec::new() })
    }

    /// The events since the last look. A file that was replaced or cut is read from its beginning.
    pub fn read(&mut self) -> Result<Vec<KernelLogEvent>, KernelLogError> {
        let found = if self.plain.is_some() { self.read_lines() } else { self.read_records() };
        found.map_err(|error| KernelLogError { path: self.path.clone(), error })
    }

    /// Records of `/dev/kmsg`: each read gives one, as `6,1234,56789,-;text`.
    fn read_records(&mut self) -> io::Result<Vec<KernelLogEvent>> {
        let mut buffer = [0; MAX_RECORD_BYTES];
        let mut events = Vec::new();
        for _ in 0..MAX_RECORDS {
            match self.file.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    let record = String::from_utf8_lossy(&buffer[..length]);
                    let (_, text) = record.split_once(';').unwrap_or(("", &record));
                    events.extend(text.lines().next().and_then(KernelLogEvent::parse));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Records were overwritten before they were read (EPIPE): the next read has the oldest that is left.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(events)
    }

    fn read_lines(&mut self) -> io::Result<Vec<KernelLogEvent>> {
        let mut events = Vec::new();
        self.take_lines(&mut events)?;
        let position = self.file.stream_position()?;
        let now = fs::metadata(&self.path).ok().filter(fs::Metadata::is_file);
        let is_other = now
            .is_some_and(|now| self.plain != Some((now.dev(), now.ino())) || now.len() < position);
        if is_other {
            *self = Self::open_at(&self.path, SeekFrom::Start(0))?;
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
                events.extend(KernelLogEvent::parse(&String::from_utf8_lossy(&line)));
            }
            if self.unfinished.len() > MAX_RECORD_BYTES {
                self.unfinished.clear();
            }
        }
        Ok(())
    }
}
