//! The driver's files that a container needs, searched once per driver version.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use octavo_hook::rootfs::{EntryKind, Rootfs};
use octavo_hook::{LIBRARY_FOLDERS, ldcache};

/// Folder beside the libraries with more of them.
const LIBRARY_SUBFOLDER: &str = "vdpau";

/// Folder beside the libraries with links to the driver's backend of GBM (generic buffer management).
const GBM_FOLDER: &str = "gbm";

/// The library to which these links lead.
const GBM_LIBRARY: &str = "libnvidia-allocator.so.1";

/// Libraries of the driver's packages with versions of their own.
const OTHER_LIBRARIES: [&str; 6] = [
    "libnvidia-egl-gbm.so.",
    "libnvidia-egl-wayland.so.",
    "libnvidia-egl-wayland2.so.",
    "libnvidia-egl-xcb.so.",
    "libnvidia-egl-xlib.so.",
    "libnvidia-nvvm70.so.",
];

/// Folders of Xorg's modules, and those within them.
const XORG_FOLDERS: [&str; 5] = [
    "/usr/lib/xorg/modules",
    "/usr/lib64/xorg/modules",
    "/usr/lib/x86_64-linux-gnu/nvidia/xorg",
    "/usr/lib/aarch64-linux-gnu/nvidia/xorg",
    "/usr/lib64/nvidia/xorg",
];
const XORG_SUBFOLDERS: [&str; 3] = ["", "drivers", "extensions"];

/// Xorg's modules of the driver. The second has the driver's version in its file name, and a link without it.
const XORG_MODULES: [&str; 2] = ["nvidia_drv.so", "libglxserver_nvidia.so"];

/// Libraries accepted under these names when their files carry no version, as in driver containers and simulated
/// drivers.
const CORE_LIBRARIES: [&str; 2] = ["libnvidia-ml.so.1", "libcuda.so.1"];

/// Folders of programs.
const BINARY_FOLDERS: [&str; 5] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"];

/// Programs that containers expect.
const BINARIES: [&str; 7] = [
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
];

/// Where firmware lies.
const FIRMWARE_FOLDERS: [&str; 3] =
    ["/lib/firmware/updates/nvidia", "/lib/firmware/nvidia", "/usr/lib/firmware/nvidia"];

/// Configurations and data of graphics loaders.
const GRAPHICS_FILES: [&str; 18] = [
    "/etc/OpenCL/vendors/nvidia.icd",
    "/etc/vulkan/icd.d/nvidia_icd.json",
    "/etc/vulkan/icd.d/nvidia_icd.x86_64.json",
    "/etc/vulkan/icd.d/nvidia_icd.aarch64.json",
    "/etc/vulkan/icd.d/nvidia_layers.json",
    "/etc/vulkan/implicit_layer.d/nvidia_layers.json",
    "/usr/share/vulkan/icd.d/nvidia_icd.json",
    "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json",
    "/usr/share/vulkan/implicit_layer.d/nvidia_layers.json",
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "/usr/share/egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "/usr/share/egl/egl_external_platform.d/20_nvidia_xcb.json",
    "/usr/share/egl/egl_external_platform.d/20_nvidia_xlib.json",
    "/usr/share/nvidia/nvoptix.bin",
    "/usr/share/X11/xorg.conf.d/10-nvidia.conf",
    "/usr/share/X11/xorg.conf.d/nvidia-drm-outputclass.conf",
];

/// The driver's files that a container needs, as paths within the driver's root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverFiles {
    /// Version of the driver.
    pub version: String,
    /// Files to mount: libraries, firmware, programs, configurations.
    pub mounts: Vec<PathBuf>,
    /// Links to make, as (target, link).
    pub links: Vec<(String, String)>,
    /// Folders that hold libraries.
    pub library_folders: Vec<PathBuf>,
    /// The folder of the CUDA library.
    pub cuda_folder: Option<PathBuf>,
}

impl DriverFiles {
    /// Searches the files of a driver version under `root`, the driver's root as this process sees it. An unreadable
    /// root yields no files.
    pub fn discover(root: &Path, version: &str) -> Self {
        let Ok(root) = Rootfs::open(root) else { return Self::default() };
        let mut found = Self { version: version.to_owned(), ..Self::default() };
        found.find_libraries(&root, version);
        for folder in FIRMWARE_FOLDERS {
            let folder = Path::new(folder).join(version);
            let names = root.list(&folder).unwrap_or_default();
            let firmware = names.iter().filter(|entry| {
                entry.name.starts_with("gsp")
                    && Path::new(&entry.name).extension() == Some("bin".as_ref())
            });
            let before = found.mounts.len();
            found.mounts.extend(firmware.map(|entry| folder.join(&entry.name)));
            // On most systems these folders are links to the same folder.
            if found.mounts.len() > before {
                break;
            }
        }
        for binary in BINARIES {
            let paths = BINARY_FOLDERS.iter().map(|folder| Path::new(folder).join(binary));
            found.mounts.extend(paths.into_iter().find(|path| root.is_file(path)));
        }
        let graphics = GRAPHICS_FILES.iter().map(PathBuf::from).filter(|path| root.is_file(path));
        found.mounts.extend(graphics);
        found.find_xorg_modules(&root);
        found
    }

    /// Finds Xorg's modules, and the links to them.
    fn find_xorg_modules(&mut self, root: &Rootfs) {
        let mut seen = BTreeSet::new();
        let within = |folder| XORG_SUBFOLDERS.iter().map(move |sub| Path::new(folder).join(sub));
        for folder in XORG_FOLDERS.iter().flat_map(within) {
            // Folders that are links to others come up once.
            if !root.identity(&folder).is_some_and(|identity| seen.insert(identity)) {
                continue;
            }
            let entries = root.list(&folder).unwrap_or_default();
            let is_module = |name: &str| XORG_MODULES.iter().any(|module| name.starts_with(module));
            for entry in entries.iter().filter(|entry| is_module(&entry.name)) {
                let path = folder.join(&entry.name);
                match entry.kind {
                    EntryKind::File => self.mounts.push(path),
                    EntryKind::Link => self.link(root, &path, is_module),
                    EntryKind::Other => {}
                }
            }
        }
    }

    /// Adds a link that leads to a file of which this holds, in whatever folder.
    fn link(&mut self, root: &Rootfs, path: &Path, is_wanted: impl Fn(&str) -> bool) {
        let target = root.link_target(path);
        let name = |target: &str| target.rsplit('/').next().unwrap_or(target).to_owned();
        if let Some(target) = target.filter(|target| is_wanted(&name(target))) {
            self.links.push((target, path.to_string_lossy().into_owned()));
        }
    }

    /// Finds libraries, the links to them, and their folders.
    fn find_libraries(&mut self, root: &Rootfs, version: &str) {
        let versioned = format!(".so.{version}");
        let mut seen = BTreeSet::new();
        for folder in library_folders(root) {
            // Folders that are links to others come up once.
            let Some(identity) = root.identity(&folder) else { continue };
            if !seen.insert(identity) {
                continue;
            }
            let entries = root.list(&folder).unwrap_or_default();
            let is_library = |name: &str| {
                (name.starts_with("lib") && name.ends_with(&versioned))
                    || OTHER_LIBRARIES.iter().any(|other| name.starts_with(other))
            };
            let mut files: BTreeSet<&str> = entries
                .iter()
                .filter(|entry| entry.kind != EntryKind::Link && is_library(&entry.name))
                .map(|entry| entry.name.as_str())
                .collect();
            for core in CORE_LIBRARIES {
                let mut plain = entries.iter().filter(|entry| entry.kind == EntryKind::File);
                files.extend(plain.find(|entry| entry.name == core).map(|entry| &*entry.name));
            }
            if files.is_empty() {
                continue;
            }
            self.mounts.extend(files.iter().map(|name| folder.join(name)));
            // Programs look these libraries up by links in the same folder, some of which point to other links.
            let links = entries.iter().filter(|entry| {
                entry.kind == EntryKind::Link && leads_to(root, &folder, &entry.name, &files)
            });
            for entry in links {
                if let Some(target) = root.link_target(&folder.join(&entry.name)) {
                    let name = target.rsplit('/').next().unwrap_or(&target).to_owned();
                    self.links
                        .push((name, folder.join(&entry.name).to_string_lossy().into_owned()));
                }
            }
            let gbm = folder.join(GBM_FOLDER);
            for entry in root.list(&gbm).unwrap_or_default() {
                if entry.kind == EntryKind::Link {
                    self.link(root, &gbm.join(&entry.name), |target| target == GBM_LIBRARY);
                }
            }
            let has_cuda = files.iter().any(|name| name.starts_with("libcuda.so."));
            if has_cuda && self.cuda_folder.is_none() {
                self.cuda_folder = Some(folder.clone());
            }
            self.library_folders.push(folder);
        }
    }
}

/// Folders to search, those of the linker's cache first.
fn library_folders(root: &Rootfs) -> Vec<PathBuf> {
    let cached = ldcache::read(root).unwrap_or_default();
    let mut folders: Vec<PathBuf> = cached
        .iter()
        .filter(|library| {
            library.name.starts_with("libcuda.so") || library.name.starts_with("libnvidia-")
        })
        .filter_map(|library| Some(Path::new(&library.path).parent()?.to_owned()))
        .collect();
    folders.extend(LIBRARY_FOLDERS.iter().map(PathBuf::from));
    let subfolders: Vec<_> = folders.iter().map(|folder| folder.join(LIBRARY_SUBFOLDER)).collect();
    folders.extend(subfolders);
    folders
}

/// Whether a link leads to one of `files` through links in its own folder.
fn leads_to(root: &Rootfs, folder: &Path, link: &str, files: &BTreeSet<&str>) -> bool {
    let mut name = link.to_owned();
    // No chain of library links is longer. The bound also ends cycles.
    for _ in 0..8 {
        let Some(target) = root.link_target(&folder.join(&name)) else { return false };
        let (parent, last) = target.rsplit_once('/').unwrap_or(("", &target));
        if !parent.is_empty() && Path::new(parent) != folder {
            return false;
        }
        if files.contains(last) {
            return true;
        }
        last.clone_into(&mut name);
    }
    false
}

#[cfg(test)]
mod tests;
