//! The service's log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Zoned;

/// A log to standard error or a file.
#[derive(Clone, Debug)]
pub(crate) struct Log(Arc<Mutex<Option<File>>>);

impl Log {
    /// Opens a file, and empties it unless it is to be kept. `None` is standard error, as is a file that cannot be opened.
    pub(crate) fn open(path: Option<&Path>, is_kept: bool) -> Self {
        let Some(path) = path else { return Self(Arc::default()) };
        let mut options = OpenOptions::new();
        options.create(true).append(is_kept).write(true).truncate(!is_kept);
        let opened = options.open(path);
        let error = opened.as_ref().err().map(|error| format!("{}: {error}", path.display()));
        let log = Self(Arc::new(Mutex::new(opened.ok())));
        if let Some(error) = error {
            log.line(&format!("the log is written to standard error: {error}"));
        }
        log
    }

    /// Writes a line. A log that cannot be written is no reason to end.
    pub(crate) fn line(&self, text: &str) {
        let line = format!("[{}] {text}\n", Zoned::now().strftime("%b %d %Y %H:%M:%S"));
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = match file.as_mut() {
            Some(file) => file.write_all(line.as_bytes()),
            None => io::stderr().write_all(line.as_bytes()),
        };
    }
}
