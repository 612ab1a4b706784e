//! What the driver of a node knows of the node's IMEX service: the file `imex` in the machine's folder.
//!
//! The service replaces the file at each change and holds a lock on it. A file without a lock is of a service that has
//! ended, in whatever way, and counts as none.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::file::{self, LockByte, LockKind};
use crate::node_id::NodeId;

const FILE: &str = "imex";

/// First line of a service that is ready.
const READY: &str = "ready";

/// State of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceReport {
    /// Whether programs may import memory.
    pub is_ready: bool,
    /// The nodes that it is connected with, its own included.
    pub connected: BTreeSet<NodeId>,
    /// The nodes whose connection it has given up.
    pub lost: BTreeSet<NodeId>,
}

impl ServiceReport {
    /// What the service of a machine reports; the default if there is none.
    pub fn read(machine: &Path) -> Self {
        let path = machine.join(FILE);
        let mut last: Option<File> = None;
        let inode = |file: &File| file.metadata().map_or(0, |about| about.ino());
        // A file without a lock may have been replaced since it was opened. While the last one is open, no other has its
        // inode.
        while let Ok(mut file) = File::open(&path) {
            let mut text = String::new();
            if file::is_held(&file, LockByte::Owner) {
                let read = file.read_to_string(&mut text);
                return read.map_or_else(|_| Self::default(), |_| Self::parse(&text));
            }
            if last.is_some_and(|last| inode(&last) == inode(&file)) {
                break;
            }
            last = Some(file);
        }
        Self::default()
    }

    /// Whether programs may import memory of a node.
    pub fn reaches(&self, node: NodeId) -> bool {
        self.is_ready && self.connected.contains(&node)
    }

    fn text(&self) -> String {
        let mut text = if self.is_ready { format!("{READY}\n") } else { "not ready\n".to_owned() };
        for (word, nodes) in [("connected", &self.connected), ("lost", &self.lost)] {
            text.extend(nodes.iter().map(|node| format!("{word} {node}\n")));
        }
        text
    }

    fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let mut report = Self { is_ready: lines.next() == Some(READY), ..Self::default() };
        for (word, node) in lines.filter_map(|line| line.split_once(' ')) {
            let nodes = if word == "connected" { &mut report.connected } else { &mut report.lost };
            nodes.extend(node.parse::<NodeId>());
        }
        report
    }
}

/// The report of a running service. It counts until this is dropped.
#[derive(Debug)]
pub struct Publication {
    folder: PathBuf,
    /// Holds the lock.
    file: Option<File>,
}

impl Publication {
    /// A service of the machine in this folder, not reported yet.
    pub fn new(machine: &Path) -> Self {
        Self { folder: machine.to_owned(), file: None }
    }

    /// Replaces the report.
    ///
    /// # Errors
    ///
    /// The file cannot be written. The report before counts.
    pub fn publish(&mut self, report: &ServiceReport) -> io::Result<()> {
        let next = self.folder.join(format!("{FILE}.next"));
        match fs::remove_file(&next) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).open(&next)?;
        // Before the file has its name: readers see no file that has no lock yet.
        file::lock(&file, LockByte::Owner, LockKind::Write, false)?;
        file.write_all(report.text().as_bytes())?;
        fs::rename(&next, self.folder.join(FILE))?;
        self.file = Some(file);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
