//! Watches the registration folders of all nodes through one inotify instance.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use crate::cluster::async_fd;

/// What happened to a registration socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SocketEvent {
    /// It was created or replaced.
    Appeared(PathBuf),
    /// It was removed.
    Gone(PathBuf),
}

/// Watch over the registration folders. Folders are identified by their index.
#[derive(Debug)]
pub(crate) struct SocketWatch {
    fd: AsyncFd<OwnedFd>,
    folders: BTreeMap<i32, (usize, PathBuf)>,
    known: BTreeSet<(usize, PathBuf)>,
}

/// Changes in order, with the index of the folder.
pub(crate) type Changes = Vec<(usize, SocketEvent)>;

impl SocketWatch {
    /// Watches `folders`, which must exist. The first [`SocketWatch::scan`] reports existing
    /// sockets.
    pub(crate) fn new(folders: &[PathBuf]) -> std::io::Result<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::ONLYDIR;
        let mut watched = BTreeMap::new();
        for (number, folder) in folders.iter().enumerate() {
            let watch = inotify::add_watch(&fd, folder, flags)?;
            watched.insert(watch, (number, folder.clone()));
        }
        Ok(Self { fd: async_fd::register(fd)?, folders: watched, known: BTreeSet::new() })
    }

    /// Compares the folders with the known sockets: at the start, and after lost events.
    pub(crate) fn scan(&mut self) -> std::io::Result<Changes> {
        let mut found = BTreeSet::new();
        for (number, folder) in self.folders.values() {
            for entry in std::fs::read_dir(folder)? {
                let path = entry?.path();
                if is_socket(&path) {
                    found.insert((*number, path));
                }
            }
        }
        let gone = self.known.difference(&found).cloned();
        let new = found.difference(&self.known).cloned();
        let changes = gone
            .map(|(number, path)| (number, SocketEvent::Gone(path)))
            .chain(new.map(|(number, path)| (number, SocketEvent::Appeared(path))))
            .collect();
        self.known = found;
        Ok(changes)
    }

    /// Waits for changes. Cancel safe.
    pub(crate) async fn changes(&mut self) -> std::io::Result<Changes> {
        loop {
            let events = self.read().await?;
            if events.iter().any(|(_, kind, _)| kind.contains(ReadFlags::QUEUE_OVERFLOW)) {
                return self.scan();
            }
            let mut changes = Changes::new();
            for (watch, kind, name) in events {
                let Some(((number, folder), name)) = self.folders.get(&watch).zip(name) else {
                    continue;
                };
                let (number, path) = (*number, folder.join(name));
                if kind.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
                    if self.known.remove(&(number, path.clone())) {
                        changes.push((number, SocketEvent::Gone(path)));
                    }
                } else if is_socket(&path) {
                    self.known.insert((number, path.clone()));
                    changes.push((number, SocketEvent::Appeared(path)));
                }
            }
            if !changes.is_empty() {
                return Ok(changes);
            }
        }
    }
}

impl SocketWatch {
    /// Reads pending inotify events: watch, kind, name.
    async fn read(&self) -> std::io::Result<Vec<(i32, ReadFlags, Option<OsString>)>> {
        let mut guard = self.fd.readable().await?;
        let mut events = Vec::new();
        let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
        let mut reader = inotify::Reader::new(self.fd.get_ref(), &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name();
                    let name = name.map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
                    events.push((event.wd(), event.events(), name));
                }
                Err(Errno::AGAIN) => {
                    guard.clear_ready();
                    return Ok(events);
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// Whether `path` is a socket (or a link to one) that the kubelet would register.
fn is_socket(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

#[cfg(test)]
mod tests;
