//! Installs this binary on the host for the container runtime.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context;

/// Name of the binary in the folder.
const NAME: &str = "octavo";

/// Replaces `folder/octavo` by this binary atomically. A hook that starts meanwhile runs the old or the new binary, and
/// a running one keeps its file.
pub(super) fn install(folder: &Path) -> anyhow::Result<()> {
    let this = std::env::current_exe().context("find this binary")?;
    copy(&this, folder)
}

fn copy(binary: &Path, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let target = folder.join(NAME);
    let next = folder.join(format!(".{NAME}.next"));
    let written = (|| -> io::Result<()> {
        let mut to = File::create(&next)?;
        io::copy(&mut File::open(binary)?, &mut to)?;
        to.set_permissions(Permissions::from_mode(0o755))?;
        to.sync_all()?;
        fs::rename(&next, &target)?;
        File::open(folder)?.sync_all()
    })();
    if written.is_err() {
        // The failed copy has no use. An error while removing it is harmless.
        let _ = fs::remove_file(&next);
    }
    written.with_context(|| {
        format!("copy {} to {}: is the folder writable?", binary.display(), target.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_replaced_and_runnable() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("opt/bin");
        fs::create_dir_all(&to).unwrap();
        fs::write(to.join(NAME), "old").unwrap();
        let binary = folder.path().join("new");
        fs::write(&binary, "new").unwrap();
        copy(&binary, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join(NAME)).unwrap(), "new");
        let mode = fs::metadata(to.join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert_eq!(fs::read_dir(&to).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn a_folder_that_cannot_be_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = copy(&file, &file.join("bin")).unwrap_err().to_string();
        assert!(error.contains("file/bin"), "{error}");
    }
}
