//! Allows one `up` or `down` at a time in a state folder.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context as _, bail};
use rustix::fs::FlockOperation;

use crate::cluster::layout::Layout;

/// The exclusive right to change a state folder. Released on drop, and by a crash.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    layout: Layout,
}

impl Lock {
    /// Takes the lock. Creates the state folder if it is missing; fails if another process holds
    /// the lock.
    pub(crate) fn take(layout: &Layout) -> anyhow::Result<Self> {
        let path = layout.lock();
        loop {
            std::fs::create_dir_all(layout.root())
                .with_context(|| format!("create the state folder {}", layout.root().display()))?;
            let file = match File::options().create(true).append(true).open(&path) {
                Ok(file) => file,
                // A `down` removed the folder between the two calls.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                Err(e) => return Err(e).with_context(|| format!("open {}", path.display())),
            };
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => bail!(
                    "another `octavo lab up` or `octavo lab down` is running in {}: wait until it \
                     has ended",
                    layout.root().display()
                ),
                Err(e) => return Err(e).with_context(|| format!("lock {}", path.display())),
            }
            // The previous holder may have removed the file that was just locked.
            if is_same_file(&file, &path) {
                return Ok(Self { file, layout: layout.clone() });
            }
        }
    }

    /// Removes the lock file, and the state folder if it is empty.
    pub(crate) fn remove(self) -> anyhow::Result<()> {
        std::fs::remove_file(self.layout.lock()).context("remove the lock file")?;
        match std::fs::remove_dir(self.layout.root()) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::DirectoryNotEmpty => {}
            Err(e) => {
                return Err(e).with_context(|| format!("remove {}", self.layout.root().display()));
            }
        }
        drop(self.file);
        Ok(())
    }
}

fn is_same_file(file: &File, path: &std::path::Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(ours), Ok(on_disk)) => ours.ino() == on_disk.ino() && ours.dev() == on_disk.dev(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_lock_is_refused_and_removal_deletes_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(&folder.path().join("lab")).unwrap();
        let first = Lock::take(&layout).unwrap();
        assert!(Lock::take(&layout).unwrap_err().to_string().contains("is running in"));
        first.remove().unwrap();
        assert!(!layout.root().exists());
        drop(Lock::take(&layout).unwrap());
        Lock::take(&layout).unwrap().remove().unwrap();
    }
}
