//! Clients of a machine's driver: processes that have it open, with or without contexts on a GPU.
//!
//! The real management library opens the device nodes of all GPUs, and a GPU with an open node cannot be reset. Here a client holds a
//! shared lock on a byte of the machine's description. The kernel drops it however the process ends.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::file::{self, LockByte, LockKind};

/// A client of the driver, until it is dropped.
#[derive(Debug)]
pub struct DriverClient {
    _machine: File,
}

impl DriverClient {
    /// Opens the driver of the machine that a file describes.
    ///
    /// # Errors
    ///
    /// The file cannot be opened or locked.
    pub fn open(machine: &Path) -> io::Result<Self> {
        let file = File::open(machine)?;
        file::lock(&file, LockByte::User, LockKind::Read, false)?;
        Ok(Self { _machine: file })
    }
}

/// Whether any process has the driver of the machine open that a file describes.
///
/// # Errors
///
/// The file cannot be opened.
pub fn is_open(machine: &Path) -> io::Result<bool> {
    Ok(file::is_held(&File::open(machine)?, LockByte::User))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_open_until_its_last_client_has_gone() {
        let folder = tempfile::tempdir().unwrap();
        let machine = folder.path().join("machine.yaml");
        std::fs::write(&machine, "").unwrap();
        assert!(!is_open(&machine).unwrap());
        let clients =
            [DriverClient::open(&machine).unwrap(), DriverClient::open(&machine).unwrap()];
        assert!(is_open(&machine).unwrap());
        let [first, last] = clients;
        drop(first);
        assert!(is_open(&machine).unwrap());
        drop(last);
        assert!(!is_open(&machine).unwrap());
    }
}
