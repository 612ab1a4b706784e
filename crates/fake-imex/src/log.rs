//! The service's log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use jiff::Zoned;

/// A log to standard error or a file.
#[derive(Clone, Debug)]
pub(crate) struct Log(Arc<Mutex<Option<File>>>);

impl Log {
    /// Opens a file for appending; `None` is standard error.
    pub(crate) fn open(file: Option<&Path>) -> anyhow::Result<Self> {
        let open = |path: &Path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.with_context(|| format!("opening the log {}", path.display()))
        };
        Ok(Self(Arc::new(Mutex::new(file.map(open).transpose()?))))
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
