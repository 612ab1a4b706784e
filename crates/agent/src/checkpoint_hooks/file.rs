//! A file in a volume of a pod. The pod owns the folder and may be hostile: no symbolic link and no mount in it is followed.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use octavo_api::checkpoint::FileRequest;
use rustix::fs::{self, AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// A file in a volume of kind `emptyDir`.
#[derive(Debug)]
pub(super) struct ControlFile {
    /// The folder that has it.
    folder: OwnedFd,
    name: String,
}

/// Why a file is not made or found.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    /// The kubelet has no such volume of the pod.
    #[error("the pod has no volume {0} of kind emptyDir on this node")]
    NoVolume(String),
    /// It is there already.
    #[error("{0} is there already, so its removal would say nothing")]
    Exists(String),
    /// The folder is missing, or a symbolic link is on the way.
    #[error("{path}: {error}; its folder must be there, and no part of it a symbolic link")]
    Io {
        /// The path in the volume.
        path: String,
        /// Error of the system.
        error: io::Error,
    },
}

impl ControlFile {
    /// The place of a file of a pod, by its UID. The file need not be there.
    pub(super) fn find(
        kubelet_root: &Path,
        uid: &str,
        file: &FileRequest,
    ) -> Result<Self, FileError> {
        let is_safe = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        // The volume may be a mount of its own, of kind tmpfs. Within it there is none.
        let volume = format!("pods/{uid}/volumes/kubernetes.io~empty-dir/{}", file.volume);
        let volume = folder(fs::CWD, kubelet_root, ResolveFlags::empty())
            .and_then(|root| folder(root, Path::new(&volume), is_safe))
            .map_err(|_| FileError::NoVolume(file.volume.clone()))?;
        let (path, name) = file.path.rsplit_once('/').unwrap_or((".", &file.path));
        let folder = folder(volume, Path::new(path), is_safe | ResolveFlags::NO_XDEV);
        let folder = folder.map_err(|error| failed(file, error))?;
        Ok(Self { folder, name: name.to_owned() })
    }

    /// Makes the file, empty.
    pub(super) fn make(&self) -> Result<(), FileError> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        match fs::openat(&self.folder, &self.name, flags, mode) {
            Ok(_) => Ok(()),
            Err(Errno::EXIST) => Err(FileError::Exists(self.name.clone())),
            Err(error) => Err(FileError::Io { path: self.name.clone(), error: error.into() }),
        }
    }

    /// Fails if anything has its name.
    pub(super) fn check_missing(&self) -> Result<(), FileError> {
        if self.is_there() { Err(FileError::Exists(self.name.clone())) } else { Ok(()) }
    }

    /// Whether anything has its name.
    pub(super) fn is_there(&self) -> bool {
        let found = fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        !matches!(found, Err(Errno::NOENT))
    }

    /// Removes it, if it is there. A folder that the pod put in its place stays.
    pub(super) fn remove(&self) {
        match fs::unlinkat(&self.folder, &self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => {
                tracing::warn!(file = self.name, %error, "a file that asks for a checkpoint is left");
            }
        }
    }
}

fn folder(
    base: impl std::os::fd::AsFd,
    path: &Path,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::openat2(base, path, flags, Mode::empty(), resolve | ResolveFlags::NO_MAGICLINKS)
}

fn failed(file: &FileRequest, error: Errno) -> FileError {
    FileError::Io { path: format!("{}/{}", file.volume, file.path), error: error.into() }
}

#[cfg(test)]
mod tests;
