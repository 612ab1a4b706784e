//! Container edits of a claim's devices.

use std::fs;
use std::path::{Path, PathBuf};

use octavo_cdi::sysfs::SysfsDevice;
use octavo_cdi::{
    ALL_MODE, ContainerEdits, DeviceNode, DriverFiles, ExtraNodes, Hook, KIND, Majors, Mount, Spec,
    SpecDevice, VERSION, sysfs,
};
use octavo_enforcement::backend::{Backend, EnforcedShare};
use octavo_enforcement::share::share_folder;
use octavo_node::mps::MpsFolder;
use octavo_node::{NodePaths, beneath};

use super::folder::device_name;
use crate::checkpoint::{HeldDevice, HeldKind, HeldSharing};
use crate::claims::KnownDevice;

/// Sockets and folders of the driver's daemons.
const SOCKETS: [&str; 3] =
    ["/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket", MPS_PIPE];
/// The folder in which CUDA looks for an MPS daemon.
const MPS_PIPE: &str = "/tmp/nvidia-mps";
/// Shared memory of a container.
const SHM: &str = "/dev/shm";

/// A device held by a claim, with the GPU properties that its containers need.
#[derive(Clone, Debug)]
pub(crate) struct CdiDevice<'a> {
    /// The held device.
    pub(crate) held: &'a HeldDevice,
    /// Its GPU.
    pub(crate) gpu: &'a KnownDevice,
    /// Number of its device node now.
    pub(crate) minor: u32,
    /// For a MIG instance: the capability nodes of its GPU instance and compute instance.
    pub(crate) caps: Option<[DeviceNode; 2]>,
    /// For a share: its enforcement backend, if any.
    pub(crate) backend: Option<&'a dyn Backend>,
    /// What its class adds.
    pub(crate) extra: ExtraNodes,
}

/// The CDI spec of a claim.
///
/// Sockets are searched on each call, since daemons may create them late. The driver's files are passed in, since
/// searching them is slow.
pub(crate) fn spec_for(
    paths: &NodePaths,
    files: &DriverFiles,
    majors: Majors,
    uid: &str,
    cdi_devices: &[CdiDevice<'_>],
) -> Spec {
    let mut devices: Vec<SpecDevice> = Vec::new();
    for part in cdi_devices {
        let name = part.name(uid);
        let extra = part.extra_edits();
        // A claim may hold a GPU twice, once with admin access: both have one name.
        if let Some(device) = devices.iter_mut().find(|device| device.name == name) {
            device.container_edits.add_missing(extra);
            continue;
        }
        let mut own = part.edits(paths, majors, uid);
        own.add_missing(extra);
        devices.push(SpecDevice { name, container_edits: own });
    }
    let mut container_edits = common_edits(paths, files, majors);
    if cdi_devices.iter().any(|part| matches!(part.held.sharing, Some(HeldSharing::Mps(_)))) {
        // A daemon of the host is not the claim's.
        container_edits.mounts.retain(|mount| mount.container_path != MPS_PIPE);
    }
    Spec { cdi_version: VERSION.to_owned(), kind: KIND.to_owned(), devices, container_edits }
}

impl CdiDevice<'_> {
    /// Its name in the spec.
    fn name(&self, uid: &str) -> String {
        device_name(uid, &self.held.device, self.share())
    }

    /// Id of the share; `None` for other devices.
    fn share(&self) -> Option<&str> {
        match self.held.kind {
            HeldKind::Share(_) => self.held.share_id.as_deref(),
            HeldKind::Whole | HeldKind::Mig(_) => None,
        }
    }

    /// Adds the MPS daemon of its programs, if it has one, in the place where CUDA looks without a variable, too.
    fn add_mps(&self, paths: &NodePaths, edits: &mut ContainerEdits) {
        let Some(HeldSharing::Mps(mps)) = &self.held.sharing else { return };
        let daemon = MpsFolder::below(&paths.run_root).daemon(&mps.daemon);
        edits.env.push(format!("CUDA_MPS_PIPE_DIRECTORY={MPS_PIPE}"));
        // Sockets and pipes can be used through it. Nothing there can be replaced.
        edits.mounts.push(Mount::read_only(&daemon.pipe(), Path::new(MPS_PIPE)));
        edits.mounts.push(Mount::read_only(&daemon.shm(), Path::new(SHM)).writable());
    }

    /// Edits with the nodes that its class adds.
    fn extra_edits(&self) -> ContainerEdits {
        let ExtraNodes { device_nodes, mounts, .. } = self.extra.clone();
        ContainerEdits { device_nodes, mounts, ..ContainerEdits::default() }
    }

    /// Edits for a container with this device.
    fn edits(&self, paths: &NodePaths, majors: Majors, uid: &str) -> ContainerEdits {
        let gpu_node = majors.gpu_node(self.minor);
        if let Some([gpu_instance, compute_instance]) = self.caps.clone() {
            // The GPU's node grants no access without the capability nodes. Only profiles with graphics draw.
            let is_drawing =
                matches!(&self.held.kind, HeldKind::Mig(mig) if mig.profile.contains("+gfx"));
            let mut edits = if is_drawing {
                drm_edits(paths, &self.gpu.pci)
            } else {
                ContainerEdits::default()
            };
            edits.device_nodes.splice(0..0, [gpu_node, gpu_instance, compute_instance]);
            self.add_mps(paths, &mut edits);
            return edits;
        }
        let mut edits = drm_edits(paths, &self.gpu.pci);
        edits.device_nodes.insert(0, gpu_node);
        self.add_mps(paths, &mut edits);
        let (Some(share_id), HeldKind::Share(share)) = (self.share(), &self.held.kind) else {
            return edits;
        };
        if share.is_unlimited() {
            return edits;
        }
        let folder = share_folder(uid, share_id);
        let share = EnforcedShare {
            gpu_uuid: &self.gpu.uuid,
            memory_bytes: share.memory_bytes,
            folder: folder.on_host(&paths.run_root),
            folder_in_container: folder.in_container(),
        };
        edits.mounts.push(Mount::read_only(&share.folder, &share.folder_in_container));
        if let Some(backend) = self.backend {
            let mut more = backend.edits(paths, &share);
            edits.mounts.append(&mut more.mounts);
            edits.hooks.append(&mut more.hooks);
        }
        edits
    }
}

/// Edits for every container with a GPU: the driver's files, its common device nodes, and the hooks.
pub(crate) fn common_edits(
    paths: &NodePaths,
    files: &DriverFiles,
    majors: Majors,
) -> ContainerEdits {
    // Tells NVIDIA's runtime hook, if installed, to add nothing.
    let mut env = vec!["NVIDIA_VISIBLE_DEVICES=void".to_owned()];
    env.extend(files.cuda_folder.iter().map(|f| format!("NVIDIA_CTK_LIBCUDA_DIR={}", f.display())));
    let sockets =
        SOCKETS.iter().map(PathBuf::from).filter(|socket| exists(&paths.driver_root_seen, socket));
    let mount = |path: &PathBuf| Mount::read_only(&paths.driver_on_host(path), path);
    // Clients of a daemon may write beside its socket, as those of MPS do.
    let sockets = sockets.map(|path| mount(&path).for_sockets());
    let mounts = files.mounts.iter().map(mount).chain(sockets);
    let more = paths.mounts.iter().map(|more| {
        let mount = Mount::read_only(&more.host_path, &more.container_path);
        if more.is_read_only { mount } else { mount.writable() }
    });
    let action = "disable-device-node-modification";
    let mut hooks = vec![Hook::octavo(paths, "createContainer", action, [])];
    if !files.links.is_empty() {
        hooks.push(links_hook(paths, &files.links));
    }
    if !files.library_folders.is_empty() {
        let folders = files.library_folders.iter();
        let args = folders.flat_map(|f| ["--folder".to_owned(), f.to_string_lossy().into_owned()]);
        let compat = ["--cuda-compat".to_owned(), files.version.clone()];
        let compat = compat.into_iter().filter(|_| !files.version.is_empty());
        hooks.push(Hook::octavo(paths, "createContainer", "update-ldcache", args.chain(compat)));
    }
    ContainerEdits {
        env,
        device_nodes: majors.common_nodes(),
        mounts: mounts.chain(more).collect(),
        hooks,
    }
}

/// Edits with a GPU's DRM nodes (direct rendering manager) and the links to them.
pub(crate) fn drm_edits(paths: &NodePaths, pci: &str) -> ContainerEdits {
    let mut device_nodes = Vec::new();
    let mut links = Vec::new();
    let folder = paths.sys_root.join("bus/pci/devices").join(pci).join("drm");
    let is_node = |name: &str| name.starts_with("card") || name.starts_with("renderD");
    for SysfsDevice { name, major, minor } in sysfs::devices(&folder, is_node) {
        device_nodes.push(DeviceNode::new(format!("/dev/dri/{name}"), major, minor, ALL_MODE));
        let kind = if name.starts_with("card") { "card" } else { "render" };
        links.push((format!("../{name}"), format!("/dev/dri/by-path/pci-{pci}-{kind}")));
    }
    let hooks = if links.is_empty() { Vec::new() } else { vec![links_hook(paths, &links)] };
    ContainerEdits { device_nodes, hooks, ..ContainerEdits::default() }
}

/// A hook that makes links in the container.
fn links_hook(paths: &NodePaths, links: &[(String, String)]) -> Hook {
    let args = links.iter();
    let args = args.flat_map(|(target, link)| ["--link".to_owned(), format!("{target}::{link}")]);
    Hook::octavo(paths, "createContainer", "create-symlinks", args)
}

/// Whether an absolute path exists below a root.
fn exists(root: &Path, path: &Path) -> bool {
    fs::symlink_metadata(beneath(root, path)).is_ok()
}
