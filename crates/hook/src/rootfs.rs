//! A folder as the root of all paths: no link leads out of it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Suffix of entries that are being made.
const TEMP_SUFFIX: &str = ".octavo-tmp";

/// A folder in the role of `/`. Paths are absolute in it.
#[derive(Debug)]
pub struct Rootfs {
    root: OwnedFd,
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: EntryKind,
}

/// Type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A plain file.
    File,
    /// A symbolic link.
    Link,
    /// Something else.
    Other,
}

impl Rootfs {
    /// Takes a folder as root.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { root: fs::open(path, flags, Mode::empty())? })
    }

    /// Entries of a folder, sorted by name. Names that are not UTF-8 are omitted.
    pub fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        let folder = self.resolve(folder, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut entries = Vec::new();
        for entry in fs::Dir::read_from(&folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if matches!(name, "." | "..") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::RegularFile => EntryKind::File,
                FileType::Symlink => EntryKind::Link,
                FileType::Unknown => kind_of(&folder, name)?,
                _ => EntryKind::Other,
            };
            entries.push(Entry { name: name.to_owned(), kind });
        }
        entries.sort();
        Ok(entries)
    }

    /// Device and inode behind a path: equal for two paths to the same file.
    pub fn identity(&self, path: &Path) -> Option<(u64, u64)> {
        let stat = fs::fstat(self.resolve(path, OFlags::PATH).ok()?).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }

    /// A descriptor of the file behind a path, for naming it (`O_PATH`).
    pub fn place(&self, path: &Path) -> io::Result<OwnedFd> {
        Ok(self.resolve(path, OFlags::PATH)?)
    }

    /// Whether a path leads to a plain file.
    pub fn is_file(&self, path: &Path) -> bool {
        let stat = self.resolve(path, OFlags::PATH).and_then(fs::fstat);
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    }

    /// Target text of a link. Links in its parent path are followed.
    pub fn link_target(&self, link: &Path) -> Option<String> {
        let (folder, name) = self.parent(link).ok()?;
        fs::readlinkat(&folder, name, Vec::new()).ok()?.into_string().ok()
    }

    /// Opens a plain file for reading. Other types are rejected before opening, since opening a pipe would block
    /// forever.
    pub fn open_file(&self, path: &Path) -> io::Result<File> {
        if !self.is_file(path) {
            return Err(io::Error::other("is missing or not a plain file"));
        }
        Ok(File::from(self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK)?))
    }

    /// Writes a complete file in place of an existing one. A link is replaced, not followed.
    pub fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let (folder, name) = self.parent_made(path)?;
        let temp = format!(".{name}{TEMP_SUFFIX}");
        remove(&folder, &temp)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(fs::openat(&folder, &temp, flags, Mode::from_raw_mode(0o644))?);
        file.write_all(content)?;
        fs::renameat(&folder, &temp, &folder, name)?;
        Ok(())
    }

    /// Creates a symbolic link in place of an existing link or plain file. Missing folders are created.
    pub fn symlink(&self, target: &str, link: &Path) -> io::Result<()> {
        let (folder, name) = self.parent_made(link)?;
        let present = fs::readlinkat(&folder, name, Vec::new());
        if present.is_ok_and(|present| present.to_bytes() == target.as_bytes()) {
            return Ok(());
        }
        let temp = format!(".{name}{TEMP_SUFFIX}");
        remove(&folder, &temp)?;
        fs::symlinkat(target, &folder, &temp)?;
        let renamed = fs::renameat(&folder, &temp, &folder, name);
        if renamed.is_err() {
            remove(&folder, &temp)?;
        }
        Ok(renamed?)
    }

    /// Opens the file behind a path, within the root.
    fn resolve(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let path = if path == Path::new("/") { Path::new(".") } else { path };
        let limits = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        // The kernel asks for a retry if a concurrent rename may have disturbed the lookup.
        for _ in 0..16 {
            match fs::openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), limits) {
                Err(Errno::AGAIN) => {}
                result => return result,
            }
        }
        Err(Errno::AGAIN)
    }

    /// The folder of a path, and the path's last component.
    fn parent<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a str)> {
        let name = last_part(path)?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        Ok((self.resolve(folder, OFlags::PATH | OFlags::DIRECTORY)?, name))
    }

    /// The same, with missing folders made.
    fn parent_made<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a str)> {
        let name = last_part(path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut reached = PathBuf::from("/");
        let mut folder = self.resolve(&reached, flags)?;
        for part in path.parent().unwrap_or(Path::new("/")).components() {
            let Component::Normal(part) = part else { continue };
            reached.push(part);
            folder = match self.resolve(&reached, flags) {
                Err(Errno::NOENT) => {
                    match fs::mkdirat(&folder, part, Mode::from_raw_mode(0o755)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                    // A dangling link exists but cannot be entered, which is an error here.
                    self.resolve(&reached, flags)?
                }
                result => result?,
            };
        }
        Ok((folder, name))
    }
}

/// The last part of an absolute path without `..`.
fn last_part(path: &Path) -> io::Result<&str> {
    let is_plain =
        path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
    let name = path.file_name().and_then(|name| name.to_str()).filter(|_| is_plain);
    name.ok_or_else(|| {
        io::Error::other(format!("{} is not an absolute path without `..`", path.display()))
    })
}

/// Type of an entry, for file systems that do not report it.
fn kind_of(folder: impl AsFd, name: &str) -> io::Result<EntryKind> {
    let stat = fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Other,
    })
}

/// Removes an entry other than a folder, if it exists.
fn remove(folder: impl AsFd, name: &str) -> io::Result<()> {
    match fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
