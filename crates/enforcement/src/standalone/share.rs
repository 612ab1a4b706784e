//! The host files of a standalone share.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use octavo_api::config::SwapUnit;
use octavo_cdi::{ContainerEdits, DriverFiles};
use octavo_gpu::Inventory;
use octavo_gpu::nvml::{Nvml, find_library};
use octavo_node::NodePaths;
use octavo_node::files::is_plain_name;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::mount::{UnmountFlags, unmount};

use super::RunArgs;
use super::in_use::{FolderLock, USE_LOCK};
use super::request::ShareRequest;
use crate::backend::{BackendKind, Backends, EnforcedShare};
use crate::share::{self, GuardedShare, LimitedShare, share_folder};

/// Where everything of Octavo's lies that a container sees.
pub(super) const OWN: &str = "/run/octavo";

/// Folder of standalone shares, each with its own run root.
pub(super) const FOLDER: &str = "/run/octavo-share";

/// A share that was prepared.
#[derive(Debug)]
pub(super) struct StandaloneShare {
    /// Its run root.
    root: PathBuf,
    /// Locked as long as a command, or a program that it has started, uses it.
    lock: File,
    /// Its folder on the host.
    pub(super) folder: PathBuf,
    /// Its folder as the command sees it.
    pub(super) seen: PathBuf,
    /// Edits of the enforcement backend.
    pub(super) edits: ContainerEdits,
    /// Whether it may have more memory than it asks for.
    pub(super) is_elastic: bool,
}

impl StandaloneShare {
    /// Creates the share's files, or joins those of commands with the same name.
    pub(super) fn prepare(args: &RunArgs) -> anyhow::Result<Self> {
        let name = args.name.clone().unwrap_or_else(|| std::process::id().to_string());
        ensure!(
            is_plain_name(&name),
            "the name {name:?} cannot be that of a folder: give letters, digits and dashes"
        );
        let library = find_library(&args.driver_root)?;
        let driver = Nvml::open(&library, &args.sys_root)?;
        let inventory = Inventory::read(&driver).context("cannot read the GPUs")?;
        let Some(gpu) = inventory.gpus.get(args.gpu) else {
            bail!("there is no GPU {}: the driver has {}", args.gpu, inventory.gpus.len());
        };
        let root = Path::new(FOLDER).join(&name);
        fs::create_dir_all(FOLDER).with_context(|| format!("making {FOLDER}: this needs root"))?;
        // Commands of one name that start at the same time must use one share.
        let folder_lock =
            FolderLock::take(Path::new(FOLDER)).context("waiting for other commands")?;
        fs::create_dir_all(&root).with_context(|| format!("making {}", root.display()))?;
        let lock = File::create(root.join(USE_LOCK)).context("locking the share")?;
        let is_used = lock.try_lock().is_err();
        if !is_used && let Err(error) = fs::remove_dir_all(share::parent(&root)) {
            // A command that was killed may have left some.
            let is_new = error.kind() == io::ErrorKind::NotFound;
            ensure!(is_new, "removing what an earlier command has left: {error}");
        }
        lock.lock_shared().context("locking the share")?;
        let gpu_bytes = gpu.memory_bytes;
        let gpu = (gpu.uuid.as_str(), gpu.minor, gpu_bytes);
        let mut request = ShareRequest::new(args, &name, &root, gpu)?;
        let earlier = if is_used { ShareRequest::read(&root) } else { None };
        // Programs that outlive their command use the share, too.
        fcntl_setfd(&lock, FdFlags::empty()).context("locking the share")?;
        if let Some(earlier) = earlier {
            request.join(&earlier);
        }
        let mut others = folder_lock.requests().context("looking for other shares")?;
        others.remove(&root);
        if let Some(excess) = request.excess(others.values(), gpu_bytes) {
            tracing::warn!("{excess}");
        }
        let paths = paths(&root, args);
        let files = DriverFiles::discover(&args.driver_root, &inventory.versions.driver);
        let backends = Backends::make(&paths, &files);
        let backend = backends.of(BackendKind::Guard).map_err(anyhow::Error::msg)?;
        let backend = backend.context("there is no guard")?;

        let claim = request.claim();
        let limited = LimitedShare {
            claim: &claim,
            share_id: &request.share_id,
            device: &request.device(),
            pool: "",
            gpu_uuid: &request.gpu,
            gpu_minor: request.minor,
            memory_bytes: request.memory_limit,
            memory_request: request.memory,
            compute_milli_percent: request.compute,
            guarded: Some(GuardedShare {
                generation: request.generation,
                strictness: request.strictness(),
                swap_unit: SwapUnit::default(),
            }),
        };
        share::write(&paths, &limited)?;
        request.write(&root).context("writing what the share asks for")?;
        let folder = request.folder.clone();
        let seen = share_folder(&name, &request.share_id).in_container();
        let share = EnforcedShare {
            gpu_uuid: &request.gpu,
            memory_bytes: request.memory_limit,
            folder: folder.clone(),
            folder_in_container: seen.clone(),
        };
        let edits = backend.edits(&paths, &share);
        drop(folder_lock);
        Ok(Self { root, lock, folder, seen, edits, is_elastic: request.is_elastic() })
    }

    /// Removes the share's files if no other command uses them, and no program that outlives its own.
    pub(super) fn leave(self) {
        let Self { root, lock, .. } = self;
        // Files mounted in this namespace cannot be removed.
        let _ = unmount(OWN, UnmountFlags::DETACH);
        let Ok(_folder_lock) = FolderLock::take(Path::new(FOLDER)) else { return };
        // Its programs have the same lock: only another one shows whether it is held.
        drop(lock);
        if File::open(root.join(USE_LOCK)).is_ok_and(|lock| lock.try_lock().is_ok()) {
            // The next boot removes leftovers.
            let _ = fs::remove_dir_all(root);
        }
    }
}

/// The paths of the node, as backends need them.
fn paths(root: &Path, args: &RunArgs) -> NodePaths {
    NodePaths {
        driver_root: args.driver_root.clone(),
        driver_root_seen: args.driver_root.clone(),
        proc_root: "/proc".into(),
        sys_root: args.sys_root.clone(),
        kubelet_root: "/var/lib/kubelet".into(),
        device_plugin_root: "/var/lib/kubelet/device-plugins".into(),
        cgroup_root: "/sys/fs/cgroup".into(),
        cdi_root: "/var/run/cdi".into(),
        run_root: root.to_owned(),
        hook_path: "octavo".into(),
        share_tmpfs: false,
        mounts: Vec::new(),
    }
}
