//! The guard backend: proxies over the driver's libraries, and the guard behind them.
//!
//! ```text
//! host       <run root>/octavo/guard/<digest>/  liboctavo_guard.so libcuda.so.1 libnvidia-ml.so.1
//! container  /run/octavo/guard/                 the same folder, read-only
//!            /run/octavo/real/<file>            the driver's own libraries
//!            /usr/lib64/libcuda.so.580.95.05    covered by the proxy (`octavo cdi-hook guard`)
//! ```
//!
//! A folder is never changed or removed while the node runs, since containers may have it mounted. Each pair of driver
//! and guard has its own folder. A reboot removes all of them.

mod library;

use std::borrow::Cow;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use octavo_cdi::{ContainerEdits, DriverFiles, Hook, Mount};
use octavo_guard_abi::{GUARD, REAL};
use octavo_node::NodePaths;
use octavo_node::files::{StorageError, write_atomically};
use sha2::{Digest as _, Sha256};

use super::{Backend, EnforcedShare};
use library::Proxied;

/// Folder of the node's guards, below the run root.
const FOLDER: &str = "octavo/guard";

/// Hexadecimal digits of a folder name; enough to exclude collisions.
const DIGITS: usize = 32;

/// The libraries that the guard stands in for.
const LIBRARIES: [&str; 2] = ["libcuda.so.1", "libnvidia-ml.so.1"];

/// The guard, with proxies for one driver.
#[derive(Debug)]
pub(super) struct GuardBackend {
    /// Its folder on the host.
    folder: PathBuf,
    /// Its files.
    files: Vec<(&'static str, Cow<'static, [u8]>)>,
    /// The driver's own libraries, as paths in the driver's root.
    real: Vec<PathBuf>,
    /// Folders in which containers search the driver's libraries.
    library_folders: Vec<PathBuf>,
    /// The driver's version; empty if it is not known.
    version: String,
}

impl GuardBackend {
    /// Writes the guard and proxies for a driver's libraries, or returns the obstacle.
    pub(super) fn make(paths: &NodePaths, files: &DriverFiles) -> Result<Self, String> {
        let mut made = vec![(octavo_embedded::guard::NAME, Cow::Borrowed(library::GUARD_LIBRARY))];
        let mut real = Vec::new();
        for name in LIBRARIES {
            let (path, proxied) = proxy(paths, files, name)?;
            proxied.log(name, &path);
            made.push((name, Cow::Owned(proxied.bytes)));
            real.push(path);
        }
        let folder = paths.run_root.join(FOLDER).join(digest(&made));
        let library_folders = files.library_folders.clone();
        let version = files.version.clone();
        let backend = Self { folder, files: made, real, library_folders, version };
        backend.ensure().map_err(|error| error.to_string())?;
        tracing::info!(folder = %backend.folder.display(), "the guard is ready for this driver");
        Ok(backend)
    }
}

impl Backend for GuardBackend {
    fn edits(&self, paths: &NodePaths, share: &EnforcedShare<'_>) -> ContainerEdits {
        let state = octavo_guard_abi::STATE_FILE;
        let guard = Path::new(GUARD).parent().unwrap_or(Path::new("/"));
        let mut mounts = vec![
            Mount::read_only(&share.folder.join(state), &share.folder_in_container.join(state))
                .writable(),
            Mount::read_only(&self.folder, guard),
        ];
        let mut args = vec!["--guard".to_owned(), text(&self.folder)];
        args.extend(["--share".to_owned(), text(&share.folder)]);
        for path in &self.real {
            let host = paths.driver_on_host(path);
            let name = path.file_name().unwrap_or_default();
            mounts.push(Mount::read_only(&host, &Path::new(REAL).join(name)));
            args.extend(["--real".to_owned(), text(&host)]);
        }
        for folder in &self.library_folders {
            args.extend(["--folder".to_owned(), text(folder)]);
        }
        if !self.version.is_empty() {
            args.extend(["--cuda-compat".to_owned(), self.version.clone()]);
        }
        let hook = Hook::octavo(paths, "createContainer", "guard", args);
        ContainerEdits { mounts, hooks: vec![hook], ..ContainerEdits::default() }
    }

    fn ensure(&self) -> Result<(), StorageError> {
        let set = |path: &Path, mode| {
            let rights = Permissions::from_mode(mode);
            fs::set_permissions(path, rights).map_err(StorageError::of("set the rights of", path))
        };
        for (name, content) in &self.files {
            let path = self.folder.join(name);
            if fs::read(&path).is_ok_and(|found| found == **content) {
                continue;
            }
            // Write the files one by one: the folder itself may be mounted, and no spec names it before all files
            // exist.
            fs::create_dir_all(&self.folder).map_err(StorageError::of("create", &self.folder))?;
            set(&self.folder, 0o755)?;
            write_atomically(&path, content, false)?;
            set(&path, 0o555)?;
            octavo_node::failpoint::hit("guard.written");
        }
        Ok(())
    }
}

/// A proxy for the driver's library `name`, and the library's path in the driver's root. Uses the first file for which
/// a proxy can be created; others are for other processors.
fn proxy(
    paths: &NodePaths,
    files: &DriverFiles,
    name: &'static str,
) -> Result<(PathBuf, Proxied), String> {
    let stem = name.trim_end_matches(".1");
    let is_named = |path: &&PathBuf| {
        let file = path.file_name().and_then(|file| file.to_str());
        file.and_then(|file| file.strip_prefix(stem)).is_some_and(|rest| rest.starts_with('.'))
    };
    let mut problem = format!(
        "the driver under {} has no {name}; see `driverRoot`",
        paths.driver_root_seen.display()
    );
    for path in files.mounts.iter().filter(is_named) {
        let seen = paths.driver_seen(path);
        let made = fs::read(&seen).map_err(|error| error.to_string()).and_then(|bytes| {
            let real = Path::new(REAL).join(path.file_name().unwrap_or_default());
            library::proxy(name, &bytes, &real)
        });
        match made {
            Ok(proxied) => return Ok((path.clone(), proxied)),
            Err(error) => problem = format!("no proxy can be made of {}: {error}", seen.display()),
        }
    }
    Err(problem)
}

/// Name of the folder for some files.
fn digest(files: &[(&'static str, Cow<'static, [u8]>)]) -> String {
    use std::fmt::Write as _;
    let mut digest = Sha256::new();
    for (name, content) in files {
        digest.update((name.len() as u64).to_le_bytes());
        digest.update(name);
        digest.update((content.len() as u64).to_le_bytes());
        digest.update(content);
    }
    let mut text = digest.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    text.truncate(DIGITS);
    text
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
