//! Writes many small files below one folder.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A folder to fill. Paths are relative to it; missing parent folders are created.
pub(super) struct Tree<'a> {
    root: &'a Path,
}

impl<'a> Tree<'a> {
    pub(super) fn new(root: &'a Path) -> Self {
        Self { root }
    }

    /// The full path.
    pub(super) fn path(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }

    /// Writes a file.
    pub(super) fn file(&self, path: impl AsRef<Path>, content: &str) -> anyhow::Result<()> {
        self.write(path.as_ref(), content, 0o644)
    }

    /// Writes an executable file.
    pub(super) fn program(&self, path: impl AsRef<Path>, content: &str) -> anyhow::Result<()> {
        self.write(path.as_ref(), content, 0o755)
    }

    /// Writes a file atomically: readers see the old or the new content.
    pub(super) fn replace(&self, path: &Path, content: &str) -> anyhow::Result<()> {
        let next = path.with_extension("next");
        self.file(&next, content)?;
        let path = self.path(path);
        fs::rename(self.path(&next), &path).with_context(|| format!("write {}", path.display()))
    }

    /// Makes a folder.
    pub(super) fn folder(&self, path: impl AsRef<Path>) -> anyhow::Result<()> {
        let path = self.path(path.as_ref());
        fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))
    }

    /// Creates a symbolic link; `target` is stored unchanged.
    pub(super) fn link(
        &self,
        path: impl AsRef<Path>,
        target: impl AsRef<Path>,
    ) -> anyhow::Result<()> {
        let (path, target) = (self.path(path.as_ref()), target.as_ref());
        let made = in_folder(&path, || match symlink(target, &path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                if fs::read_link(&path).is_ok_and(|existing| existing == target) {
                    return Ok(());
                }
                fs::remove_file(&path)?;
                symlink(target, &path)
            }
            result => result,
        });
        made.with_context(|| format!("link {}", path.display()))
    }

    fn write(&self, path: &Path, content: &str, mode: u32) -> anyhow::Result<()> {
        let path = self.path(path);
        let written = in_folder(&path, || {
            let mut options = fs::OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(mode);
            io::Write::write_all(&mut options.open(&path)?, content.as_bytes())
        });
        written.with_context(|| format!("write {}", path.display()))
    }
}

/// Runs `act`, which writes to `path`. Creates the parent folder only after a failure, since most
/// files have a neighbour.
fn in_folder(path: &Path, act: impl Fn() -> io::Result<()>) -> io::Result<()> {
    match act() {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(path.parent().unwrap_or(path))?;
            act()
        }
        result => result,
    }
}
