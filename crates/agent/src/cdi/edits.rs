//! Container edits of a claim's devices.

use std::fs;
use std::path::{Path, PathBuf};

use super::driver_files::DriverFiles;
use super::folder::device_name;
use super::spec::{ContainerEdits, DeviceNode, Hook, KIND, Mount, Spec, SpecDevice, VERSION};
use crate::checkpoint::{HeldDevice, HeldKind};
use crate::claims::{KnownDevice, share_folder};
use crate::enforcement::{Backend, EnforcedShare};
use crate::node::{NodePaths, beneath};

/// Nodes that all GPUs share.
const COMMON_NODES: [&str; 4] =
    ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"];

/// Sockets and folders of the driver's daemons.
const SOCKETS: [&str; 3] =
    ["/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket", "/tmp/nvidia-mps"];

/// A device held by a claim, with the GPU properties that its containers need.
#[derive(Clone, Debug)]
pub(crate) struct CdiDevice<'a> {
    /// The held device.
    pub(crate) held: &'a HeldDevice,
    /// Its GPU.
    pub(crate) gpu: &'a KnownDevice,
    /// For a MIG instance: minor numbers of the capability nodes of its GPU instance and compute instance.
    pub(crate) caps: Option<[u32; 2]>,
    /// For a share: its enforcement backend, if any.
    pub(crate) backend: Option<&'a dyn Backend>,
}

/// The CDI spec of a claim.
///
/// Nodes and sockets are searched on each call, since daemons may create them late. The driver's files are passed in,
/// since searching them is slow.
pub(crate) fn spec_for(
    paths: &NodePaths,
    files: &DriverFiles,
    uid: &str,
    cdi_devices: &[CdiDevice<'_>],
) -> Spec {
    let mut devices: Vec<SpecDevice> = Vec::new();
    for part in cdi_devices {
        let name = part.name(uid);
        // A claim may hold a GPU twice, once with admin access.
        if !devices.iter().any(|device| device.name == name) {
            devices.push(SpecDevice { name, container_edits: part.edits(paths, uid) });
        }
    }
    Spec {
        cdi_version: VERSION.to_owned(),
        kind: KIND.to_owned(),
        devices,
        container_edits: common_edits(paths, files),
    }
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

    /// Edits for a container with this device.
    fn edits(&self, paths: &NodePaths, uid: &str) -> ContainerEdits {
        if let Some(caps) = self.caps {
            return mig_edits(paths, self.gpu.minor, caps);
        }
        let mut edits = gpu_edits(paths, self.gpu);
        let (Some(share_id), HeldKind::Share(share)) = (self.share(), &self.held.kind) else {
            return edits;
        };
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

/// Edits for every container.
fn common_edits(paths: &NodePaths, files: &DriverFiles) -> ContainerEdits {
    // Tells NVIDIA's runtime hook, if installed, to add nothing.
    let mut env = vec!["NVIDIA_VISIBLE_DEVICES=void".to_owned()];
    env.extend(files.cuda_folder.iter().map(|f| format!("NVIDIA_CTK_LIBCUDA_DIR={}", f.display())));
    let nodes =
        COMMON_NODES.iter().map(Path::new).filter(|node| exists(&paths.dev_root_seen, node));
    let sockets =
        SOCKETS.iter().map(PathBuf::from).filter(|socket| exists(&paths.driver_root_seen, socket));
    let mounts = files.mounts.iter().cloned().chain(sockets);
    let mounts = mounts.map(|path| Mount::read_only(&paths.driver_on_host(&path), &path));
    let more = paths.mounts.iter().map(|more| {
        let mount = Mount::read_only(&more.host_path, &more.container_path);
        if more.is_read_only { mount } else { mount.writable() }
    });
    let mut hooks = Vec::new();
    if !files.links.is_empty() {
        hooks.push(links_hook(paths, &files.links));
    }
    if !files.library_folders.is_empty() {
        let folders = files.library_folders.iter();
        let args = folders.flat_map(|f| ["--folder".to_owned(), f.to_string_lossy().into_owned()]);
        hooks.push(Hook::octavo(paths, "createContainer", "update-ldcache", args));
    }
    ContainerEdits {
        env,
        device_nodes: nodes.map(|node| device_node(paths, node)).collect(),
        mounts: mounts.chain(more).collect(),
        hooks,
    }
}

/// Further edits for a container with a MIG instance. The GPU's node grants no access without the capability nodes.
fn mig_edits(paths: &NodePaths, minor: u32, caps: [u32; 2]) -> ContainerEdits {
    let caps = caps.map(|minor| format!("/dev/nvidia-caps/nvidia-cap{minor}"));
    let nodes = std::iter::once(format!("/dev/nvidia{minor}")).chain(caps);
    let device_nodes = nodes.map(|node| device_node(paths, Path::new(&node))).collect();
    ContainerEdits { device_nodes, ..ContainerEdits::default() }
}

/// Further edits for a container with a GPU or a share of it.
fn gpu_edits(paths: &NodePaths, device: &KnownDevice) -> ContainerEdits {
    let node = PathBuf::from(format!("/dev/nvidia{}", device.minor));
    let mut device_nodes = vec![device_node(paths, &node)];
    let mut links = Vec::new();
    for name in drm_names(&paths.sys_root, &device.pci) {
        let node = Path::new("/dev/dri").join(&name);
        if !exists(&paths.dev_root_seen, &node) {
            continue;
        }
        device_nodes.push(device_node(paths, &node));
        let kind = if name.starts_with("card") { "card" } else { "render" };
        let link = format!("/dev/dri/by-path/pci-{}-{kind}", device.pci);
        links.push((format!("../{name}"), link));
    }
    let hooks = if links.is_empty() { Vec::new() } else { vec![links_hook(paths, &links)] };
    ContainerEdits { device_nodes, hooks, ..ContainerEdits::default() }
}

/// Names of a GPU's DRM nodes (direct rendering manager), sorted.
fn drm_names(sys_root: &Path, pci: &str) -> Vec<String> {
    let folder = sys_root.join("bus/pci/devices").join(pci).join("drm");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("card") || name.starts_with("renderD"))
        .collect();
    names.sort();
    names
}

/// A hook that makes links in the container.
fn links_hook(paths: &NodePaths, links: &[(String, String)]) -> Hook {
    let args = links.iter();
    let args = args.flat_map(|(target, link)| ["--link".to_owned(), format!("{target}::{link}")]);
    Hook::octavo(paths, "createContainer", "create-symlinks", args)
}

/// A device node at its usual path in the container.
fn device_node(paths: &NodePaths, path: &Path) -> DeviceNode {
    let host_path = (paths.dev_root != Path::new("/")).then(|| beneath(&paths.dev_root, path));
    let host_path = host_path.map(|path| path.to_string_lossy().into_owned());
    DeviceNode { path: path.to_string_lossy().into_owned(), host_path }
}

/// Whether an absolute path exists below a root.
fn exists(root: &Path, path: &Path) -> bool {
    fs::symlink_metadata(beneath(root, path)).is_ok()
}
